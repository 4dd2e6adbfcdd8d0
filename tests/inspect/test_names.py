"""Symbols as names: those our kernels have, the rules of the ABI they rest on, and whatever else comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.inspect.names import readable
from tilewright.inspect.report import Function, Inspection

# What c++filt says of each, without parameters and return type.
NAMES = {
    "_ZN2tw3hip5blockIN19tw_5b11f580016927016ConfigELi0EEEvNS0_6LaunchE": (
        "tw::hip::block<tw_5b11f58001692701::Config, 0>"
    ),
    "_ZN2tw10GemmDirectIN12_GLOBAL__N_16ConfigEE5blockILi1ELi2EEEvlPKjlPKNS_4bf16ElPjl.constprop.0": (
        "tw::GemmDirect<(anonymous namespace)::Config>::block<1, 2> [.constprop.0]"
    ),
    "_ZZN2tw10GemmPackedIN12_GLOBAL__N_16ConfigELb0EE6reduceERK12tw_gemm_argsPflPvlENKUllE_clEl": (
        "tw::GemmPacked<(anonymous namespace)::Config, false>::reduce::{lambda}"
    ),
    "_ZN2tw3cpu4tileIPKfLin3ELm8EEEvv": "tw::cpu::tile<float const*, -3, 8ul>",
    "_Z4copyILN2tw8EpilogueE3EDF16_DF16bEvT0_": "copy<(tw::Epilogue)3, _Float16, std::bfloat16_t>",
    "_ZN2tw4pairISt6vectorIiSaIiEES3_E3getEv": (
        "tw::pair<std::vector<int, std::allocator<int>>, std::vector<int, std::allocator<int>>>::get"
    ),
    "_ZN2tw1aINS_1bINS_1cEEES3_S2_E1dEv": "tw::a<tw::b<tw::c>, tw::b<tw::c>, tw::c>::d",
    "_ZN2tw1aIJifDv4_fA8_hEE1aC2Ev": "tw::a<int, float, float __vector(4), unsigned char [8]>::a::a",
    "_ZNK2tw1aclEi": "tw::a::operator()",
    "_ZL4filei": "file",
}


@pytest.mark.parametrize("symbol", NAMES)
def test_a_symbol_is_read_as_its_author_wrote_it(symbol: str) -> None:
    assert readable(symbol) == NAMES[symbol]


@pytest.mark.parametrize(
    "symbol",
    ["kernel_one", "", "_Z", "_ZN", "_ZN2tw", "_ZN2tw9999999short", "_ZN2twIS9_EE", "_ZN2twILf3f800000EEvv", "_ZZ1av",
     "_Z1aI" + "P" * 500 + "iE", "_ZTV3abc", "_Z1aIXadL_Z1bvEEEvv"],
)  # fmt: skip
def test_what_is_no_such_name_or_needs_more_stays_as_it_is(symbol: str) -> None:
    assert readable(symbol) == symbol


@given(st.text("_ZNSIELKPtwa0123456789ijb.", max_size=40), st.text(max_size=20))
def test_no_symbol_is_too_odd(some: str, other: str) -> None:
    for symbol in (f"_ZN{some}", f"_Z{some}{other}", other):
        assert isinstance(readable(symbol), str)


def test_inspect_shows_names_and_keeps_symbols() -> None:
    symbol = next(iter(NAMES))
    found = Inspection("kernel.co", "amdgpu", "gfx942", 64, (Function(symbol, 64),))
    assert NAMES[symbol] in str(found)
    assert symbol not in str(found)
    (told,) = found.to_dict()["functions"]
    assert (told["name"], told["symbol"]) == (NAMES[symbol], symbol)
