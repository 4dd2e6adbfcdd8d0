// The device's half of the gather pipeline: GEMM's multistage block between operands that are gathered and results
// that leave to wherever they belong.
#pragma once
#include <tilewright/cuda/conv/gather/traversal.h>

#ifdef __CUDACC__
#include <tilewright/cuda/gemm/multistage/kernel.h>

namespace tw {

// What each k says, of the k-blocks to come.  All threads work it out for several k-blocks at a time, as many ahead; barriers lie
// in between.
template <class S> struct GatherTable {
  const GatherTraversal<S> &traversal;
  char *shared;
  int k, end;  // the first of the traversal, and where it ends

  template <int Steps> TW_GPU void work_out(int number) const {
#pragma unroll 1
    for (int i = thread_index(); i < Steps * S::entries; i += S::threads) {
      const int step = number + i / S::entries, entry = i % S::entries;
      GatherEntry a, b;
      traversal.of_k(k + step * S::BK + entry * S::grain, end, a, b);
      const int at = (step % (2 * S::ahead) * S::entries + entry) * 8;
      store_shared(shared + at, a);
      store_shared(shared + S::table_bytes / 2 + at, b);
    }
  }
  TW_GPU void begin() const { work_out<2 * S::ahead>(0); }
  // Beside the fetch of a k-block.
  TW_GPU void beside(int number) const {
    if (number % S::ahead == 0 && number > 0) work_out<S::ahead>(number + S::ahead);
  }
};

template <int Bytes> struct of_bytes {
  using type = uint8_t;
};
template <> struct of_bytes<2> {
  using type = uint16_t;
};

// One operand on its way, a thread's part of it.
template <class S, class O, bool First> struct GatherSide {
  using T = typename O::Element;
  const char *from;
  const GatherTable<S> &table;
  char *ring;  // this operand's place in stage 0
  GatherEntry entry_of_line[O::lines];
  int line0, k0;  // of the first piece in a stage
  int number = 0, into = 0, out_of = 0, left;
  uint32_t held[O::held ? O::lines * O::ks * O::piece_k : 1];  // on its way through registers
  int held_for = -1;

  // `lines`: what those of the tile say, in shared memory.
  TW_GPU GatherSide(const void *operand, const GatherTable<S> &k_table, const char *lines, int steps, char *ring_at)
      : from(static_cast<const char *>(operand)), table(k_table), ring(ring_at), left(steps) {
    const int thread = thread_index(), along = thread % O::across, other = thread / O::across;
    line0 = O::AlongK ? other : along * O::piece_lines;
    k0 = O::AlongK ? along * O::piece_k : other * O::piece_k;
#pragma unroll
    for (int i = 0; i < O::lines; ++i) {
      const int at = line0 + i * O::line_step;
      entry_of_line[i] = dealt(at, 0) ? load_shared<GatherEntry>(lines + at * 8) : GatherEntry{0, 0};
    }
  }

  static TW_GPU int next_stage(int stage) { return stage == S::Stages - 1 ? 0 : stage + 1; }
  TW_GPU GatherEntry of_k(int k) const {
    const char *mine = table.shared + (First ? 0 : S::table_bytes / 2);
    return load_shared<GatherEntry>(mine + (number % (2 * S::ahead) * S::entries + k / S::grain) * 8);
  }
  static TW_GPU int place(int line, int k) {
    if constexpr (O::plain) return O::Place::at(k, 0) + line * 4;
    else if constexpr (O::Place::AlongK) return O::Place::at(line, k * O::size / 16) + k * O::size % 16;
    else return O::Place::at(k, line * O::size / 16) + line * O::size % 16;
  }
  // Whether a piece is one of the stage's: some threads have none.
  static TW_GPU bool dealt(int line, int k) { return O::whole || (line < O::Lines && k < O::Deep); }

  template <int Part, int Parts> TW_GPU void copy(char *to) const {
    constexpr int count = O::lines * O::ks;
#pragma unroll
    for (int q = count * Part / Parts; q < count * (Part + 1) / Parts; ++q) {
      const int i = q / O::ks, line = line0 + i * O::line_step, k = k0 + q % O::ks * O::k_step;
      if (!dealt(line, k)) continue;
      const GatherEntry one = of_k(k);
      const long long at = int(entry_of_line[i].at + one.at);
      copy_async<O::Vector>(to + place(line, k), from + at * O::size,
                            GatherTraversal<S>::meets(entry_of_line[i].bits, one.bits) ? O::Vector : 0);
    }
  }
  // The elements of a piece, or zeros.
  TW_GPU void read_piece(uint32_t *to, int line, int k, const GatherEntry &of_line) const {
#pragma unroll
    for (int g = 0; g < O::piece_k; g += O::grain) {
      const GatherEntry one = of_k(k + g);
      const char *at = from + (long long)(int(of_line.at + one.at)) * O::size;
      const bool there = dealt(line, k) && GatherTraversal<S>::meets(of_line.bits, one.bits);
      if constexpr (O::transposed) {
        Word16 word{};
        if (there) word = *reinterpret_cast<const Word16 *>(at);
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = word.w[i];
      } else {
        to[g] = 0;
        if (there) to[g] = *reinterpret_cast<const typename of_bytes<O::size>::type *>(at);
      }
    }
  }
  TW_GPU void read() {
#pragma unroll
    for (int i = 0; i < O::lines; ++i)
#pragma unroll
      for (int j = 0; j < O::ks; ++j)
        read_piece(held + (i * O::ks + j) * O::piece_k, line0 + i * O::line_step, k0 + j * O::k_step, entry_of_line[i]);
    held_for = into;
  }
  // Into shared memory, a k-block later: by then it is there.
  TW_GPU void put() {
    if (held_for < 0) return;
    char *to = ring + held_for * S::stage_bytes;
#pragma unroll
    for (int i = 0; i < O::lines; ++i)
#pragma unroll
      for (int j = 0; j < O::ks; ++j) {
        const int line = line0 + i * O::line_step, k = k0 + j * O::k_step;
        if (!dealt(line, k)) continue;
        const uint32_t *piece = held + (i * O::ks + j) * O::piece_k;
        if constexpr (O::transposed) {
#pragma unroll
          for (int g = 0; g < O::piece_k; ++g) store_shared(to + place(line, k + g), piece[g]);
        } else {
          uint32_t word = 0;
#pragma unroll
          for (int g = 0; g < O::piece_k; ++g) word |= piece[g] << (8 * O::size * g);
          store_shared(to + place(line, k), word);
        }
      }
    held_for = -1;
  }

  template <bool = false> TW_GPU void copy_next() {
    if constexpr (O::plain) {
      copy_part<0, 1>();
      return;
    } else if constexpr (O::single) {
      put();
      if (left > 0) read();
    } else {
      if (left > 0) copy<0, 1>(ring + into * S::stage_bytes);
    }
    fetched();
  }
  // Of plain floats: a part of the next stage.  Behind the last there are zeros.
  template <int Part, int Parts> TW_GPU void copy_part() {
    if constexpr (!O::transposed) {
      copy<Part, Parts>(ring + into * S::stage_bytes);
    } else {
      if constexpr (Part == 0) put();
      if constexpr (Part == (Parts > 1)) read();
    }
    if constexpr (Part == Parts - 1) fetched();
  }
  TW_GPU void fetched() {
    if constexpr (First) table.beside(number);
    ++number;
    --left;
    into = next_stage(into);
  }
  template <int Part, int Parts> TW_GPU void realign_next() {}
  TW_GPU void next() { out_of = next_stage(out_of); }
  TW_GPU const char *tile() const { return ring + out_of * S::stage_bytes; }
  int turn = 0;
};

// Where the results of a tile belong, and what is fused into them.
template <class S, class Config> struct GatherEnd {
  using C = typename Config::C;
  using D = typename Config::D;
  using End = Finish<Config>;
  using Real = typename End::Real;
  static constexpr int outside = -2147483647 - 1, num_d = Config::num_d;
  static constexpr int width = sizeof(C) == 4 ? 4 : 8;

  const ConvGatherArgs &x;
  C *e;
  const D *d[num_d ? num_d : 1];
  char *shared;  // of rows and columns
  int column0;

  TW_GPU GatherEnd(const ConvGatherArgs &args, int group, char *at, int column)
      : x(args), e(static_cast<C *>(args.e) + group * args.e_group), shared(at), column0(column) {
#pragma unroll
    for (int t = 0; t < num_d; ++t) d[t] = static_cast<const D *>(x.d[t]) + group * x.d_group[t];
  }
  TW_GPU int *rows() const { return reinterpret_cast<int *>(shared + 8 * num_d * S::BM); }
  TW_GPU int *columns() const { return rows() + S::BM; }
  TW_GPU long long *d_rows(int t) const { return reinterpret_cast<long long *>(shared) + t * S::BM; }

  // What lines of the tile say, and where its rows and columns lie: by all threads, and a barrier must follow.
  TW_GPU void work_out(const GatherTraversal<S> &traversal, int row0, char *lines) const {
#pragma unroll 1
    for (int i = thread_index(); i < S::BM; i += S::threads) {
      const int line = row0 + i;
      int at = outside;
      GatherEntry entry_of_line = traversal.no_line_a();
      if constexpr (S::weight) {
        if (line < x.m) at = int(unsigned(line) * x.e_row), entry_of_line = traversal.of_line_a(line);
      } else if (line < x.m) {
        const auto place = traversal.digits(line);
        entry_of_line = traversal.gathered(place);
        if (traversal.inside(place)) at = int(traversal.own(place));
#pragma unroll
        for (int t = 0; t < num_d; ++t)
          store_shared(d_rows(t) + i, place.at[0] * x.d_place[t][0] + place.at[1] * x.d_place[t][1] +
                                          place.at[2] * x.d_place[t][2] + place.at[3] * x.d_image[t]);
      }
      store_shared(rows() + i, at);
      store_shared(lines + i * 8, entry_of_line);
    }
#pragma unroll 1
    for (int i = thread_index(); i < S::BN; i += S::threads) {
      const int line = column0 + i;
      int at = int(unsigned(line) * x.e_column);
      if constexpr (S::weight) {
        const int number = x.inner.quotient(line);
        at = int(traversal.tap(number).weights + unsigned(line - number * int(x.inner.by)) * x.e_column);
      }
      if (line >= x.n) at = outside;
      store_shared(columns() + i, at);
      store_shared(lines + (S::BM + i) * 8, traversal.of_line_b(line));
    }
  }

  // Accumulators of neighbouring columns, as many as `wide` says lie side by side, or one.
  template <int Count, class Sum> TW_GPU void store(const Sum (&accum)[Count], int row, int column) const {
    const int at = load_shared<int>(rows() + row), more = load_shared<int>(columns() + column);
    if (at == outside || more == outside) return;
    Some<C, Count> results;
    if constexpr (!End::fused && same_type<C, Sum>::value) {
#pragma unroll
      for (int i = 0; i < Count; ++i) results.v[i] = accum[i];
    } else {
      Real v[Count];
#pragma unroll
      for (int i = 0; i < Count; ++i) v[i] = Real(accum[i]);
#pragma unroll
      for (int t = 0; t < num_d; ++t) {
        const D *of = d[t] + load_shared<long long>(d_rows(t) + row) + (column0 + column) * x.d_column[t];
        Some<D, Count> given;
        if (x.d_column[t] == 1) {
          given = load_some<Count>(of, Count);
        } else {
#pragma unroll
          for (int i = 0; i < Count; ++i) given.v[i] = of[i * x.d_column[t]];
        }
#pragma unroll
        for (int i = 0; i < Count; ++i) {
          if constexpr (End::exact) v[i] = End::combine(v[i], Real(given.v[i]));
          else v[i] = End::combine(v[i], to_float(given.v[i]));
        }
      }
#pragma unroll
      for (int i = 0; i < Count; ++i) round_to(activate<Config::epilogue>(v[i]), results.v[i]);
    }
    C *to = e + (long long)(at) + more;
    if constexpr (Count == 1) *to = results.v[0];
    else *reinterpret_cast<Some<C, Count> *>(to) = results;
  }
};

template <class S, class Config> struct GatherBlock : MultistageBlock<S, Config> {
  using Base = MultistageBlock<S, Config>;
  using Sum = typename S::Sum;
  using M = typename Base::M;
  using End = GatherEnd<S, Config>;

  template <int Count> static TW_GPU void take(const char *shared, int r, int c, Sum (&accum)[Count]) {
    if constexpr (Count == 1) {
      accum[0] = load_shared<Sum>(shared + Base::staging(r, c) * 4);
    } else {
      struct alignas(16) Four {
        Sum v[4];
      };
      const bool crossed = r >> 2 & 1;  // neighbours change places
#pragma unroll
      for (int q = 0; q < Count; q += 4) {
        const Four from = load_shared<Four>(shared + ((Base::staging(r, c) & ~1) + q) * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) accum[q + i] = crossed ? from.v[i ^ 1] : from.v[i];
      }
    }
  }
  // Neighbouring threads store neighbouring columns, or where these lie apart neighbouring rows.
  TW_GPU void store_tile(char *shared, const End &end) const {
    const auto some = [&](auto count, int tile_row, int c, int r) {
      Sum accum[decltype(count)::value];
      take(shared, r, c, accum);
      end.store(accum, tile_row, c);
    };
    this->by_staging(shared, [&](int i) {
      if (end.x.wide) {
        Base::template along_rows<End::width>(
            i, [&](int tile_row, int c, int r) { some(Number<End::width>{}, tile_row, c, r); });
      } else {
#pragma unroll(Finish<Config>::fused ? 1 : 4)  // several are under way
        for (int at = thread_index(); at < S::staging_rows * S::BN; at += S::threads) {
          const int r = end.x.down ? at % S::staging_rows : at / S::BN,
                    c = end.x.down ? at / S::staging_rows : at % S::BN;
          some(Number<1>{}, r / M::m * S::warp_m + i * M::m + r % M::m, c, r);
        }
      }
    });
  }
  // Split-K: all blocks of a tile write their partial sums, wait for each other, and each finishes a part of the tile.
  TW_GPU void reduce_across_cluster(char *shared, const ConvGatherArgs &x, const Segment &s, const End &end) const {
    const int parts = x.order.parts, tile = S::BM * S::BN;
    float *first = x.partial + (long long)s.tile * parts * tile, *mine = first + (long long)s.part * tile;
    const auto write_partials = [&](int tile_row, int c, int r) {
      Sum v[4];
      take(shared, r, c, v);
      store_through(reinterpret_cast<float4 *>(mine + tile_row * S::BN + c),
                    float4{to_word(v[0]), to_word(v[1]), to_word(v[2]), to_word(v[3])});
    };
    this->by_staging(shared, [&](int i) { Base::template along_rows<4>(i, write_partials); });
    block_barrier();
    unsigned *words = x.flags + 2 * s.tile;
    if (thread_index() == 0) sync(words, unsigned(parts));
    block_barrier();
    add_up<S::threads, Sum>(first, tile, Stretch(tile / 4, s.part, parts), parts, thread_index(),
                            [&](int index, const float4 &total) {
                              const int row = index * 4 / S::BN, column = index * 4 % S::BN;
                              const Sum accum[4] = {from_word<Sum>(total.x), from_word<Sum>(total.y),
                                                    from_word<Sum>(total.z), from_word<Sum>(total.w)};
                              if (x.wide) return end.store(accum, row, column);
#pragma unroll
                              for (int i = 0; i < 4; ++i) {
                                const Sum one[1] = {accum[i]};
                                end.store(one, row, column + i);
                              }
                            });
    if (thread_index() == 0) part(words, unsigned(parts));
  }

 private:
  template <int Count> struct Number {
    static constexpr int value = Count;
  };
};

template <class S, class Config> TW_GPU void conv_gather(const ConvGatherArgs &x) {
  Work<S::Scheduler, false> work(x.order, block_index(), block_count());
  Segment s;
  if (!work.next(s)) return;  // as many blocks as there are tiles or splits of tiles
  using T = typename Config::A;
  char *shared = dynamic_shared();
  const int group = x.tiles_n.quotient(s.n), column0 = (s.n - group * int(x.tiles_n.by)) * S::BN;
  const GatherTraversal<S> traversal(x, s.z);
  const int begin = s.k0 * S::BK, end_k = s.k1 * S::BK < traversal.deep ? s.k1 * S::BK : traversal.deep;
  const int steps = begin < end_k ? (end_k - begin + S::BK - 1) / S::BK : 0;
  const GatherTable<S> table{traversal, shared + S::table_at, begin, end_k};
  const GatherEnd<S, Config> end(x, group, shared + S::rows_at, column0);
  char *lines = shared + S::lines_at;
  end.work_out(traversal, s.m * S::BM, lines);
  table.begin();
  block_barrier();
  GatherSide<S, typename S::A, true> a(static_cast<const T *>(x.a) + group * x.a_group, table, lines, steps, shared);
  GatherSide<S, typename S::B, false> b(static_cast<const T *>(x.b) + group * x.b_group, table, lines + S::BM * 8,
                                        steps, shared + S::A::stage_bytes);
  GatherBlock<S, Config> block;
  block.run(a, b, steps);
  if (x.order.parts > 1) block.reduce_across_cluster(shared, x, s, end);
  else block.store_tile(shared, end);
}

}  // namespace tw

#define TW_DEVICE_CONV_GATHER(Config, Symbol) \
  extern "C" __global__ void __launch_bounds__(tw::ConvGather<Config>::threads, tw::ConvGather<Config>::ctas_per_sm) \
      Symbol(const __grid_constant__ tw::ConvGatherArgs x) { \
    tw::conv_gather<tw::ConvGather<Config>, Config>(x); \
  }
#else
#define TW_DEVICE_CONV_GATHER(Config, Symbol)
#endif
