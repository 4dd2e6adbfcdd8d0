// Equal shares of all keys: how blocks divide the tiles of all items among them, and how pieces of an item become one.
//
// Here an item is a head of keys of one sequence, with all rows that read it.  The tiles of keys of all items are one line,
// of which every block takes an equal share: so all end together, whatever lengths sequences have and whatever number of
// items there is.  Most shares begin and end inside of an item.  Such a piece goes to the workspace, in fp32 with its lse;
// who is the last to count a piece of an item adds them up, in the order of the keys.
#pragma once
#include <tilewright/cuda/attention_leave.h>

#ifdef TW_ON_GPU
namespace tw {

// What a block has of an item, as `split` of it says: 0 is all.
struct Piece {
  int word;
  TW_GPU static int encoded(int pieces, int first, bool begins) { return pieces | first << 12 | int(begins) << 24; }
  TW_GPU int pieces() const { return word & 4095; }
  TW_GPU int first() const { return word >> 12 & 4095; }  // block that has one; the others follow
  TW_GPU bool begins() const { return word >> 24 & 1; }
  // Where the piece of a block lies: it has one that an earlier block began at most, and one that it begins itself.
  TW_GPU int slot(int number) const { return 2 * (first() + number) + (number == 0); }
  TW_GPU int slot_of(int block) const { return slot(block - first()); }
};

// The items of a block's share, one after another; all 32 lanes of the feeding warp walk together.
template <class S> class ShareOrder {
 public:
  TW_GPU explicit ShareOrder(const AttentionWsArgs &args) : x(args), alike(args.items && !args.loose) {
    each = alike ? tiles_of_sequence(0) : 0;
    all = alike ? each * x.heads * int(x.x.batch) : count_all();
    blocks = max(1, min(int(gridDim.x), all / least_tiles));
    const int me = int(blockIdx.x);
    at = me < blocks ? begin_of(me) : 0, behind = me < blocks ? begin_of(me + 1) : 0;
  }

  TW_GPU bool next(AttentionItem &item) {
    if (at >= behind) return false;
    const int begins = find(item);
    const int from = at - begins, to = min(each, behind - begins);
    item.tile = 0, item.split = 0;
    fill(item);
    meet_tiles<S>(x, item);
    if (to - from < each) {
      const int first = from ? block_of(begins) : int(blockIdx.x);
      const int last = to < each ? block_of(begins + each - 1) : int(blockIdx.x);
      item.split = Piece::encoded(last - first + 1, first, from == 0);
      item.tiles.count = to - from;
      item.tiles.last -= from, item.tiles.window -= from;
    }
    at = begins + to;
    return true;
  }
  TW_GPU void end() {}

 private:
  const AttentionWsArgs &x;
  bool alike;                   // as many tiles in every item
  int all, blocks, at, behind;  // tiles of all items, who has some, the next of this block, behind its last
  int each;                     // tiles of the item that was found
  int window = -32, before = 0, in_window = 0, mine = 0;  // sequences 32 at a time: tiles up to the end of each

  TW_GPU int begin_of(int block) const { return int(int64_t(all) * block / blocks); }
  TW_GPU int block_of(int tile) const { return int((int64_t(tile + 1) * blocks - 1) / all); }

  TW_GPU void fill(AttentionItem &item) const {
    const AttentionSequence s = sequence_of(x.x, item.sequence);
    item.first_row = int(s.first_row), item.rows = int(s.rows);
    item.first_key = int(s.first_key), item.keys = int(s.keys);
  }
  // Of one head.  What sees no keys meets one all the same; what has no rows meets none.
  TW_GPU int tiles_of_sequence(int sequence) const {
    if (sequence >= x.x.batch) return 0;
    AttentionItem item{0, 0, sequence, 0, 0, 0, 0, 0, {0, 0, 0, 0}};
    fill(item);
    return item.rows > 0 ? max(1, tiles_of<S>(x, item).count) : 0;
  }
  TW_GPU int count_all() const {
    uint32_t sum = 0;
#pragma unroll 4
    for (int first = 0; first < int(x.x.batch); first += 32)
      sum += uint32_t(tiles_of_sequence(first + int(threadIdx.x % 32)));
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += lane_at(sum, int(threadIdx.x % 32) ^ by);
    return int(sum) * x.heads;
  }
  // The item that the next tile is of, and where its tiles begin.
  TW_GPU int find(AttentionItem &item) {
    if (alike) {
      const int number = at / each;
      item.sequence = number / x.heads, item.head = number - item.sequence * x.heads;
      return number * each;
    }
    const int lane = int(threadIdx.x % 32);
    while (at >= before + in_window) {
      window += 32, before += in_window;
      mine = tiles_of_sequence(window + lane) * x.heads;
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const int lower = int(lane_at(uint32_t(mine), lane - by < 0 ? lane : lane - by));
        if (lane >= by) mine += lower;
      }
      in_window = int(lane_at(uint32_t(mine), 31));
    }
    int which = 0;  // the first sequence whose tiles end behind it
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
      if (before + int(lane_at(uint32_t(mine), which + by - 1)) <= at) which += by;
    const int up_to = int(lane_at(uint32_t(mine), which)), below = int(lane_at(uint32_t(mine), max(0, which - 1)));
    const int begins = before + (which ? below : 0);
    each = (before + up_to - begins) / x.heads;
    item.sequence = window + which, item.head = (at - begins) / each;
    return begins + item.head * each;
  }
};

// One piece of an item, and all of them; by the 128 threads of a multiplying warpgroup.
template <class S, class Config> struct Pieces {
  struct Wide {
    using O = float;
    static constexpr int DV = S::DV;
  };
  const AttentionWsArgs &x;
  const AttentionItem &item;
  char *scratch;  // of shared memory, that nobody reads any more
  Piece piece;
  int thread;

  TW_GPU Pieces(const AttentionWsArgs &args, const AttentionItem &one, char *memory)
      : x(args), item(one), scratch(memory), piece{one.split}, thread(int(threadIdx.x % 128)) {}

  TW_GPU void leave(const Softmax &softmax, const float (&o)[S::DV / 2], const Dropout &dropout) const {
    const ThreadRows rows = rows_of_thread<S>(x, item, 0);
    const int slot = piece.slot_of(int(blockIdx.x));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const FinishedRow done = finished_row<S, Config>(x, rows, softmax, r, dropout, piece.begins());
      const int row = thread / 32 * 16 + thread % 32 / 4 + r * 8;
      if (rows.there[r] && thread % 4 == 0) lse_at(slot)[row] = done.lse;
      leave_row<Wide>(o, r, done.factor, rows.there[r] ? sums_at(slot) + row * S::DV : nullptr, int(x.x.head_v));
    }
  }
  // Whether all the others are there.
  TW_GPU bool last() const {
    meet();
    unsigned *told = reinterpret_cast<unsigned *>(scratch);
    if (thread == 0) {
      __threadfence();  // for all of the warpgroup, which met
      unsigned *counter = x.flags + piece.first();
      const bool complete = atomicAdd(counter, 1u) == unsigned(piece.pieces()) - 1;
      if (complete) atomicExch(counter, 0u);
      __threadfence();
      *told = complete;
    }
    meet();
    return *told != 0;
  }
  TW_GPU void combine() const {
    meet();  // everybody knows
    float *tops = reinterpret_cast<float *>(scratch), *factors = tops + 64;
    const int rows = rows_in_all<S>(x, item);
    if (thread < rows) weigh_row(tops, factors);
    meet();
    if (rows * (S::DV / 4) <= 2 * 128) add<1, 8>(tops, factors, rows);
    else add<4, 2>(tops, factors, rows);
  }

 private:
  static constexpr float log2_e = 1.44269504f;
  TW_GPU void meet() const { named_barrier(4, 128); }
  TW_GPU float *sums_at(int slot) const { return x.parts + int64_t(slot) * x.piece_rows * S::DV; }
  TW_GPU float *lse_at(int slot) const { return x.part_lse + int64_t(slot) * x.piece_rows; }
  TW_GPU static float weight(float lse, float top) {
    return lse == no_score() ? 0.0f : exp2_fast((lse - top) * log2_e);
  }
  TW_GPU int head_of(int row, int position) const { return item.head * x.group + row - position * x.group; }

  // The largest lse of this thread's row, and what the sum of weights is to be multiplied by.
  TW_GPU void weigh_row(float *tops, float *factors) const {
    constexpr int at_once = 8;
    float top = no_score(), sum = 0;
#pragma unroll 1
    for (int p = 0; p < piece.pieces(); p += at_once) {
      float lse[at_once], higher = top;
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        lse[u] = p + u < piece.pieces() ? __ldcg(lse_at(piece.slot(p + u)) + thread) : no_score();
#pragma unroll
      for (int u = 0; u < at_once; ++u) higher = fmaxf(higher, lse[u]);
      sum *= weight(top, higher);
#pragma unroll
      for (int u = 0; u < at_once; ++u) sum += weight(lse[u], higher);
      top = higher;
    }
    tops[thread] = top, factors[thread] = sum == 0 ? 0.0f : 1.0f / sum;
    if constexpr (Config::lse) {
      const int position = position_of<S>(x, thread);
      const tw_attention_args &a = x.x;
      static_cast<float *>(
          a.lse)[item.sequence * a.lse_batch + head_of(thread, position) * a.lse_head + item.first_row + position] =
          sum == 0 ? no_score() : top + logf(sum);
    }
  }
  // N times four columns of a thread at a time, of U pieces.
  template <int N, int U> TW_GPU void add(const float *tops, const float *factors, int rows) const {
    constexpr int quads = S::DV / 4;
#pragma unroll 1
    for (int first = thread; first < rows * quads; first += 128 * N) {
      float4 sum[N] = {};
#pragma unroll 1
      for (int p = 0; p < piece.pieces(); p += U) {
        float4 four[N][U];
        float lse[N][U];
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int u = 0; u < U; ++u) {
            const int i = first + n * 128, row = i / quads;
            const bool there = row < rows && p + u < piece.pieces() && i % quads * 4 < x.x.head_v;
            const int slot = piece.slot(there ? p + u : 0);
            lse[n][u] = there ? __ldcg(lse_at(slot) + row) : no_score();
            four[n][u] = there ? load_through(reinterpret_cast<const float4 *>(sums_at(slot) + i * 4)) : float4{};
          }
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int u = 0; u < U; ++u) {
            const float w = weight(lse[n][u], tops[min((first + n * 128) / quads, 63)]);
            sum[n].x += w * four[n][u].x, sum[n].y += w * four[n][u].y;
            sum[n].z += w * four[n][u].z, sum[n].w += w * four[n][u].w;
          }
      }
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int i = first + n * 128, row = i / quads;
        if (row < rows && i % quads * 4 < x.x.head_v) write(sum[n], factors[row], row, i % quads * 4);
      }
    }
  }
  TW_GPU void write(const float4 &sum, float factor, int row, int column) const {
    using O = typename S::O;
    const tw_attention_args &a = x.x;
    const int position = position_of<S>(x, row);
    O *to = static_cast<O *>(a.o) + item.sequence * a.o_strides.batch +
            (item.first_row + int64_t(position)) * a.o_strides.row + head_of(row, position) * a.o_strides.head + column;
    if constexpr (sizeof(O) == 2)
      *reinterpret_cast<uint2 *>(to) =
          uint2{pair(O{}, sum.x * factor, sum.y * factor), pair(O{}, sum.z * factor, sum.w * factor)};
    else *reinterpret_cast<float4 *>(to) = float4{sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor};
  }
};

}  // namespace tw
#endif
