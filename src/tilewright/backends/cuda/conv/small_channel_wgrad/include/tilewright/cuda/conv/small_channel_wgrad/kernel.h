// The device's half of gradients of weights of first layers.
#pragma once
#include <tilewright/cuda/conv/small_channel_wgrad/shape.h>

#ifdef TW_ON_GPU
#include <tilewright/cuda/conv/split_reduce.h>
#include <tilewright/cuda/primitives/shared_tiles.h>
#include <tilewright/cuda/primitives/tma.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

template <class Config> struct SmallChannelWgradMemory {
  using S = SmallChannelWgrad<Config>;
  char *stages;
  Barrier *full, *empty;
  TW_GPU explicit SmallChannelWgradMemory(const SmallChannelWgradArgs &x) {
    stages = shared_tiles();
    full = reinterpret_cast<Barrier *>(stages + S::Stages * x.stage_bytes);
    empty = full + S::Stages;
  }
};

// What a block accumulates: of which filters and plane of taps, and which of the stages.
struct SmallChannelWgradItem {
  int m, plane, part, first, end;
  TW_GPU explicit SmallChannelWgradItem(const SmallChannelWgradArgs &x) {
    const int left = blockIdx.x / x.blocks_m;
    m = blockIdx.x - left * x.blocks_m, part = left / x.planes, plane = left - part * x.planes;
    first = int((long long)x.count * part / x.parts), end = int((long long)x.count * (part + 1) / x.parts);
  }
};
// Where the results of a stage lie.  Those of the next number lie below, as far as there are any.
struct SmallChannelWgradPlace {
  int w, h, d, image;
  TW_GPU SmallChannelWgradPlace(const SmallChannelWgradArgs &x, int number) {
    const int line = x.chunks.quotient(number), plane = x.segments.quotient(line);
    image = x.depth.quotient(plane);
    h = (number - line * int(x.chunks.by)) * x.high, w = (line - plane * int(x.segments.by)) * x.segment;
    d = plane - image * int(x.depth.by);
  }
};

template <class Config> TW_GPU void produce_small_channel_wgrad(const TensorMap &map_y, const SmallChannelWgradArgs &x,
                                                                const SmallChannelWgradMemory<Config> &shared) {
  using S = SmallChannelWgrad<Config>;
  const SmallChannelWgradItem item(x);
  Ring<S::Stages> ring;
  for (int number = item.first; number < item.end; ++number, ring.next()) {
    const SmallChannelWgradPlace at(x, number);
    shared.empty[ring.stage].wait(ring.phase ^ 1);
    shared.full[ring.stage].expect(uint32_t(x.y_bytes));
    tma_load_rows(&map_y, &shared.full[ring.stage], shared.stages + ring.stage * x.stage_bytes, item.m * 64, at.w, at.h,
                  at.image * int(x.depth.by) + at.d);
  }
}

// Lines of x, so many under way at once: of Channels a pixel, zeros where there is none.  Of 3: two pixels side by side that
// are three whole words, and become four channels each.
template <class Config, int Channels> struct SmallChannelWgradLines {
  using S = SmallChannelWgrad<Config>;
  using T = typename S::In;
  static constexpr int batch = 4, pixels = Channels == 3 ? 2 : 8 / Channels;
  const SmallChannelWgradArgs &x;
  const T *from;
  int w, h, all;
  bool there;  // the plane

  TW_GPU SmallChannelWgradLines(const SmallChannelWgradArgs &args, const SmallChannelWgradPlace &at, int plane)
      : x(args), all(args.rows * int(args.by_row.by)) {
    const int d = at.d * x.step[2] - x.before[2] + plane * x.deep_apart;
    there = d >= 0 && d < x.size[2];
    from = static_cast<const T *>(x.from) + at.image * x.apart[3] + d * x.apart[2];
    w = at.w * x.phases * pixels - x.before[0], h = at.h * x.step[1] - x.before[1];
  }
  TW_GPU void load(Some<T, 8> &to, int number) const {
    const int row = x.by_row.quotient(number), rest = number - row * int(x.by_row.by),
              phase = x.by_phase.quotient(rest), first = w + ((rest - phase * x.row) * x.phases + phase) * pixels;
    const bool inside = there && number < all && h + row >= 0 && h + row < x.size[1];
    const T *at = from + (h + row) * x.apart[1] + first * x.apart[0];
    if constexpr (Channels == 3) {  // both pixels are there, or none
      uint32_t words[3] = {};
      const uint32_t *of = reinterpret_cast<const uint32_t *>(at);
#pragma unroll
      for (int i = 0; i < 3; ++i)
        if (inside && first >= 0 && first < x.size[0]) words[i] = of[i];
      const uint32_t both[4] = {words[0], words[1] & 0xffff, words[1] >> 16 | words[2] << 16, words[2] >> 16};
      memcpy(&to, both, sizeof both);
    } else {
#pragma unroll
      for (int i = 0; i < pixels; ++i, at += x.apart[0])
#pragma unroll
        for (int c = 0; c < Channels; ++c) {
          T one{};
          if (inside && first + i >= 0 && first + i < x.size[0] && c < x.channels) one = at[c];
          to.v[i * Channels + c] = one;
        }
    }
  }
  TW_GPU void load(Some<T, 8> (&to)[batch], int first) const {
#pragma unroll
    for (int i = 0; i < batch; ++i) load(to[i], first + i * S::spreading);
  }
  TW_GPU void store(char *to, const Some<T, 8> (&lines)[batch], int first) const {
#pragma unroll
    for (int i = 0; i < batch; ++i)
      if (first + i * S::spreading < all)
        *reinterpret_cast<Some<T, 8> *>(to + (first + i * S::spreading) * S::line) = lines[i];
  }
  // From line `first` on, of this thread.  A batch is on its way before there is room for it; all threads issue their loads together.
  template <class Room> TW_GPU void spread(char *to, int first, Room room) const {
    Some<T, 8> lines[batch];
    load(lines, first);
    room();
    store(to, lines, first);
#pragma unroll 1
    for (first += batch * S::spreading; first < all; first += batch * S::spreading) {
      load(lines, first);
      store(to, lines, first);
    }
  }
};

template <class Config, int Channels>
TW_GPU void spread_small_channel_wgrad(const SmallChannelWgradArgs &x, const SmallChannelWgradMemory<Config> &shared,
                                       int thread) {
  using S = SmallChannelWgrad<Config>;
  const SmallChannelWgradItem item(x);
  Ring<S::Stages> ring;
  int before = 0;  // its last rows are the first ones of the next, as the window reaches
  for (int number = item.first; number < item.end; ++number, ring.next()) {
    const SmallChannelWgradPlace at(x, number);
    const SmallChannelWgradLines<Config, Channels> lines(x, at, item.plane);
    const int again = number > item.first && at.h > 0 ? x.again : 0;
    char *to = shared.stages + ring.stage * x.stage_bytes + x.y_bytes;
    lines.spread(to, again + thread, [&] {
      shared.empty[ring.stage].wait(ring.phase ^ 1);
      if (again == 0) return;
      named_barrier(1, S::spreading);  // the stage before is there as a whole
      const char *from = shared.stages + before * x.stage_bytes + x.y_bytes + (lines.all - again) * S::line;
      for (int line = thread; line < again; line += S::spreading)
        *reinterpret_cast<uint4 *>(to + line * S::line) = *reinterpret_cast<const uint4 *>(from + line * S::line);
    });
    fence_async_proxy();
    __syncwarp();
    if (thread % 32 == 0) shared.full[ring.stage].arrive();
    before = ring.stage;
  }
}

// Accumulators leave as they lie in registers, which takes few instructions: a thread has two neighbours of the eight elements of a
// line, of every row of the window and two filters.
template <class Config>
TW_GPU void store_small_channel_wgrad(const SmallChannelWgradArgs &x, const SmallChannelWgradItem &item,
                                      const float (&accum)[SmallChannelWgrad<Config>::N / 2], int line) {
  using S = SmallChannelWgrad<Config>;
  const int thread = threadIdx.x % 128, lane = thread % 32;
  float *to = x.partial + item.part * x.part_apart + S::place(x, item.m, item.plane, line) +
              (thread / 32 * 16 + lane / 4) * 8 + lane % 4 * 2;
#pragma unroll
  for (int row = 0; row < S::Rows; ++row)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2 *>(to + (row * 64 + half * 8) * 8) = {accum[row * 4 + half * 2],
                                                                     accum[row * 4 + half * 2 + 1]};
}

template <class Config> TW_GPU void sum_small_channel_wgrad(const SmallChannelWgradArgs &x,
                                                            const SmallChannelWgradMemory<Config> &shared, int who) {
  using S = SmallChannelWgrad<Config>;
  const SmallChannelWgradItem item(x);
  float accum[S::Each][S::N / 2] = {};
  uint32_t starts[S::Each];  // lines there are not read the first one's, and do not leave
#pragma unroll
  for (int i = 0; i < S::Each; ++i) {
    const int line = who * S::Each + i < x.lines ? who * S::Each + i : 0, along = line / x.phases;
    starts[i] = uint32_t((line - along * x.phases) * x.row + along);
  }
  const int steps = x.segment / 16, row = int(x.by_row.by) * x.step[1];
  Ring<S::Stages> ring;
#pragma unroll 1
  for (int number = item.first; number < item.end; ++number, ring.next()) {
    const char *stage = shared.stages + ring.stage * x.stage_bytes;
    uint64_t at_y = operand(stage, 1024, 8192), at_row = plain_operand(stage + x.y_bytes, x.rows_apart * S::line, 128);
    shared.full[ring.stage].wait(ring.phase);
#pragma unroll 1
    for (int high = 0; high < x.high; ++high, at_row = further(at_row, row)) {
      uint64_t at_x = at_row;
#pragma unroll 1
      for (int step = 0; step < steps; ++step, at_y = further(at_y, 128), at_x = further(at_x, 16)) {
#pragma unroll
        for (int i = 0; i < S::Each; ++i) hold(accum[i]);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::Each; ++i)
          Wgmma<S::N, typename S::In, 1, 1>::run(accum[i], at_y, further(at_x, starts[i]), 1);
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < S::Each; ++i) hold(accum[i]);
        wgmma_wait<1>();
      }
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) shared.empty[ring.stage].arrive();
  }
#pragma unroll
  for (int i = 0; i < S::Each; ++i) hold(accum[i]);
#pragma unroll
  for (int i = 0; i < S::Each; ++i)
    if (who * S::Each + i < x.lines) store_small_channel_wgrad<Config>(x, item, accum[i], who * S::Each + i);
}

template <class Config> TW_GPU void conv_small_channel_wgrad(const TensorMap &map_y, const SmallChannelWgradArgs &x) {
  using S = SmallChannelWgrad<Config>;
  const SmallChannelWgradMemory<Config> shared(x);
  if (threadIdx.x == 0) {
    let_next_kernel_in();
    tma_prefetch(&map_y);
    for (int i = 0; i < S::Stages; ++i) shared.full[i].init(1 + S::spreading / 32), shared.empty[i].init(S::groups);
    fence_barriers();
  }
  __syncthreads();
  const int who = int(lane_at(threadIdx.x / 128, 0)), thread = int(threadIdx.x) - S::summing;
  if (who < S::groups) {
    allocate_registers<160>();
    sum_small_channel_wgrad<Config>(x, shared, who);
  } else {
    deallocate_registers<88>();
    if (thread >= S::spreading) {
      if (thread == S::spreading) produce_small_channel_wgrad<Config>(map_y, x, shared);
    } else if (x.words) spread_small_channel_wgrad<Config, 3>(x, shared, thread);
    else if (x.narrow) spread_small_channel_wgrad<Config, 4>(x, shared, thread);
    else spread_small_channel_wgrad<Config, 8>(x, shared, thread);
  }
}

// The splits of a weight, in order.
template <class Config> TW_GPU void add_small_channel_wgrad(const SmallChannelWgradArgs &x) {
  using S = SmallChannelWgrad<Config>;
  const auto place = [&](int at) {
    const int line = x.by_channels.quotient(at), filter = x.by_taps.quotient(line), rows = x.by_width.quotient(line),
              element = (line - rows * x.window_w + x.shift) * (x.narrow ? 4 : 8) + at - line * x.channels,
              row = rows % S::Rows, plane = rows / S::Rows - filter * x.planes;
    return S::place(x, filter / 64, plane, element / 8) + row * 512 + filter % 64 * 8 + element % 8;
  };
  int at;
  float sum;
  if (add_splits(x.partial, x.weights, x.part_apart, x.parts, place, at, sum)) store_weight<Config>(x, at, sum);
}

}  // namespace tw

#define TW_DEVICE_CONV_SMALL_CHANNEL_WGRAD(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::SmallChannelWgrad<Config>::threads, 1) \
      Symbol(const __grid_constant__ tw::TensorMap a, const __grid_constant__ tw::SmallChannelWgradArgs x) { \
    tw::conv_small_channel_wgrad<Config>(a, x); \
  } \
  TW_DEVICE_ADD_SPLITS(Symbol, tw::SmallChannelWgradArgs, tw::add_small_channel_wgrad<Config>)
#else
#define TW_DEVICE_CONV_SMALL_CHANNEL_WGRAD(Config, Symbol)
#endif
