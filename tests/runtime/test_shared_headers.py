"""Headers that belong to no op stand without GEMM's, and are enough to make a kernel of another op."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.test_cuda import Launch
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.backends.cuda.toolchain import include_dirs
from tilewright.errors import ToolchainError
from tilewright.runtime import abi, cuda

FOLDERS = include_dirs(("gemm",))
OF_NO_OP = (
    "abi", "export", "say", "cuda/schedulers/tile_scheduler", "cuda/host/driver", "cuda/host/export",
    "cuda/host/launch", "cuda/primitives/tensor_map", "cuda/host/tensor_maps", "cuda/primitives/tma", "gpu/device",
    "gpu/epilogue", "gpu/repack", "gpu/ring", "gpu/split_k", "gpu/tile_copy", "gpu/tile_memory", "gpu/tile_order",
    "gpu/types",
)  # fmt: skip
OF_THE_HOST = (
    "say", "export", "gemm_rules", "cuda/schedulers/tile_scheduler", "cuda/host/export", "cuda/host/launch",
    "cuda/host/tensor_maps", "cuda/gemm/tma_ws/host", "cuda/gemm/multistage/host", "cuda/gemm/skinny/host",
    "cuda/gemm/loops/host", "cuda/gemm/host",
)  # fmt: skip


def _file(name: str) -> Path:
    return next(folder / "tilewright" / f"{name}.h" for folder in FOLDERS if (folder / f"tilewright/{name}.h").exists())


def _seen(name: str) -> Iterator[str]:
    yield name
    for one in re.findall(r"#include <tilewright/([\w/]+)\.h>", _file(name).read_text(encoding="utf-8")):
        if not one.startswith("emulated/"):
            yield from _seen(one)


@pytest.mark.parametrize("name", OF_NO_OP)
def test_what_belongs_to_no_op_knows_no_op(name: str) -> None:
    found = set(_seen(name))
    assert [one for one in found if "gemm" in one] == []
    assert [one for one in found if "gemm" in re.sub("//.*|/[*].*?[*]/", "", _file(one).read_text(), flags=re.S)] == []


def _compile(folder: Path, text: str, *more: str) -> None:
    source = folder / "source.cpp"
    source.write_text(text, encoding="utf-8")
    flags = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", f'-DTW_CUBIN="{folder / "cubin"}"')
    try:
        compiler = find_toolchain().driver
    except ToolchainError as error:
        pytest.skip(f"no C++ compiler: {error.message}")
    command = [*compiler, *flags, *(f"-I{one}" for one in FOLDERS), *more, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_headers_of_the_host_stand_alone(tmp_path: Path) -> None:
    for name in OF_THE_HOST:
        _compile(tmp_path, f"#include <tilewright/{name}.h>\n", "-c", "-o", str(tmp_path / "source.o"))


# Where there are many numbers it launches a second function that it has beside its own.
OTHER_OP = """
#include <tilewright/cuda/host/export.h>
#include <tilewright/say.h>
struct Args { int64_t count; char rest[248]; };
struct Twice : tw::PlainKernel {
  static constexpr bool packs = false;
  static constexpr int64_t clear_bytes = 128;
  static int check(const void *args, char *why, size_t bytes) {
    const bool bad = static_cast<const Args *>(args)->count < 0;
    return tw::say(bad ? tw::Answer{TW_BAD_ARGS, "fewer than none"} : tw::Answer{}, why, bytes);
  }
  static int64_t workspace(const void *, int64_t) { return 256; }
  static int run(tw::cuda::Loaded &loaded, const void *args, void *, void *stream) {
    Args x = *static_cast<const Args *>(args);
    const tw::cuda::LaunchShape shape{128, 0, 2};
    tw::cuda::Loaded::Place place;
    if (int error = loaded.get(place, shape)) return tw::cuda::status_of(error);
    const unsigned blocks = 2 * unsigned(tw::cuda::ceil_div(x.count, 256));
    return tw::cuda::start(place.functions[x.count > 1000], {blocks, 3}, shape, stream, x);
  }
};
TW_EXPORT_CUDA(Twice, twice, "{}", "twice_many")
"""


def test_code_is_loaded_ahead_of_the_first_launch(fake_cuda: ctypes.CDLL, tmp_path: Path) -> None:
    """Of two kernels of one library the one that is asked for, once in a context; a kernel without a `Host` of its own
    loads when it is launched."""
    shaped = "struct Shaped {\n  static tw::cuda::LaunchShape shape() { return {128}; }\n};\nstruct Twice"
    told = OTHER_OP.replace("struct Twice", shaped, 1).replace(
        "static constexpr bool", "using Host = Shaped;\nstatic constexpr bool", 1
    )
    second = OTHER_OP.partition("struct Twice")[2].replace("Twice", "Other").replace("(Other, twice,", "(Other, other,")
    (tmp_path / "cubin").write_bytes(b"\x7fELF")
    library_path = tmp_path / "two.so"
    _compile(tmp_path, f"{told}\nstruct Other{second}", "-shared", "-o", str(library_path), "-ldl")
    library = ctypes.CDLL(str(library_path))
    library.tw_kernels.restype = ctypes.POINTER(abi.KernelEntry)
    count = ctypes.c_int64()
    entries = library.tw_kernels(ctypes.byref(count))
    library.tw_load.argtypes = (ctypes.c_void_p,)
    assert count.value == 2
    with cuda.device().active():
        for index, loads in ((1, 0), (0, 1), (0, 1)):
            assert library.tw_load(ctypes.addressof(entries[index])) == 0
            assert fake_cuda.fake_cuda_calls(b"cuModuleLoadData") == loads
        args = (ctypes.c_int64 * 32)(300)
        assert abi.LAUNCH(entries[0].launch)(ctypes.addressof(args), None, None) == 0
        assert fake_cuda.fake_cuda_calls(b"cuModuleLoadData") == 1
        fake_cuda.fake_cuda_fail(b"cuModuleLoadData", 2)
        assert abi.LAUNCH(entries[1].launch)(ctypes.addressof(args), None, None) == 5 | 2 << 8


def test_a_kernel_of_another_op(fake_cuda: ctypes.CDLL, tmp_path: Path) -> None:
    fake_cuda.fake_cuda_last.restype = ctypes.POINTER(Launch)
    (tmp_path / "cubin").write_bytes(b"\x7fELF")
    made = tmp_path / "twice.so"
    _compile(tmp_path, OTHER_OP, "-shared", "-o", str(made), "-ldl")
    library = ctypes.CDLL(str(made))
    assert library.tw_abi_version() == abi.ABI_VERSION
    library.tw_kernels.restype = ctypes.POINTER(abi.KernelEntry)
    count = ctypes.c_int64()
    entry = library.tw_kernels(ctypes.byref(count))[0]
    assert (count.value, entry.manifest, entry.clear_bytes) == (1, b"{}", 128)
    assert (entry.pack, entry.packed_bytes) == (None, None)
    args = (ctypes.c_int64 * 32)(-1)
    address = ctypes.addressof(args)
    why = ctypes.create_string_buffer(9)
    assert abi.CHECK(entry.check)(address, why, len(why)) == 1
    assert why.value == b"fewer th"  # cut to fit
    assert abi.WORKSPACE(entry.workspace)(address, 1) == 256
    launch = abi.LAUNCH(entry.launch)
    with cuda.device().active():
        for numbers, function in ((300, "twice"), (3000, "twice_many")):
            args[0] = numbers
            assert launch(address, None, None) == 0
            seen = fake_cuda.fake_cuda_last().contents
            assert (list(seen.grid), list(seen.block), seen.cluster) == ([2 * -(-numbers // 256), 3, 1], [128, 1, 1], 2)
            assert bytes(seen.first)[:8] == numbers.to_bytes(8, "little")
            assert fake_cuda.fake_cuda_function().decode() == function
        fake_cuda.fake_cuda_fail(b"cuLaunchKernelEx", 700)
        assert launch(address, None, None) == 5 | 700 << 8
