"""What `tilewright doctor` says about NVIDIA's driver and GPUs, over a driver made for tests."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tilewright import settings
from tilewright.backends.cuda import driver
from tilewright.backends.cuda.doctor import devices
from tilewright.backends.findings import Finding


def found() -> dict[str, Finding]:
    driver.forget()
    return {one.what: one for one in devices()}


def test_gpus_are_shown(fake_cuda: ctypes.CDLL) -> None:
    fake_cuda.fake_cuda_devices(2, 90)
    said = found()
    assert said["NVIDIA driver"].ok
    assert "CUDA" in said["NVIDIA driver"].text
    assert said["NVIDIA GPU 0"].ok
    assert said["NVIDIA GPU 1"].ok
    assert "sm_90a" in said["NVIDIA GPU 0"].text


def test_a_gpu_without_kernels_is_named(fake_cuda: ctypes.CDLL) -> None:
    fake_cuda.fake_cuda_devices(1, 70)
    one = found()["NVIDIA GPU 0"]
    assert one.ok is False
    assert "sm_70" in one.text
    assert "no kernels for it" in one.text


def test_why_there_is_none(fake_cuda: ctypes.CDLL, tmp_path: Path) -> None:
    fake_cuda.fake_cuda_devices(0, 90)
    one = found()["NVIDIA driver"]
    assert one.ok is False
    assert "no device" in one.text
    assert "remedy" in one.text
    fake_cuda.fake_cuda_reset()
    fake_cuda.fake_cuda_version(12010)
    assert "update the driver" in found()["NVIDIA driver"].text
    with settings.override(cuda_library=str(tmp_path / "libcuda.so.1")):
        one = found()["NVIDIA driver"]
    assert one.ok is None
    assert "TILEWRIGHT_CUDA_LIBRARY" in one.text
    driver.forget()
