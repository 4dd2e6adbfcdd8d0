// Equal shares of all keys: how blocks divide the tiles of all sequences among them, and how pieces of an item become one.
//
// Here an item is a head of keys of one sequence, with all rows that read it.  The tiles of keys of a head, of all
// sequences, are one line, of which every block of that head takes an equal share: so all end together, whatever
// lengths sequences have and whatever number of items there is.  Heads advance in step, since in memory theirs lie side
// by side.  Most shares begin and end inside of an item.  Such a piece goes to the workspace, in fp32 with its lse;
// who is the last to count a piece of an item adds them up, in the order of the keys.
#pragma once
#include <tilewright/cuda/attention/epilogue_store.h>

#ifdef TW_ON_GPU
namespace tw {

// What a block has of an item, as `split` of it says: 0 is all.
struct Piece {
  int word;
  TW_GPU static int encoded(int pieces, int first, bool begins) { return pieces | first << 12 | int(begins) << 24; }
  TW_GPU int pieces() const { return word & 4095; }
  TW_GPU int first() const { return word >> 12 & 4095; }  // share that has one; the others follow
  TW_GPU bool begins() const { return word >> 24 & 1; }
};

// The items of a block's share, one after another; all 32 lanes of the producer warp advance together.
template <class S> class ShareOrder {
 public:
  TW_GPU explicit ShareOrder(const AttentionWsArgs &args) : x(args), alike(args.items && !args.loose) {
    each = alike ? tiles_of_sequence(0) : 0;
    const int all = alike ? each * int(x.x.batch) : count_all();  // the most of one sequence: each
    const int heads =
        min(x.heads, int(gridDim.x));  // beside each other; where these are fewer, a share is all there is
    divide(all, max(1, min(int(gridDim.x) / heads, all / least_tiles)));
    me = int(blockIdx.x) / heads, head = int(blockIdx.x) - me * heads;
    if (me >= shares) head = x.heads;
    at = begin_of(me);
  }

  TW_GPU bool next(AttentionItem &item) {
    if (at >= begin_of(me + 1)) {  // the same of another head
      head += int(gridDim.x);
      at = begin_of(me), window = -32, before = 0, in_window = 0;
    }
    if (head >= x.heads || at >= begin_of(me + 1)) return false;
    item.tile = 0, item.split = 0, item.head = head;
    const int begins = find(item), from = at - begins, to = min(each, begin_of(me + 1) - begins);
    fill(item);
    find_tiles<S>(x, item);
    if (to - from < each) {
      const int first = from ? share_of(begins) : me, last = to < each ? share_of(begins + each - 1) : me;
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
  bool alike;            // as many tiles in every item
  int shares, together;  // of a head; of so many that begin where the first of a span begins
  int unit, span, quotient,
      rest;          // tiles that stay together; of a span so many units; the first `rest` shares have one more
  int me, head, at;  // the share, whose head, its next tile
  int each;          // tiles of the item that was found
  int window = -32, before = 0, in_window = 0, mine = 0;  // sequences 32 at a time: tiles up to the end of each

  // At most so many shares of a line.  Where sequences are equally long and nearly as many shares can be whole items, or
  // whole parts of items, they are: what is not cut needs not be put together, and what is cut once a block only once.
  TW_GPU void divide(int all, int most) {
    const int batch = int(x.x.batch), parts = max(1, min(most / batch, each / least_tiles));
    const int rounds = (batch + most - 1) / most, fewer = (batch + rounds - 1) / rounds;
    const bool even = all == each * batch;
    unit = 1, span = all, shares = together = most;
    if (even && batch >= most && batch * 10 >= rounds * most * 9) unit = each, span = batch, shares = together = fewer;
    else if (even && batch < most && batch * parts * 10 >= most * 9)
      span = each, together = parts, shares = batch * parts;
    quotient = span / together, rest = span - quotient * together;
  }
  TW_GPU int begin_of(int share) const {
    const int before = share / together, number = share - before * together;
    return unit * (before * span + quotient * number + min(number, rest));
  }
  TW_GPU int share_of(int tile) const {  // of a line that is cut inside of items
    const int before = tile / span, within = tile - before * span, longer = (quotient + 1) * rest;
    const int number = within < longer ? within / (quotient + 1) : rest + (within - longer) / quotient;
    return before * together + number;
  }
  TW_GPU void fill(AttentionItem &item) const {
    const AttentionSequence s = sequence_of(x.x, item.sequence);
    item.first_row = int(s.first_row), item.rows = int(s.rows);
    item.first_key = int(s.first_key), item.keys = int(s.keys);
  }
  // What sees no keys meets one all the same; what has no rows meets none.
  TW_GPU int tiles_of_sequence(int sequence) const {
    if (sequence >= x.x.batch) return 0;
    AttentionItem item{0, 0, sequence, 0, 0, 0, 0, 0, {0, 0, 0, 0}};
    fill(item);
    return item.rows > 0 ? max(1, tiles_of<S>(x, item).count) : 0;
  }
  TW_GPU int count_all() {
    uint32_t sum = 0, most = 0;
#pragma unroll 4
    for (int first = 0; first < int(x.x.batch); first += 32) {
      const uint32_t tiles = uint32_t(tiles_of_sequence(first + int(threadIdx.x % 32)));
      sum += tiles, most = max(most, tiles);
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
      sum += lane_at(sum, int(threadIdx.x % 32) ^ by);
      most = max(most, lane_at(most, int(threadIdx.x % 32) ^ by));
    }
    each = int(most);
    return int(sum);
  }
  // The sequence that the next tile is of, and where its tiles begin.
  TW_GPU int find(AttentionItem &item) {
    if (alike) {
      item.sequence = at / each;
      return item.sequence * each;
    }
    const int lane = int(threadIdx.x % 32);
    while (at >= before + in_window) {
      window += 32, before += in_window;
      mine = tiles_of_sequence(window + lane);
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
    item.sequence = window + which;
    each = up_to - (which ? below : 0);
    return before + up_to - each;
  }
};

// One piece of an item, and all of them; by the 128 threads of a consumer warpgroup.
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

  TW_GPU void store_tile(const Softmax &softmax, const float (&o)[S::DV / 2], const Dropout &dropout) const {
    const ThreadRows rows = rows_of_thread<S>(x, item, 0);
    const int slot = slot_of(int(blockIdx.x) / heads(), piece.begins());
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const FinishedRow done = finished_row<S, Config>(x, rows, softmax, r, dropout, piece.begins());
      const int row = thread / 32 * 16 + thread % 32 / 4 + r * 8;
      if (rows.there[r] && thread % 4 == 0) lse_at(slot)[row] = done.lse;
      store_out_row<Wide>(o, r, done.factor, rows.there[r] ? accum_at(slot) + row * S::DV : nullptr, int(x.x.head_v));
    }
  }
  // Whether all the others are there.
  TW_GPU bool last() const {
    sync();
    unsigned *is_last = reinterpret_cast<unsigned *>(scratch);
    if (thread == 0) {
      __threadfence();  // for all of the warpgroup, which met
      unsigned *counter = x.flags + piece.first() * heads() + item.head;
      const bool complete = atomicAdd(counter, 1u) == unsigned(piece.pieces()) - 1;
      if (complete) atomicExch(counter, 0u);
      __threadfence();
      *is_last = complete;
    }
    sync();
    return *is_last != 0;
  }
  TW_GPU void combine() const {
    constexpr bool large = S::DV > 128;
    const int rows = rows_in_all<S>(x, item);
    if (rows * quads <= 128) add<1, (large ? 8 : 16)>(rows);
    else add<(large ? 2 : 4), 4>(rows);
  }

 private:
  static constexpr float log2_e = 1.44269504f;
  static constexpr int quads = S::DV / 4;  // four columns of a row
  TW_GPU void sync() const { named_barrier(4, 128); }
  // Pieces of a head have no share where there are more heads than blocks.
  TW_GPU int heads() const { return min(x.heads, int(gridDim.x)); }
  // A share has one that an earlier one began at most, and one that it begins itself.
  TW_GPU int slot_of(int share, bool begins) const { return 2 * (share * heads() + item.head) + int(begins); }
  TW_GPU float *accum_at(int slot) const { return x.parts + int64_t(slot) * x.piece_rows * S::DV; }
  TW_GPU float *lse_at(int slot) const { return x.part_lse + int64_t(slot) * x.piece_rows; }
  TW_GPU static float weight(float lse, float top) {
    return lse == no_score() ? 0.0f : exp2_fast((lse - top) * log2_e);
  }
  TW_GPU int head_of(int row, int position) const { return item.head * x.group + row - position * x.group; }

  // Of N times four columns at a time, U pieces at a time: much is under way, since nothing else is any more.
  template <int N, int U> TW_GPU void add(int rows) const {
#pragma unroll 1
    for (int first = thread; first < rows * quads; first += 128 * N) {
      float4 sum[N] = {};
      float top[N], all[N];
#pragma unroll
      for (int n = 0; n < N; ++n) top[n] = no_score(), all[n] = 0;
#pragma unroll 1
      for (int p = 0; p < piece.pieces(); p += U) {
        float4 four[N][U];
        float lse[N][U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
          const int slot = slot_of(piece.first() + p + u, p + u == 0);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            const int i = first + n * 128;
            const bool there = i < rows * quads && p + u < piece.pieces() && i % quads * 4 < x.x.head_v;
            lse[n][u] = there ? __ldcg(lse_at(slot) + i / quads) : no_score();
            four[n][u] = there ? load_through(reinterpret_cast<const float4 *>(accum_at(slot) + i * 4)) : float4{};
          }
        }
#pragma unroll
        for (int n = 0; n < N; ++n) take(sum[n], top[n], all[n], four[n], lse[n]);
      }
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int i = first + n * 128, row = i / quads, column = i % quads * 4;
        if (row >= rows || column >= x.x.head_v) continue;
        write(sum[n], all[n] == 0 ? 0.0f : 1.0f / all[n], row, column);
        if (Config::lse && column == 0) write_lse(all[n] == 0 ? no_score() : top[n] + logf(all[n]), row);
      }
    }
  }
  template <int U>
  TW_GPU static void take(float4 &sum, float &top, float &all, const float4 (&four)[U], const float (&lse)[U]) {
    float higher = top;
#pragma unroll
    for (int u = 0; u < U; ++u) higher = fmaxf(higher, lse[u]);
    const float scale = weight(top, higher);
    all *= scale, sum.x *= scale, sum.y *= scale, sum.z *= scale, sum.w *= scale;
    top = higher;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const float w = weight(lse[u], top);
      all += w;
      sum.x += w * four[u].x, sum.y += w * four[u].y, sum.z += w * four[u].z, sum.w += w * four[u].w;
    }
  }
  TW_GPU void write_lse(float lse, int row) const {
    const int position = position_of<S>(x, row);
    const tw_attention_args &a = x.x;
    static_cast<float *>(
        a.lse)[item.sequence * a.lse_batch + head_of(row, position) * a.lse_head + item.first_row + position] = lse;
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
