// Partial sums of one tile that several groups of threads made, each over its split of k: handed over through
// memory and added in the order of k, so that every run adds in the same order.
//
// A group is whoever shares a piece of a tile: a block or a part of one.  It brings its own barrier
// (`sync`), and may only wait for groups that are running at the same time.
#pragma once
#include <tilewright/gpu/device.h>

namespace tw {

#ifdef TW_ON_GPU

// One thread, behind a barrier of its group: signals that the group's writes are there, and waits until all `parts` groups
// did so.  The two words are zero before that and after `part`.
TW_GPU void sync(unsigned *words, unsigned parts) {
  __threadfence();  // also for what the others of its group wrote before the barrier
  atomicAdd(words, 1u);
  while (look_at(words) < parts) TW_SPIN();
}
// The same thread, when there is nothing urgent left to do.
TW_GPU void part(unsigned *words, unsigned parts) {
  if (atomicAdd(words + 1, 1u) == parts - 1) {  // all have seen it
    atomicExch(words, 0u);
    atomicExch(words + 1, 0u);
  }
}

// Accumulators travel four at a time as float4s; whole numbers as their bits.
TW_GPU float to_word(float sum) { return sum; }
TW_GPU float to_word(int32_t sum) { return __int_as_float(sum); }
template <class Sum> TW_GPU Sum from_word(float word) { return word; }
template <> TW_GPU int32_t from_word<int32_t>(float word) { return __float_as_int(word); }
template <class Sum> TW_GPU float plus(float x, float y) { return to_word(from_word<Sum>(x) + from_word<Sum>(y)); }
template <class Sum> TW_GPU void add(float4 &x, const float4 &y) {
  x = float4{plus<Sum>(x.x, y.x), plus<Sum>(x.y, y.y), plus<Sum>(x.z, y.z), plus<Sum>(x.w, y.w)};
}

// The stretch of a piece's float4s that one of its groups adds up.  A piece has at most 2^14 of them, and there are fewer
// splits than multiprocessors.
struct Stretch {
  int low, high;
  TW_GPU Stretch(int count, int part, int parts)
      : low(int(unsigned(count) * unsigned(part) / unsigned(parts))),
        high(int(unsigned(count) * unsigned(part + 1) / unsigned(parts))) {}
};

// All groups of a piece of a tile add it up together: each takes one of `parts` stretches of its float4s,
// and gives every total to `emit(index, total)`.  `from` is the first group's accumulators, `stride` floats from
// group to group.  Where a stretch is shorter than the group, several threads share a float4: each adds every so many
// splits, and the warp adds these.
//
// What is read lies in the second-level cache, a thousand cycles away: each thread has sixteen loads in flight, or where
// it has one float4 to add, four; that is the way of short problems, which wait for their instructions too.
template <int Threads, class Sum = float, class Emit>
TW_GPU void add_up(const float *from, long long stride, const Stretch &s, int parts, int thread, Emit emit) {
  constexpr int wide = 4, deep = 4;
  const int low = s.low, mine = s.high - low;
  int halvings = 0;
  while (halvings < 5 && (2 << halvings) * mine <= Threads) ++halvings;
  const int readers = 1 << halvings, columns = 32 >> halvings, apart = Threads >> halvings;
  const int lane = thread % 32, reader = lane >> (5 - halvings);
  const bool more = mine > apart;
  for (int base = thread / 32 * columns + (lane & (columns - 1)), turn = 0; turn * apart < mine;
       base += wide * apart, turn += wide) {
    float4 total[wide] = {};
    for (int q = reader; q < parts; q += deep * readers) {
      float4 v[wide][deep] = {};
      const auto read = [&](int w) {
#pragma unroll
        for (int i = 0; i < deep; ++i)
          if (base + w * apart < mine && q + i * readers < parts)
            v[w][i] = load_through(reinterpret_cast<const float4 *>(from + (q + i * readers) * stride) + low + base +
                                   w * apart);
      };
      read(0);
      if (more)
#pragma unroll
        for (int w = 1; w < wide; ++w) read(w);
#pragma unroll
      for (int i = 0; i < deep; ++i) add<Sum>(total[0], v[0][i]);
      if (more)
#pragma unroll
        for (int w = 1; w < wide; ++w)
#pragma unroll
          for (int i = 0; i < deep; ++i) add<Sum>(total[w], v[w][i]);
    }
    for (int bits = columns; bits < 32; bits *= 2) {
      const auto share = [&](float4 &one) {
        add<Sum>(one,
                 float4{lane_xor(one.x, bits), lane_xor(one.y, bits), lane_xor(one.z, bits), lane_xor(one.w, bits)});
      };
      share(total[0]);
      if (more)
#pragma unroll
        for (int w = 1; w < wide; ++w) share(total[w]);
    }
#pragma unroll 1  // what is fused is long, and compiled once so
    for (int w = 0; w < (more ? wide : 1); ++w) {
      float4 one = total[0];
#pragma unroll
      for (int i = 1; i < wide; ++i)
        if (w == i) one = total[i];
      if (reader == 0 && base + w * apart < mine) emit(low + base + w * apart, one);
    }
  }
}

#endif
}  // namespace tw
