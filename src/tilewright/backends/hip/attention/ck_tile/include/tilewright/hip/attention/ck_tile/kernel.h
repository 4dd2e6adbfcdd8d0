// Attention kernels of CK Tile behind the C ABI: what they refuse, with a sentence, and how their launches are made.
//
// Nothing here depends on CK Tile.  A Config says beside what its signature has (attention_rules.h):
//   Element            the device's type of Q, K and V
//   tile_*, threads    the block; pad_rows, pad_keys, pad_head_qk, pad_head_v: where it has edge code
//   loaded             whether K comes through registers: else it is copied to LDS, and heads are whole loads
//   route              which of CK Tile's kernels it is
//   by_turns           whether two groups of waves take turns (v3)
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/export.h>
#include <tilewright/hip/attention/ck_tile/launch.h>
#include <tilewright/hip/attention/ck_tile/limits.h>
#include <tilewright/gpu/types.h>
#include <tilewright/select/attention_args.h>

#include <type_traits>

// The C++ type of an element to the device, its size to the host.
#ifndef TW_ELEMENT
#if defined(__HIP_DEVICE_COMPILE__)
#define TW_ELEMENT(Type, bytes) Type
#else
#define TW_ELEMENT(Type, bytes) tw::hip::AttentionElement<bytes>
#endif
#endif

namespace tw::hip {

template <int bytes> struct AttentionElement {
  char at[bytes];
};

#if defined(__HIP_DEVICE_COMPILE__)
template <class Config> constexpr int attention_occupancy = AttentionDevice<Config>::Kernel::kBlockPerCu;
#else
template <class Config> constexpr int attention_occupancy = 1;
#endif

template <class Config> __global__ void __launch_bounds__(Config::threads, attention_occupancy<Config>)
    attention_block(const AttentionLaunch x) {
#if defined(__HIP_DEVICE_COMPILE__)
  using Kernel = typename AttentionDevice<Config>::Kernel;
  static_assert(int(Kernel::kBlockSize) == Config::threads, "a block is not the waves that legality has");
  if constexpr (Config::lds_bytes > 0)
    static_assert(int(Kernel::GetSmemSize()) == Config::lds_bytes, "LDS is not what legality worked out");
  Kernel{}(AttentionDevice<Config>::arguments(x));
#endif
}

// Sizes and alignments that several kernels require, and what is alike in all: a check of arguments by the limits that
// selection uses too (limits.h), and by `broken` for what a problem does not contain.
template <class Kernel, class Config, class Limits, class Args> struct CkTileKernel : PlainKernel {
  static constexpr int64_t most = selection::hip_attention::ck_tile::kMost;
  static constexpr int64_t most_bytes = selection::hip_attention::ck_tile::kMostBytes;
  static constexpr int width = int(selection::hip_attention::ck_tile::kWidth);

  static int check(const void *args, char *why, size_t size) {
    const Args *x = static_cast<const Args *>(args);
    const Answer common = broken_of<Config>(x);
    if (common.code || x->batch == 0 || x->rows == 0) return say(common, why, size);
    const int refused = selection::check_limits<Config, Limits>(*x, why, size);
    return refused ? refused : say(Kernel::broken(*x), why, size);
  }
  static int64_t workspace(const void *, int64_t) { return 0; }

  static bool fits(const tw_attention_strides &s) {
    return s.batch >= 0 && s.row >= 0 && s.head >= 0 && s.batch <= most && s.row <= most && s.head <= most;
  }
  static bool whole(const tw_attention_strides &s) { return !(s.batch % width || s.row % width || s.head % width); }
  static bool apart(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 != 0; }
  static Steps steps(const tw_attention_strides &s) { return {int(s.row), int(s.head), int(s.batch)}; }
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

  static int start(AttentionLaunch &one, dim3 grid, void *stream) {
    void *words[] = {&one};
    const auto kernel = reinterpret_cast<const void *>(&attention_block<Config>);
    const hipError_t error =
        hipLaunchKernel(kernel, grid, dim3(Config::threads), words, 0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }
};

// forward and split, by table and by indices.
template <class Config, class Limits> struct CkTileAttention
    : CkTileKernel<CkTileAttention<Config, Limits>, Config, Limits, tw_attention_args> {
  using Like = CkTileKernel<CkTileAttention, Config, Limits, tw_attention_args>;
  using Like::steps, Like::most, Like::most_bytes;
  static constexpr bool split = Config::route == AttentionRoute::split, pool = Config::route == AttentionRoute::prefill;
  static constexpr int64_t bytes = sizeof(typename Config::Element);
  static constexpr bool narrow = bytes == 1;   // fp8
  static constexpr double kMostHidden = 0.69;  // the least number times it, as exponent of two, is still one

  // What CK Tile's kernels have no argument for.
  static Answer broken_features(const tw_attention_args &x) {
    if (x.sink || x.mask) return {TW_LIMIT, "the kernel knows no sink logits and no boolean mask"};
    if (Config::packed != (x.starts_q != nullptr))
      return {TW_BAD_ARGS,
              Config::packed ? "the kernel takes packed rows" : "rows are packed and the kernel takes none"};
    if (Config::packed && !paged<Config> && !x.starts_k) return {TW_BAD_ARGS, "rows are packed and keys are not"};
    if (Config::by_turns && windowed<Config> && x.scale > kMostHidden)
      return {TW_LIMIT, "the scale is over 0.69: the kernel's least score, scaled, is no number"};
    if (!(x.scale > 0)) return {TW_LIMIT, "the scale is not positive: the largest score is found before it is scaled"};
    if (!Config::dropout && x.dropout != 0) return {TW_LIMIT, "the kernel drops nothing"};
    if (Config::bias == AttentionBias::tensor && (x.bias_strides[3] != 1 && x.keys > 1))
      return {TW_LIMIT, "the bias of neighbouring keys does not lie side by side"};
    if (Config::bias == AttentionBias::alibi && x.alibi_head != 1 && x.heads_q > 1)
      return {TW_LIMIT, "slopes of neighbouring heads do not lie side by side"};
    if (!narrow && (x.q_scales.at || x.k_scales.at || x.v_scales.at)) return {TW_LIMIT, "the kernel knows no scales"};
    if (x.q_scales.block_rows > 0 || x.k_scales.block_rows > 0 || x.v_scales.block_rows > 0)
      return {TW_LIMIT, "rows of a head have different scales"};
    return {};
  }

  // Whole loads of what lies between splits, and of a bias.
  static constexpr int width = 16 / int(bytes);
  static Answer broken_alignment(const tw_attention_args &x) {
    if (split && (!Config::loaded || !Config::pad_head_v) && x.o_split % width)
      return {TW_ALIGNMENT, "parts are not a multiple of 16 bytes apart"};
    if (Config::bias == AttentionBias::tensor && !Config::pad_keys)
      if (Like::apart(x.bias) || x.bias_strides[0] % width || x.bias_strides[1] % width || x.bias_strides[2] % width)
        return {TW_ALIGNMENT, "a stride or the address of the bias is no multiple of 16 bytes"};
    return {};
  }

  static Answer broken_spans(const tw_attention_args &x) {
    const bool biased = Config::bias == AttentionBias::tensor;
    if (x.lse_batch > most || x.lse_head > most || x.o_split > most || x.lse_split > most ||
        (biased && (x.bias_strides[0] > most || x.bias_strides[1] > most || x.bias_strides[2] > most)))
      return {TW_LIMIT, "a size or a stride is 2^31 elements or more"};
    if (biased && double(x.rows + Config::tile_m0) * x.bias_strides[2] * bytes >= double(most_bytes))
      return {TW_LIMIT, "one head of the bias spans 2 GiB or more"};
    if (split && double(x.splits) * x.o_split * 4 >= double(most_bytes))
      return {TW_LIMIT, "the parts span 2 GiB or more"};
    return {};
  }

  static Answer broken(const tw_attention_args &x) {
    Answer (*const rules[])(const tw_attention_args &) = {broken_features, broken_alignment, broken_spans};
    for (auto *rule : rules)
      if (const Answer found = rule(x); found.code) return found;
    return {};
  }

  static int64_t tiles(const tw_attention_args &x) { return Like::ceil_div(x.rows, Config::tile_m0); }

  // A window as CK Tile has it: unbounded is negative.  It takes a row that is unbounded to the left for causal, and
  // then measures ALiBi from the first key: the same weights, another lse.
  static void set_window(AttentionLaunch &one, const tw_attention_args &x) {
    const int64_t all = x.rows + x.keys;
    const auto bounded = [all](int64_t side) { return int(side < 0 ? -1 : side < all ? side : all); };
    one.window_left = bounded(x.window_left), one.window_right = bounded(x.window_right);
    if (Config::bias == AttentionBias::alibi && one.window_left < 0) one.window_left = int(all);
    one.top_left = !x.bottom_right;
  }
  static void set_dropout(AttentionLaunch &one, const tw_attention_args &x) {
    if (!Config::dropout) return;
    one.seed = whole_of(x.seed), one.offset = whole_of(x.offset);
    one.seed_at = static_cast<const uint64_t *>(x.seed_at);
    one.drop_threshold = float(Dropout::of(x.dropout, 0, 0).threshold);
  }
  static void set_bias(AttentionLaunch &one, const tw_attention_args &x) {
    if (Config::bias == AttentionBias::tensor) {
      one.bias = x.bias;
      one.bias_steps = {int(x.bias_strides[2]), int(x.bias_strides[1]), int(x.bias_strides[0])};
    } else if (Config::bias == AttentionBias::alibi) {
      one.bias = x.alibi, one.bias_steps.batch = int(x.alibi_batch);
    }
  }
  static void set_tables(AttentionLaunch &one, const tw_attention_args &x) {
    one.starts_q = static_cast<const int *>(x.starts_q);
    // Of keys in pages nothing is read from it, but it is looked at.
    one.starts_k = static_cast<const int *>(x.starts_k ? x.starts_k : x.starts_q);
    one.lengths_k = static_cast<const int *>(x.lengths_k);
    one.pages = static_cast<const int *>(x.pages.table), one.page_starts = static_cast<const int *>(x.pages.indptr);
    one.pages_step = int(x.pages.stride), one.page_size = int(x.pages.size), one.page_count = int(x.pages.count);
    if (pool) one.k_steps.row = one.k_steps.batch, one.v_steps.row = one.v_steps.batch;  // one slot a page
  }

  static AttentionLaunch launch_of(const tw_attention_args &x) {
    constexpr double log2e = 1.4426950408889634;
    AttentionLaunch one{};
    one.q = x.q, one.k = x.k, one.v = x.v, one.o = x.o, one.lse = static_cast<float *>(x.lse);
    one.q_steps = steps(x.q_strides), one.k_steps = steps(x.k_strides);
    one.v_steps = steps(x.v_strides), one.o_steps = steps(x.o_strides);
    one.lse_steps = {1, int(x.lse_head), int(x.lse_batch)};
    one.o_split = int(x.o_split), one.lse_split = int(x.lse_split), one.splits = int(x.splits);
    one.batch = int(x.batch), one.heads = int(x.heads_q), one.group = int(x.heads_q / x.heads_kv);
    one.rows = int(x.rows), one.keys = int(x.keys), one.head_qk = int(x.head_qk), one.head_v = int(x.head_v);
    one.scale = float(x.scale * log2e);
    if (Config::softcap) one.softcap = float(x.softcap), one.softcap_inverse = float(1 / x.softcap);
    if (narrow) one.q_scales = x.q_scales, one.k_scales = x.k_scales, one.v_scales = x.v_scales;
    set_dropout(one, x);
    set_window(one, x);
    set_bias(one, x);
    set_tables(one, x);
    return one;
  }

  // Blocks lie as each of CK Tile's kernels counts them.
  static dim3 grid_of(const tw_attention_args &x) {
    const auto rows = unsigned(tiles(x)), heads = unsigned(x.heads_q), batch = unsigned(x.batch);
    if (split) return dim3(rows * unsigned(x.splits), heads, batch);
    if (Config::by_turns) return dim3(heads, rows, batch);
    if (pool || (Config::packed && x.lengths_k)) return dim3(heads, batch, rows);
    return Config::route == AttentionRoute::paged ? dim3(rows, heads, batch) : dim3(heads, rows, batch);
  }

  static int launch(const void *args, void *, void *stream) {
    if (const int code = Like::check(args, nullptr, 0)) return code;
    auto &x = *static_cast<const tw_attention_args *>(args);
    if (no_rows(x)) return TW_OK;
    AttentionLaunch one = launch_of(x);
    return Like::start(one, grid_of(x), stream);
  }
};

template <class Config, class Limits> struct CkTileCombine
    : CkTileKernel<CkTileCombine<Config, Limits>, Config, Limits, tw_attention_combine_args> {
  using Like = CkTileKernel<CkTileCombine, Config, Limits, tw_attention_combine_args>;
  using Like::steps, Like::most, Like::most_bytes, Like::width, Like::ceil_div;
  static constexpr int rows_a_block = int(selection::hip_attention::ck_tile::kCombineRows);

  // Of what lies in the workspace between stages, and of results.
  static Answer broken(const tw_attention_combine_args &x) {
    if (Config::packed != (x.starts_q != nullptr))
      return {TW_BAD_ARGS,
              Config::packed ? "the kernel takes packed rows" : "rows are packed and the kernel takes none"};
    if (!Config::pad_head_v && (!Like::whole(x.part_strides) || x.part_split % width || Like::apart(x.parts)))
      return {TW_ALIGNMENT, "a stride or the address of the parts is no multiple of 16 bytes"};
    if (!Like::fits(x.part_strides) || !Like::fits(x.o_strides) || x.part_split > most || x.part_lse_split > most ||
        x.part_lse_batch > most || x.part_lse_head > most || x.lse_batch > most || x.lse_head > most || x.rows > most)
      return {TW_LIMIT, "a size or a stride is 2^31 elements or more"};
    const double parts = double(x.splits + 4) * x.part_split + double(x.rows + rows_a_block) * x.part_strides.row;
    if (parts * 4 >= double(most_bytes) || double(x.rows + rows_a_block) * x.o_strides.row * 4 >= double(most_bytes))
      return {TW_LIMIT, "one head of all splits, or of o, spans 2 GiB or more"};
    return {};
  }

  static int launch(const void *args, void *, void *stream) {
    if (const int code = Like::check(args, nullptr, 0)) return code;
    auto &x = *static_cast<const tw_attention_combine_args *>(args);
    if (no_rows(x)) return TW_OK;
    AttentionLaunch one{};
    one.parts = static_cast<const float *>(x.parts), one.parts_lse = static_cast<const float *>(x.part_lse);
    one.o = x.o, one.lse = static_cast<float *>(x.lse);
    one.parts_steps = steps(x.part_strides), one.o_steps = steps(x.o_strides);
    one.parts_lse_steps = {1, int(x.part_lse_head), int(x.part_lse_batch)};
    one.lse_steps = {1, int(x.lse_head), int(x.lse_batch)};
    one.parts_split = int(x.part_split), one.parts_lse_split = int(x.part_lse_split);
    one.batch = int(x.batch), one.heads = int(x.heads_q), one.rows = int(x.rows), one.head_v = int(x.head_v);
    one.splits = int(x.splits), one.starts_q = static_cast<const int *>(x.starts_q);
    const int64_t across = ceil_div(x.head_v, Config::tile_n1);
    const dim3 grid(unsigned(ceil_div(x.rows, rows_a_block) * across), unsigned(x.heads_q), unsigned(x.batch));
    return Like::start(one, grid, stream);
  }
};

// Rows of q to where they are rotated: CK Tile rotates them in place.  A block a row, a lane a load.
struct RowCopy {
  const char *from;
  char *to;
  tw_attention_strides from_bytes, to_bytes;
  int loads;  // of 16 bytes, of a head
};
template <class Config> __global__ void __launch_bounds__(64) attention_copy(const RowCopy x) {
#if defined(__HIP_DEVICE_COMPILE__)
  const int64_t row = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const char *from = x.from + sequence * x.from_bytes.batch + row * x.from_bytes.row + head * x.from_bytes.head;
  char *to = x.to + sequence * x.to_bytes.batch + row * x.to_bytes.row + head * x.to_bytes.head;
  for (int at = threadIdx.x; at < x.loads; at += 64)
    reinterpret_cast<uint4 *>(to)[at] = reinterpret_cast<const uint4 *>(from)[at];
#endif
}

template <class Config, class Limits> struct CkTileAppend
    : CkTileKernel<CkTileAppend<Config, Limits>, Config, Limits, tw_attention_append_args> {
  using Like = CkTileKernel<CkTileAppend, Config, Limits, tw_attention_append_args>;
  using Like::steps, Like::most, Like::most_bytes, Like::ceil_div, Like::whole, Like::apart, Like::fits;
  static constexpr int64_t bytes = sizeof(typename Config::Element);

  // Of new rows, tables of rotary embeddings, and how far operands reach.
  static Answer broken(const tw_attention_append_args &x) {
    if (x.q && x.heads_q % x.heads_kv) return {TW_BAD_ARGS, "the query heads are not a multiple of the heads of keys"};
    if (Config::rotary != AttentionRotary::none && (x.table_stride * 2 != x.rotary || apart(x.cos) || apart(x.sin)))
      return {TW_ALIGNMENT, "tables of rotary embeddings are no dense rows of whole loads"};
    if (!whole(x.k_strides) || !whole(x.v_strides) || apart(x.k) || apart(x.v) || (x.q && !whole(x.q_out_strides)))
      return {TW_ALIGNMENT, "a stride or an address of new rows is no multiple of 16 bytes"};
    return broken_spans(x);
  }
  static Answer broken_spans(const tw_attention_append_args &x) {
    if (!fits(x.k_strides) || !fits(x.v_strides) || !fits(x.cache_k_strides) || !fits(x.cache_v_strides) ||
        (x.q && (!fits(x.q_strides) || !fits(x.q_out_strides))) || x.rows > most || x.keys > most ||
        x.table_rows > most)
      return {TW_LIMIT, "a size or a stride is 2^31 elements or more"};
    const double rows = double(x.rows + Config::tile_m0), keys = double((paged<Config> ? x.pages.size : x.keys) + 64);
    if (keys * x.cache_k_strides.row * bytes >= double(most_bytes) ||
        keys * x.cache_v_strides.row * bytes >= double(most_bytes) ||
        rows * x.k_strides.row * bytes >= double(most_bytes) || rows * x.v_strides.row * bytes >= double(most_bytes) ||
        (x.q && rows * x.q_out_strides.row * bytes >= double(most_bytes)) ||
        double(x.table_rows) * x.rotary >= double(most_bytes))
      return {TW_LIMIT, "one head of an operand spans 2 GiB or more"};
    return {};
  }

  static tw_attention_strides in_bytes(const tw_attention_strides &s) {
    return {s.batch * bytes, s.row * bytes, s.head * bytes};
  }
  static int copy_rows(const tw_attention_append_args &x, void *stream) {
    RowCopy one{static_cast<const char *>(x.q), static_cast<char *>(x.q_out), in_bytes(x.q_strides),
                in_bytes(x.q_out_strides), int(x.head_qk * bytes / 16)};
    void *words[] = {&one};
    const auto kernel = reinterpret_cast<const void *>(&attention_copy<Config>);
    const dim3 grid(unsigned(x.rows), unsigned(x.heads_q), unsigned(x.batch));
    const hipError_t error = hipLaunchKernel(kernel, grid, dim3(64), words, 0, static_cast<hipStream_t>(stream));
    return error == hipSuccess ? TW_OK : TW_DEVICE | int(error) << 8;
  }

  static int launch(const void *args, void *, void *stream) {
    if (const int code = Like::check(args, nullptr, 0)) return code;
    auto &x = *static_cast<const tw_attention_append_args *>(args);
    if (x.batch == 0 || x.rows == 0) return TW_OK;
    if (x.q && x.q_out != x.q)
      if (const int code = copy_rows(x, stream); code != TW_OK) return code;
    AttentionLaunch one{};
    // Without q there is a block a head of keys; with it, one a head of q: those that share a head write the same.
    const int64_t heads = x.q ? x.heads_q : x.heads_kv;
    one.q = x.q_out, one.k = x.cache_k, one.v = x.cache_v, one.new_k = x.k, one.new_v = x.v;
    one.q_steps = steps(x.q_out_strides), one.k_steps = steps(x.cache_k_strides),
    one.v_steps = steps(x.cache_v_strides);
    one.new_k_steps = steps(x.k_strides), one.new_v_steps = steps(x.v_strides);
    one.lengths_k = static_cast<const int *>(x.lengths);
    one.batch = int(x.batch), one.heads = int(heads), one.group = int(heads / x.heads_kv);
    one.rows = x.q ? int(x.rows) : 0, one.new_keys = int(x.rows);
    one.head_qk = int(x.head_qk), one.head_v = int(x.head_v);
    one.cos = x.cos, one.sin = x.sin, one.rotary = int(x.rotary);
    one.pages = static_cast<const int *>(x.pages.table);
    one.pages_step = int(x.pages.stride), one.page_size = int(x.pages.size);
    const int64_t blocks = ceil_div(x.rows, Config::tile_n0 < Config::tile_m0 ? Config::tile_n0 : Config::tile_m0);
    return Like::start(one, dim3(unsigned(blocks), unsigned(heads), unsigned(x.batch)), stream);
  }
};

template <class Config, class Limits> using CkTileAttentionKernel =
    std::conditional_t<Config::route == AttentionRoute::combine, CkTileCombine<Config, Limits>,
                       std::conditional_t<Config::route == AttentionRoute::append, CkTileAppend<Config, Limits>,
                                          CkTileAttention<Config, Limits>>>;

}  // namespace tw::hip
