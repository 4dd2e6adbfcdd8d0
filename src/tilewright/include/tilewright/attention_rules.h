// What every attention kernel knows and refuses, whatever its backend: the address of a key in pages, and what is refused.
// Which rows and keys a sequence has and which keys a row sees is in attention_geometry.h.
//
// The Config of a kernel has what its signature says (ops/attention/spec.py):
//   Q, KV, O       element types; O is fp32 in a split kernel
//   Aux            of the bias tensor, or of the tables of rotary embeddings
//   family, mask, bias, pages, lookup, scales, rotary       the enums below
//   masked, softcap, dropout, lse, sink, packed             switches
//   head_qk, head_v   the largest heads it holds; those of a launch are in its arguments
#pragma once
#include <tilewright/attention_args.h>
#include <tilewright/attention_geometry.h>
#include <tilewright/say.h>

namespace tw {

enum class AttentionFamily { forward, split, combine, append };
enum class AttentionPages { none, strided, vectorised };
enum class AttentionLookup { none, table, indices };
enum class AttentionScales { none, tensor, head, block };
enum class AttentionRotary { none, interleaved, half };

// The arguments of a family.
template <AttentionFamily family> struct attention_args_of {
  using type = tw_attention_args;
};
template <> struct attention_args_of<AttentionFamily::combine> {
  using type = tw_attention_combine_args;
};
template <> struct attention_args_of<AttentionFamily::append> {
  using type = tw_attention_append_args;
};

TW_BOTH int64_t pages_of(const tw_attention_pages &p, int64_t sequence) {
  return table_entry(p.indptr, sequence + 1) - table_entry(p.indptr, sequence);
}
TW_BOTH AttentionSequence sequence_of(const tw_attention_args &x, int64_t index) {
  AttentionSequence s = sequence_in_rows(x, index);
  if (x.pages.indptr) {
    const int64_t pages = pages_of(x.pages, index);
    s.keys = pages > 0 ? (pages - 1) * x.pages.size + table_entry(x.pages.last, index) : 0;
  }
  return s;
}

// -- pages -------------------------------------------------------------------------------------------------------------

TW_BOTH int64_t page_of(const tw_attention_pages &p, int64_t sequence, int64_t logical) {
  return table_entry(p.table, (p.indptr ? table_entry(p.indptr, sequence) : sequence * p.stride) + logical);
}
// Where a key's head begins, in elements; and its slot, if that is inside the vectors of a page.
struct KeyPlace {
  int64_t at, page_slot;
};
template <AttentionPages layout> TW_BOTH KeyPlace in_page(const tw_attention_pages &pages,
                                                          const tw_attention_strides &strides, int64_t sequence,
                                                          int64_t key, int64_t head_kv) {
  const int64_t page = page_of(pages, sequence, key / pages.size), slot = key % pages.size;
  const int64_t at = page * strides.batch + head_kv * strides.head;
  return {layout == AttentionPages::strided ? at + slot * strides.row : at, slot};
}
template <AttentionPages layout> TW_BOTH KeyPlace key_place(const tw_attention_args &x,
                                                            const tw_attention_strides &strides,
                                                            const AttentionSequence &s, int64_t key, int64_t head_kv) {
  if constexpr (layout != AttentionPages::none) return in_page<layout>(x.pages, strides, s.index, key, head_kv);
  else return {s.index * strides.batch + (s.first_key + key) * strides.row + head_kv * strides.head, 0};
}
// Where a new key goes in a cache.
template <AttentionPages layout> TW_BOTH KeyPlace cache_place(const tw_attention_append_args &x,
                                                              const tw_attention_strides &strides, int64_t sequence,
                                                              int64_t key, int64_t head_kv) {
  if constexpr (layout != AttentionPages::none) return in_page<layout>(x.pages, strides, sequence, key, head_kv);
  else return {sequence * strides.batch + key * strides.row + head_kv * strides.head, 0};
}
// Whether a cache has such a position, and the rows of the rotary tables for it.  Lengths and page tables in a GPU's memory are
// believed, but a row that would go into memory of somebody else is not written.
template <AttentionPages layout>
TW_BOTH bool cache_has(const tw_attention_append_args &x, int64_t sequence, int64_t key) {
  if (key < 0 || (x.rotary > 0 && key >= x.table_rows)) return false;
  if constexpr (layout == AttentionPages::none) return key < x.keys;
  const int64_t logical = key / x.pages.size;
  if (logical >= (x.pages.indptr ? pages_of(x.pages, sequence) : x.pages.stride)) return false;
  const int64_t page = page_of(x.pages, sequence, logical);
  return page >= 0 && page < x.pages.count;
}
// Element d of a key, and of a value, at such a position.
template <AttentionPages layout, int bytes> TW_BOTH int64_t k_element(const KeyPlace &p, int64_t page_size, int64_t d) {
  constexpr int64_t vec = 16 / bytes;
  if constexpr (layout == AttentionPages::vectorised) return p.at + (d / vec * page_size + p.page_slot) * vec + d % vec;
  else return p.at + d;
}
template <AttentionPages layout, int bytes> TW_BOTH int64_t v_element(const KeyPlace &p, int64_t head_v, int64_t d) {
  constexpr int64_t vec = 16 / bytes;
  if constexpr (layout == AttentionPages::vectorised)
    return p.at + (p.page_slot / vec * head_v + d) * vec + p.page_slot % vec;
  else return p.at + d;
}

TW_BOTH float scale_at(const tw_attention_scales &s, int64_t sequence, int64_t head, int64_t row) {
  if (!s.at) return 1.0f;
  const int64_t block = s.block_rows > 0 ? row / s.block_rows * s.block : 0;
  return static_cast<const float *>(s.at)[sequence * s.batch + head * s.head + block];
}

// -- what is refused ---------------------------------------------------------------------------------------------------

template <class Config> Answer broken_pages(const tw_attention_pages &p) {
  if (Config::pages == AttentionPages::none) return {};
  if (p.size < 1 || p.count < 0) return {TW_BAD_ARGS, "a page has no slots, or there are fewer pages than none"};
  if (Config::lookup == AttentionLookup::table && p.stride < 0)
    return {TW_BAD_ARGS, "the stride of the page table is negative"};
  if (Config::pages == AttentionPages::vectorised && p.size % (16 / int64_t(sizeof(typename Config::KV))))
    return {TW_DIVISIBILITY, "slots of a vectorised page are no multiple of 16 bytes of elements"};
  return {};
}

template <class Config> Answer broken_attention(const tw_attention_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_attention_args &x = *args;
  if (x.batch < 0 || x.rows < 0 || x.keys < 0) return {TW_BAD_ARGS, "a size is negative"};
  if (x.heads_q < 1 || x.heads_kv < 1 || x.heads_q % x.heads_kv)
    return {TW_BAD_ARGS, "the query heads are no multiple of the heads of keys"};
  if (x.head_qk < 1 || x.head_v < 1) return {TW_BAD_ARGS, "a head has no elements"};
  if (x.head_qk > Config::head_qk || x.head_v > Config::head_v)
    return {TW_LIMIT, "a head is larger than those the kernel is made for"};
  if (x.splits < 1 || (Config::family == AttentionFamily::forward && x.splits != 1))
    return {TW_BAD_ARGS, "the number of splits is not one the kernel takes"};
  if (Config::mask == AttentionMask::none && (window_bounded(x) || x.sink_keys > 0))
    return {TW_BAD_ARGS, "a window is given and the kernel has none"};
  if (Config::mask == AttentionMask::window && x.sink_keys > 0)
    return {TW_BAD_ARGS, "sink keys are given and the kernel has none"};
  if (x.sink_keys < 0) return {TW_BAD_ARGS, "the number of sink keys is negative"};
  if (!(x.softcap >= 0) || (!Config::softcap && x.softcap != 0)) return {TW_BAD_ARGS, "the soft cap is not one of it"};
  if (!(x.dropout >= 0 && x.dropout < 1)) return {TW_BAD_ARGS, "the chance of dropout is not in 0 to 1"};
  return broken_pages<Config>(x.pages);
}

template <class Config> Answer broken_combine(const tw_attention_combine_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_attention_combine_args &x = *args;
  if (x.batch < 0 || x.rows < 0 || x.heads_q < 1) return {TW_BAD_ARGS, "a size is negative, or there is no head"};
  if (x.head_v < 1 || x.splits < 1) return {TW_BAD_ARGS, "a head has no elements, or there is no split"};
  if (x.head_v > Config::head_v) return {TW_LIMIT, "a head is larger than those the kernel is made for"};
  return {};
}

template <class Config> Answer broken_append(const tw_attention_append_args *args) {
  if (!args) return {TW_BAD_ARGS, "args is null"};
  const tw_attention_append_args &x = *args;
  if (x.batch < 0 || x.rows < 0 || x.keys < 0) return {TW_BAD_ARGS, "a size is negative"};
  if (x.heads_q < 1 || x.heads_kv < 1 || x.head_qk < 1 || x.head_v < 1)
    return {TW_BAD_ARGS, "there is no head, or none of its elements"};
  if (x.head_qk > Config::head_qk || x.head_v > Config::head_v)
    return {TW_LIMIT, "a head is larger than those the kernel is made for"};
  if (x.rotary < 0 || x.rotary % 2 || x.rotary > x.head_qk)
    return {TW_BAD_ARGS, "the rotary elements are not pairs of a head's"};
  if (Config::rotary == AttentionRotary::none && x.rotary) return {TW_BAD_ARGS, "the kernel has no rotary embedding"};
  return broken_pages<Config>(x.pages);
}

// The same for whichever family.
template <class Config> Answer broken_of(const typename attention_args_of<Config::family>::type *args) {
  if constexpr (Config::family == AttentionFamily::combine) return broken_combine<Config>(args);
  else if constexpr (Config::family == AttentionFamily::append) return broken_append<Config>(args);
  else return broken_attention<Config>(args);
}

template <class Config> int wrong_pages(const tw_attention_pages &p, int64_t sequence, int64_t keys, int table_at) {
  for (int64_t logical = 0; logical * p.size < keys; ++logical) {
    const int64_t page = page_of(p, sequence, logical);
    if (page < 0 || page >= p.count) return table_at;
  }
  return TW_OK;
}
template <class Config> int wrong_tables(const tw_attention_args &x) {
  using A = tw_attention_args;
  if (const int wrong = wrong_rows(x.starts_q, x.lengths_q, x.batch, x.rows, x.total_rows, TW_DATA_IN(A, starts_q),
                                   TW_DATA_IN(A, lengths_q)))
    return wrong;
  if (Config::pages == AttentionPages::none)
    return wrong_rows(x.starts_k, x.lengths_k, x.batch, x.keys, x.total_keys, TW_DATA_IN(A, starts_k),
                      TW_DATA_IN(A, lengths_k));
  for (int64_t b = 0; b < x.batch; ++b) {
    if (x.pages.indptr) {
      const int64_t first = table_entry(x.pages.indptr, b), next = table_entry(x.pages.indptr, b + 1);
      if (first < 0 || next < first || next > x.pages.stride) return TW_DATA_IN(A, pages.indptr);
      const int64_t last = table_entry(x.pages.last, b);
      if (next > first && (last < 1 || last > x.pages.size)) return TW_DATA_IN(A, pages.last);
    }
    const int64_t keys = sequence_of(x, b).keys;
    if (keys < 0 || keys > x.keys) return x.pages.indptr ? TW_DATA_IN(A, pages.indptr) : TW_DATA_IN(A, lengths_k);
    if (const int wrong = wrong_pages<Config>(x.pages, b, keys, TW_DATA_IN(A, pages.table))) return wrong;
  }
  return TW_OK;
}

// Slots low to high of the page at `logical` of a sequence that new rows go to.
struct NewSlots {
  int64_t page, low, high;
};
inline NewSlots new_slots(const tw_attention_append_args &x, int64_t sequence, int64_t logical) {
  const int64_t old = table_entry(x.lengths, sequence), start = logical * x.pages.size;
  const int64_t end = old + (x.lengths_new ? table_entry(x.lengths_new, sequence) : x.rows) - start;
  return {page_of(x.pages, sequence, logical), old > start ? old - start : 0, end < x.pages.size ? end : x.pages.size};
}
// Whether new rows before those of the page at `logical` of `sequence` go to slots of its.
inline bool written_before(const tw_attention_append_args &x, int64_t sequence, int64_t logical) {
  const NewSlots mine = new_slots(x, sequence, logical);
  for (int64_t b = 0; b <= sequence; ++b) {
    const int64_t old = table_entry(x.lengths, b), more = x.lengths_new ? table_entry(x.lengths_new, b) : x.rows;
    for (int64_t at = old / x.pages.size; at * x.pages.size < old + more; ++at) {
      if (b == sequence && at >= logical) break;
      const NewSlots other = new_slots(x, b, at);
      if (other.page == mine.page && other.low < mine.high && mine.low < other.high) return true;
    }
  }
  return false;
}

// Of an append: old and new rows fit, their pages are there, and no two rows go to one slot.  Pages are remembered by a
// few bits: only where one seems to repeat are all before it compared.
template <class Config> int wrong_places(const tw_attention_append_args &x) {
  using A = tw_attention_append_args;
  constexpr int64_t bits = 1 << 14;
  uint64_t seen[Config::pages == AttentionPages::none ? 1 : bits / 64] = {};
  for (int64_t b = 0; b < x.batch; ++b) {
    const int64_t old = table_entry(x.lengths, b), more = x.lengths_new ? table_entry(x.lengths_new, b) : x.rows;
    if (more < 0 || more > x.rows) return TW_DATA_IN(A, lengths_new);
    if (old < 0 || old + more > x.keys || (x.rotary && old + more > x.table_rows)) return TW_DATA_IN(A, lengths);
    if (Config::pages == AttentionPages::none) continue;
    for (int64_t page = old / x.pages.size; page * x.pages.size < old + more; ++page) {
      const int64_t found = page_of(x.pages, b, page);
      if (found < 0 || found >= x.pages.count) return TW_DATA_IN(A, pages.table);
      uint64_t &word = seen[found % bits / 64];
      const uint64_t bit = uint64_t(1) << found % 64;
      if ((word & bit) && written_before(x, b, page)) return TW_DATA_IN(A, pages.table);
      word |= bit;
    }
  }
  return TW_OK;
}

// Of a combination: the tables of its rows.
template <class Config> int wrong_sequences(const tw_attention_combine_args &x) {
  using A = tw_attention_combine_args;
  return wrong_rows(x.starts_q, x.lengths_q, x.batch, x.rows, x.total_rows, TW_DATA_IN(A, starts_q),
                    TW_DATA_IN(A, lengths_q));
}
template <class Config> int wrong_of(const typename attention_args_of<Config::family>::type &x) {
  if constexpr (Config::family == AttentionFamily::combine) return wrong_sequences<Config>(x);
  else if constexpr (Config::family == AttentionFamily::append) return wrong_places<Config>(x);
  else return wrong_tables<Config>(x);
}

}  // namespace tw
