// How rows, keys and values come into shared memory in the mma pipeline of attention.
#pragma once
#include <tilewright/cuda/attention_items.h>
#include <tilewright/cuda/attention_mma_shape.h>
#include <tilewright/cuda/copies.h>

#ifdef TW_ON_GPU
namespace tw {

// The number of the i-th tile of keys.
template <class S, class Tiles> TW_GPU auto tile_at(const Tiles &tiles, int i, int)
    -> decltype(tiles.template at<S>(i)) {
  return tiles.template at<S>(i);
}
template <class S, class Tiles> TW_GPU int tile_at(const Tiles &tiles, int i, long) { return tiles.at(i); }
template <class S> TW_GPU int tile_at(const KeyTiles &tiles, int i) { return tile_at<S>(tiles, i, 0); }

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
template <class S> struct MmaFeeder {
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
    if constexpr (S::turned) columns(to, key);
    else rows<S::DV, S::v_pitch>(to, key, a.v, a.v_strides, int(a.head_v));
  }

 private:
  // Where a key (or the first of a vector of them) lies, in elements.
  TW_GPU int64_t place(int key, const tw_attention_strides &at, int &slot) const {
    const tw_attention_args &a = x.ws.x;
    if constexpr (S::Paged) {
      const int page = x.by_page.quotient(key);
      slot = key - page * int(a.pages.size);
      return page_of(a.pages, item.sequence, page) * at.batch + head * at.head;
    } else {
      return item.sequence * at.batch + (item.first_key + int64_t(key)) * at.row + head * at.head;
    }
  }
  // Lanes side by side have pieces of a row side by side, and keep to them.
  template <int Columns, int Pitch>
  TW_GPU void rows(char *to, int key, const void *base, const tw_attention_strides &at, int count) const {
    constexpr int pieces = Columns * S::size / 16, vec = 16 / S::size;
    constexpr int lanes = pieces > 16 ? 32 : pieces > 8 ? 16 : pieces > 4 ? 8 : pieces > 2 ? 4 : 2;
    constexpr int turns = (pieces + lanes - 1) / lanes;
    const KV *from = static_cast<const KV *>(base);
    const int first = thread_index() % lanes;
    const int64_t apart = S::turned ? x.ws.x.pages.size * vec : vec;
#pragma unroll 4
    for (int line = thread_index() / lanes; line < S::BN; line += S::threads / lanes) {
      const bool there = key + line < item.keys;
      int64_t away = 0;
      if (there) {
        int slot = 0;
        away = place(key + line, at, slot);
        if constexpr (S::turned) away += int64_t(slot) * vec;
        else if constexpr (S::Paged) away += slot * at.row;
      }
#pragma unroll
      for (int turn = 0; turn < turns; ++turn) {
        const int piece = first + turn * lanes;
        if (pieces % lanes == 0 || piece < pieces)
          bring(to + line * Pitch + piece * 16, from + (away + piece * apart),
                there ? within_piece((count - piece * vec) * S::size) : 0);
      }
    }
  }
  // Vectorised values: 16 bytes are keys side by side, of one column.
  TW_GPU void columns(char *to, int key) const {
    constexpr int vec = 16 / S::size, groups = S::BN / vec;
    const tw_attention_args &a = x.ws.x;
    const KV *from = static_cast<const KV *>(a.v);
#pragma unroll 4
    for (int i = thread_index(); i < groups * S::DV; i += S::threads) {
      const int group = i / S::DV, column = i % S::DV, first = key + group * vec;
      const int bytes = column < a.head_v ? within_piece((item.keys - first) * S::size) : 0;
      int64_t away = 0;
      if (bytes) {
        int slot = 0;
        away = place(first, a.v_strides, slot);
        away += (int64_t(slot / vec) * a.head_v + column) * vec;
      }
      bring(to + column * S::v_pitch + group * 16, from + away, bytes);
    }
  }
  TW_GPU void bring(char *to, const KV *from, int bytes) const {
    if (x.wide_kv) copy_async<16>(to, reinterpret_cast<const char *>(from), bytes);
    else store_shared(to, gather_piece(from, bytes / S::size));
  }
};

// Query rows of an item, as elements that are multiplied.  Where keys are fp8, every 16 elements have the even ones
// first: so two bytes of a word of keys come to lie.
template <class S> TW_GPU void carry_queries(const AttentionMmaArgs &x, const AttentionItem &item, char *to) {
  using Q = typename S::Q;
  constexpr int pieces = S::D / 8;
  const AttentionWsArgs &w = x.ws;
  const int in_all = rows_in_all<S>(w, item), count = int(w.x.head_qk);
  const tw_attention_strides &at = w.x.q_strides;
  for (int i = thread_index(); i < S::BM * pieces; i += S::threads) {
    const int line = i / pieces, piece = i % pieces, row = item.tile * S::BM + line;
    uint32_t words[4] = {0, 0, 0, 0};
    if (row < in_all && piece * 8 < count) {
      const int position = position_of<S>(w, row);
      const int64_t head = S::Packed ? item.head * w.group + row - position * w.group : item.head;
      const Q *from = static_cast<const Q *>(w.x.q) + item.sequence * at.batch + (item.first_row + position) * at.row +
                      head * at.head + piece * 8;
      if (sizeof(Q) == 2 && x.wide_q && piece * 8 + 8 <= count) {
        read_words<false>(words, from);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (piece * 8 + e < count) {
            typename S::T one;
            round_to(to_float(from[e]), one);
            words[e / 2] |= uint32_t(one.bits) << (16 * (e % 2));
          }
      }
    }
    char *row_at = to + line * S::q_pitch;
    if constexpr (S::narrow) {
      store_shared(row_at + piece / 2 * 32 + piece % 2 * 8,
                   uint2{permute(words[0], words[1], 0x5410), permute(words[2], words[3], 0x5410)});
      store_shared(row_at + piece / 2 * 32 + piece % 2 * 8 + 16,
                   uint2{permute(words[0], words[1], 0x7632), permute(words[2], words[3], 0x7632)});
    } else {
      store_shared(row_at + piece * 16, Word16{{words[0], words[1], words[2], words[3]}});
    }
  }
}

}  // namespace tw
#endif
