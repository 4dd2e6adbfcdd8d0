"""One attention kernel in the words of CK Tile's dispatcher: what its rules, profiles and names are about.

`family`, `mode`, `mask` and so on are spelled as there, so that a configuration written for it can be read, and its
rules, which speak of kernel and tile together, can be stated once.  `schedules.py` has the way from our specs to this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tilewright.dataclass import dataclass

Tile = tuple[int, int, int, int, int, int]  # m0, n0, k0, n1, k1, k0max
Nine = tuple[int, int, int, int, int, int, int, int, int]  # three numbers for each of three multiplications
Pads = tuple[bool, bool, bool, bool]  # rows of Q, keys, head size of Q and K, head size of V
Padding = tuple[int, int, int, int]  # likewise; of gradients a head's may be 8: heads are whole eights

FORWARD = ("fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_splitkv_combine", "fwd_appendkv", "batch_prefill")
BACKWARD = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
FAMILIES = (*FORWARD, *BACKWARD)

# Canonical words in the order of their numbers, and what else is understood.
WORDS: Mapping[str, tuple[str, ...]] = {
    "mask": ("no", "top_left", "bottom_right", "generic"),
    "bias": ("no", "bias", "alibi"),
    "qscale": ("no", "pertensor", "blockscale", "kv_blockscale"),
    "rope": ("none", "inter", "half"),
    "kv_memory_layout": ("vectorized", "linear"),
    "kv_lookup_table": ("vllm", "sglang"),
}
ALIASES: Mapping[str, Mapping[str, str]] = {
    "mask": {
        "no_mask": "no", "causal": "top_left", "t": "top_left", "b": "bottom_right",
        "window_generic": "generic", "g": "generic",
    },
    "bias": {"no_bias": "no", "elementwise": "bias", "elementwise_bias": "bias"},
    "qscale": {"no_scale": "no"},
    "rope": {"no": "none", "interleaved": "inter", "half_rotated": "half"},
    "kv_memory_layout": {},
    "kv_lookup_table": {},
    "vlayout": {"row": "r", "row_major": "r", "col": "c", "col_major": "c"},
}  # fmt: skip
_LONG_ROPE = {"inter": "interleaved", "half": "half_rotated"}

# Bytes of an element of Q, K and V.
ELEMENT_BYTES: Mapping[str, int] = {
    "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "bf8": 1, "fp8fp16": 1, "fp8bf16": 1, "fp8fp32": 1, "mxfp8": 1,
}  # fmt: skip
TRANSPOSED_READS = ("qr_async_trload", "qr_async_trload_v3")  # pipelines that turn V while they read it from LDS
FP8 = ("fp8", "bf8", "fp8fp16", "fp8bf16", "fp8fp32")


def canonical(kind: str, word: str) -> str:
    """The word a rule knows; one that is neither known nor an alias stays as it is, for a rule to refuse."""
    return ALIASES[kind].get(word, word)


@dataclass(frozen=True, slots=True)
class Instance:
    """A kernel to be: what it computes, and how."""

    arch: str
    family: str = "fwd"
    data_type: str = "fp16"
    mode: str = "batch"
    vlayout: str = "r"
    hdim_q: int = 128
    hdim_v: int = 128
    mask: str = "no"
    bias: str = "no"
    qscale: str = "no"
    rope: str = "none"
    lse: bool = False
    dropout: bool = False
    logits: bool = False
    paged_kv: bool = False
    fp8_static_quant: bool = False
    skip_min_seqlen_q: bool = False
    sink: bool = False
    dbias: bool = False
    deterministic: bool = False
    dropout_variant: str = "no"  # of gradients: which of their dropouts, and whether it stores what it drew
    kv_memory_layout: str = "vectorized"
    kv_lookup_table: str = "vllm"
    page_size: int = 1
    pipeline: str = "qr"
    tile: tuple[int, ...] = (128, 64, 32, 128, 32, 128)
    wave: tuple[int, ...] = (2, 2, 1, 2, 2, 1, 1, 1, 1)
    warp: tuple[int, ...] = (32, 32, 16, 32, 32, 16, 16, 16, 16)
    padding: Padding = (True, True, True, True)
    block_per_cu: int = 1
    num_wave_groups: int = 1
    max_splits_log2: int = 0
    max_seq_len_q: int = 0
    selection_rank: int = 0
    receipt: int = -1
    alignments: tuple[int, int] = field(default=(0, 0))  # of head sizes without padding; 0: as the tile has them
    tile_tag: str = ""  # of gradients: which of several tiles of a head size

    @property
    def bytes(self) -> int:
        return ELEMENT_BYTES.get(self.data_type, 2)

    @property
    def transposed_reads(self) -> bool:
        return self.pipeline in TRANSPOSED_READS or self.tile_tag == "trload"

    @property
    def store_randval(self) -> bool:
        return self.dropout_variant.endswith("storerandval")

    def config_name(self) -> str:
        """The name a configuration goes by in Python there, also of its library and folder."""
        tile, warp = "x".join(map(str, self.tile[:6])), "x".join(map(str, self.warp[:3]))
        tile += f".{self.tile_tag}" if self.tile_tag else ""
        heads = f"h{self.hdim_q}" + (f"x{self.hdim_v}" if self.hdim_v != self.hdim_q else "")
        pads = "".join(str(int(padded)) for padded in self.padding)
        words = [f"fmha_{self.family}_{self.data_type}_{self.mode}_{heads}_{self.pipeline}_t{tile}_w{warp}_pad{pads}"]
        words.append(f"mask={self.mask}_bias={self.bias}")
        flags = (("lse", self.lse), ("drop", self.dropout), ("logits", self.logits), ("sink", self.sink))
        words += [f"{name}=1" for name, is_set in (*flags, ("skip", self.skip_min_seqlen_q)) if is_set]
        words += [f"qs={self.qscale}"] if self.qscale != "no" else []
        words += ["pkv=1"] if self.paged_kv else []
        words += [f"rope={_LONG_ROPE.get(self.rope, self.rope)}"] if self.rope != "none" else []
        words += [f"ps={self.page_size}"] if self.page_size > 1 else []
        if self.family == "batch_prefill":
            words += [f"kvl={self.kv_memory_layout}"] if self.kv_memory_layout != "vectorized" else []
            words += [f"kvt={self.kv_lookup_table}"] if self.kv_lookup_table != "sglang" else []
        words += [f"{name}=1" for name, is_set in (("det", self.deterministic), ("dbias", self.dbias)) if is_set]
        words += [f"drv={self.dropout_variant}"] if self.dropout_variant != "no" else []
        return "_".join([*words, f"bpc={self.block_per_cu}"])

    def identifier(self) -> str:
        """The key of its run time."""
        flags = (
            f"lse{int(self.lse)}_do{int(self.dropout)}_qs{_number('qscale', self.qscale)}"
            f"_rp{_number('rope', self.rope)}_pkv{int(self.paged_kv)}_sq{int(self.fp8_static_quant)}"
            f"_sk{int(self.skip_min_seqlen_q)}_sink{int(self.sink)}_db{int(self.dbias)}"
            f"_sr{int(self.store_randval)}_det{int(self.deterministic)}"
            f"_km{_number('kv_memory_layout', self.kv_memory_layout)}"
            f"_kl{_number('kv_lookup_table', self.kv_lookup_table)}_ps{self.page_size}"
        )
        aligned = tuple(aligned_to or self.tile[5] for aligned_to in self.alignments)
        shapes = (
            f"t{_x(self.tile[:6])}_w0{_x(self.wave[:3])}_w1{_x(self.wave[3:6])}"
            f"_wt0{_x(self.warp[:3])}_wt1{_x(self.warp[3:6])}_pads{''.join(str(int(pad)) for pad in self.padding)}"
        )
        return (
            f"fmha_{self.family}_{self.data_type}_{self.mode}_v{self.vlayout}_hq{self.hdim_q}_hv{self.hdim_v}"
            f"_p{self.pipeline}_m{_number('mask', self.mask)}_b{_number('bias', self.bias)}_{flags}_{shapes}"
            f"_tr{int(self.transposed_reads)}_bpc{self.block_per_cu}_wg{self.num_wave_groups}"
            f"_ms{self.max_splits_log2}_mq{self.max_seq_len_q}_aq{aligned[0]}_av{aligned[1]}"
            f"_r{self.selection_rank}_rc{self.receipt}"
        )

    def key(self) -> str:
        """The identifier made one to one: what it leaves out is added, without which kernels collide."""
        third = f"_t6{_x(self.tile[6:])}_w2{_x(self.wave[6:])}_wt2{_x(self.warp[6:])}_{self.tile_tag}"
        more = third if self.family in BACKWARD else ""
        return f"{self.identifier()}_lg{int(self.logits)}{more}_{self.arch}"

    def declaration(self) -> str:
        return (
            f"fmha_{self.family}_{self.data_type}_{self.mode}_dq{self.hdim_q}_dv{self.hdim_v}"
            f"_{self.vlayout}_{self.pipeline}"
        )


def _number(kind: str, word: str) -> int:
    return WORDS[kind].index(word) if word in WORDS[kind] else -1


def _x(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))
