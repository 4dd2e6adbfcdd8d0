// How rows, keys and values come into shared memory in the mma pipeline of attention.
#pragma once
#include <tilewright/cuda/attention/work_items.h>
#include <tilewright/cuda/attention/mma/shape.h>
#include <tilewright/cuda/copies/copies.h>
#include <tilewright/cuda/primitives/wgmma.h>

#ifdef TW_ON_GPU
namespace tw {

TW_GPU int within_piece(int bytes) { return bytes < 0 ? 0 : bytes > 16 ? 16 : bytes; }

// 16 bytes of elements that lie anywhere; zeros behind the last.
template <class T> TW_GPU Word16 gather_piece(const T *from, int count) {
  constexpr int each = 4 / int(sizeof(T));
  Word16 made{};
#pragma unroll
  for (int i = 0; i < 4 * each; ++i)
    if (i < count) made.w[i / each] |= uint32_t(from[i].bits) << (8 * int(sizeof(T)) * (i % each));
  return made;
}

// Tiles of keys and values of one item; all threads of the block come along.
template <class S> struct MmaProducer {
  using KV = typename S::KV;
  const AttentionMmaArgs &x;
  const AttentionItem &item;
  int head;  // of keys

  TW_GPU void keys(char *to, int key) const {
    const tw_attention_args &a = x.ws.x;
    rows<S::D, S::k_pitch>(to, key, a.k, a.k_strides, int(a.head_qk));
  }
  TW_GPU void values(char *to, int key) const {
    const tw_attention_args &a = x.ws.x;
    if constexpr (S::transposed) columns(to, key);
    else rows<S::DV, S::v_pitch>(to, key, a.v, a.v_strides, int(a.head_v));
  }

 private:
  // Where a key (or the first of a vector of them) lies, in elements; nowhere: in a page that does not exist.
  static constexpr int64_t nowhere = -(int64_t(1) << 62);
  TW_GPU int64_t place(int key, const tw_attention_strides &at, int &slot) const {
    const tw_attention_args &a = x.ws.x;
    if constexpr (S::Paged) {
      const int logical = x.by_page.quotient(key);
      slot = key - logical * int(a.pages.size);
      const int64_t page = page_of(a.pages, item.sequence, logical);
      return uint64_t(page) < uint64_t(a.pages.count) ? page * at.batch + head * at.head : nowhere;
    } else {
      return item.sequence * at.batch + (item.first_key + int64_t(key)) * at.row + head * at.head;
    }
  }
  // Lanes side by side have pieces of a row side by side, and keep to them.
  template <int Columns, int Pitch>
  TW_GPU void rows(char *to, int key, const void *base, const tw_attention_strides &at, int count) const {
    constexpr int pieces = Columns * S::size / 16, vec = 16 / S::size;
    constexpr int lanes = pieces > 16 ? 32 : pieces > 8 ? 16 : pieces > 4 ? 8 : pieces > 2 ? 4 : 2;
    constexpr int turns = (pieces + lanes - 1) / lanes, lines = S::threads / lanes;
    constexpr int each = (S::BN + lines - 1) / lines, at_once = each < 4 ? each : 4;
    const KV *from = static_cast<const KV *>(base);
    const int first = thread_index() % lanes;
    const int64_t apart = S::transposed ? x.ws.x.pages.size * vec : vec;
#pragma unroll 1
    for (int line = thread_index() / lanes; line < S::BN; line += at_once * lines) {
      int64_t away[at_once];  // found together: pages are looked up in memory
      uint32_t there = 0;     // a bit for each that is a key of the sequence, in a page that there is
#pragma unroll
      for (int n = 0; n < at_once; ++n) {
        away[n] = place_of_line(key, line, n * lines, at, n ? away[0] : 0);
        if (S::Paged && away[n] == nowhere) away[n] = 0;
        else if (key + line + n * lines < item.keys) there |= 1u << n;
      }
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const int piece = first + turn * lanes, bytes = within_piece((count - piece * vec) * S::size);
        if (pieces % lanes != 0 && piece >= pieces) continue;
        char *where = to + line * Pitch + piece * 16;
        if (x.wide_kv) {
#pragma unroll
          for (int n = 0; n < at_once; ++n)
            if (S::BN % (at_once * lines) == 0 || line + n * lines < S::BN)
              copy_async<16>(where + n * lines * Pitch,
                             reinterpret_cast<const char *>(from + (away[n] + piece * apart)),
                             there >> n & 1 ? bytes : 0);
        } else {
#pragma unroll 1
          for (int n = 0; n < at_once; ++n)
            if (line + n * lines < S::BN)
              store_shared(where + n * lines * Pitch,
                           gather_piece(from + (pick(away, n) + piece * apart), there >> n & 1 ? bytes / S::size : 0));
        }
      }
    }
  }
  // Where the key of a line lies, so many lines behind one that lies at `before`; of a key that is not there:
  // anywhere.
  TW_GPU int64_t place_of_line(int key, int line, int behind, const tw_attention_strides &at, int64_t before) const {
    if constexpr (S::Paged) {
      if (key + line + behind >= item.keys) return 0;
      int slot = 0;
      const int64_t away = place(key + line + behind, at, slot);
      if (away == nowhere) return nowhere;
      return S::transposed ? away + int64_t(slot) * (16 / S::size) : away + slot * at.row;
    } else {
      int slot = 0;
      return behind ? before + behind * at.row : place(key + line, at, slot);
    }
  }
  // Without an array that is addressed: it would lie in memory.
  template <int Count> TW_GPU static int64_t pick(const int64_t (&all)[Count], int which) {
    int64_t found = all[0];
#pragma unroll
    for (int n = 1; n < Count; ++n)
      if (n == which) found = all[n];
    return found;
  }
  // Vectorised values: 16 bytes are keys side by side, of one column.
  TW_GPU void columns(char *to, int key) const {
    constexpr int vec = 16 / S::size, groups = S::BN / vec;
    const tw_attention_args &a = x.ws.x;
    const KV *from = static_cast<const KV *>(a.v);
#pragma unroll 4
    for (int i = thread_index(); i < groups * S::DV; i += S::threads) {
      const int group = i / S::DV, column = i % S::DV, first = key + group * vec;
      int bytes = column < a.head_v ? within_piece((item.keys - first) * S::size) : 0;
      int64_t away = 0;
      if (bytes) {
        int slot = 0;
        away = place(first, a.v_strides, slot);
        if (away == nowhere) away = 0, bytes = 0;
        else away += (int64_t(slot / vec) * a.head_v + column) * vec;
      }
      bring(to + column * S::v_pitch + group * 16, from + away, bytes);
    }
  }
  TW_GPU void bring(char *to, const KV *from, int bytes) const {
    if (x.wide_kv) copy_async<16>(to, reinterpret_cast<const char *>(from), bytes);
    else store_shared(to, gather_piece(from, bytes / S::size));
  }
};

// Where the query row of a line of the tile lies; nothing behind the last.
template <class S>
TW_GPU const typename S::Q *query_row(const AttentionWsArgs &w, const AttentionItem &item, int line) {
  const int row = item.tile * S::BM + line;
  if (row >= rows_in_all<S>(w, item)) return nullptr;
  const tw_attention_strides &at = w.x.q_strides;
  const int position = position_of<S>(w, row);
  const int64_t head = S::Packed ? item.head * w.group + row - position * w.group : item.head;
  return static_cast<const typename S::Q *>(w.x.q) + item.sequence * at.batch + (item.first_row + position) * at.row +
         head * at.head;
}
// Eight elements, as they lie in memory or one by one; zeros behind the last.
template <class S> TW_GPU void read_eight(uint32_t (&words)[4], const typename S::Q *from, int count, bool wide) {
  if (sizeof(typename S::Q) == 2 && wide && count >= 8) {
    read_words<false>(words, from);
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e)
    if (e < count) {
      typename S::Kept one;
      round_to(to_float(from[e]), one);
      words[e / 2] |= uint32_t(one.bits) << (16 * (e % 2));
    }
}
// Where keys are fp8, every 16 elements have the even ones first: so two bytes of a word of keys come to lie.
template <class S> TW_GPU void keep_eight(char *row, int piece, const uint32_t (&words)[4]) {
  if constexpr (S::narrow) {
    char *at = row + piece / 2 * 32 + piece % 2 * 8;
    store_shared(at, uint2{permute(words[0], words[1], 0x5410), permute(words[2], words[3], 0x5410)});
    store_shared(at + 16, uint2{permute(words[0], words[1], 0x7632), permute(words[2], words[3], 0x7632)});
  } else {
    store_shared(row + piece * 16, Word16{{words[0], words[1], words[2], words[3]}});
  }
}

// Query rows of an item, as elements that are multiplied.
template <class S> TW_GPU void carry_queries(const AttentionMmaArgs &x, const AttentionItem &item, char *to) {
  constexpr int pieces = S::D / 8;
  const int count = int(x.ws.x.head_qk);
  for (int i = thread_index(); i < S::BM * pieces; i += S::threads) {
    const int line = i / pieces, piece = i % pieces;
    const typename S::Q *from = query_row<S>(x.ws, item, line);
    uint32_t words[4] = {0, 0, 0, 0};
    if (from && piece * 8 < count) read_eight<S>(words, from + piece * 8, count - piece * 8, x.wide_q);
    keep_eight<S>(to + line * S::q_pitch, piece, words);
  }
}
// The same of bf16 that is multiplied as fp16: a row times a power of two that puts its largest element below 2^15, so
// that what falls below the smallest of fp16 is less than 2^-38 of that.  What scores are to be multiplied by is kept.
template <class S>
TW_GPU void carry_scaled_queries(const AttentionMmaArgs &x, const AttentionItem &item, char *to, float *factors) {
  constexpr int pieces = S::D / 8, turns = (pieces + 31) / 32;
  const int count = int(x.ws.x.head_qk), lane = thread_index() % 32;
#pragma unroll 1
  for (int line = thread_index() / 32; line < S::BM; line += S::threads / 32) {
    const typename S::Q *from = query_row<S>(x.ws, item, line);
    uint32_t words[turns][4] = {}, most = 0;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const int first = (lane + turn * 32) * 8;
      if (from && first < count) read_eight<S>(words[turn], from + first, count - first, x.wide_q);
#pragma unroll
      for (int j = 0; j < 4; ++j) most = max(most, max(words[turn][j] & 0x7fffu, words[turn][j] >> 16 & 0x7fffu));
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) most = max(most, lane_at(most, lane ^ by));
    const int exponent = int(most >> 7);  // 255: no number, which stays what it is
    const int up = exponent == 255 ? 0 : min(127 + 14 - exponent, 100);
    const float larger = __uint_as_float(uint32_t(127 + up) << 23);
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        words[turn][j] = pair(fp16{}, __uint_as_float(words[turn][j] << 16) * larger,
                              __uint_as_float(words[turn][j] & 0xffff0000u) * larger);
      const int piece = lane + turn * 32;
      if (pieces % 32 == 0 || piece < pieces) keep_eight<S>(to + line * S::q_pitch, piece, words[turn]);
    }
    if (lane == 0) store_shared(factors + line, __uint_as_float(uint32_t(127 - up) << 23));
  }
}

}  // namespace tw
#endif
