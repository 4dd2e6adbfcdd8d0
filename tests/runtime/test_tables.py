"""Tables on a device are believed, and looked at where the setting `check_tables` asks for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.cuda import toolchain
from tilewright.errors import DeviceError, ProblemError, ToolchainError
from tilewright.runtime import cuda
from tilewright.runtime.device_arrays import DeviceArray

pytestmark = pytest.mark.tools  # a CUDA compiler


@pytest.fixture
def on_device(fake_cuda: ctypes.CDLL) -> Callable[[Any], DeviceArray]:
    try:
        toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}")
    return lambda array: DeviceArray.of(cuda.device(), np.asarray(array))


def test_tables_on_a_device_are_looked_at_where_asked(
    fake_cuda: ctypes.CDLL, on_device: Callable[[Any], DeviceArray]
) -> None:
    q = on_device(np.ones((2, 1, 4, 64), np.float32))
    k, v = (on_device(np.ones((6, 4, 2, 64), np.float32)) for _ in range(2))
    lengths = on_device(np.array([7, 5], np.int32))

    def call(pages: list[list[int]], lengths: DeviceArray = lengths) -> Any:
        table = on_device(np.array(pages, np.int32))
        return tw.attention(q, k, v, block_table=table, seqlens_k=lengths, num_splits=1)

    good, bad = [[0, 1], [2, 3]], [[0, 1], [2, 6]]
    call(bad)  # believed
    with tw.settings.override(check_tables=True):
        for _ in range(2):  # not only the first time
            call(good)
            with pytest.raises(ProblemError, match="block_table holds a number that is out of range") as caught:
                call(bad)
            assert caught.value.rule == "operand-values"
            assert "pages there are" in caught.value.remedy
        call([[0, 1], [2, 3]], on_device(np.array([8, 4], np.int32)))
        call([[0, 1], [2, 99]], on_device(np.array([8, 4], np.int32)))  # an entry that nobody reads
        with pytest.raises(ProblemError, match="seqlens_k"):
            call(good, on_device(np.array([9, 4], np.int32)))
        table, out = on_device(np.array(good, np.int32)), on_device(np.empty((2, 1, 4, 64), np.float32))
        with cuda.device().new_stream() as stream:
            fake_cuda.fake_cuda_capture(stream.handle, 1)
            with pytest.raises(DeviceError, match="block_table cannot be checked") as refused:
                tw.attention(q, k, v, block_table=table, seqlens_k=lengths, num_splits=1, out=out)
            fake_cuda.fake_cuda_capture(stream.handle, 0)
        assert refused.value.rule == "capture-tables"
    call(bad)
