// The host's half of a GEMM kernel: what it refuses, with a sentence, and how its launch is made.
// A launch allocates nothing and waits for nothing, so it can be captured in a graph; the first one in
// a context loads the code.
#pragma once
#include <tilewright/gemm_args.h>
#include <tilewright/cuda/driver.h>
#include <tilewright/cuda/tensor_maps.h>
#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#endif

namespace tw::cuda {

inline int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// How a function is launched: what decides how many blocks run at a time.
struct LaunchShape {
  unsigned threads, shared_bytes, cluster;
};

inline int start(Function function, unsigned blocks, unsigned batch, const LaunchShape &shape, void *stream,
                 void **parameters) {
  LaunchAttribute attribute{cluster_dimension, {}, {shape.cluster, 1, 1}};
  LaunchConfig config{{blocks, batch, 1}, {shape.threads, 1, 1},      shape.shared_bytes, stream,
                      &attribute,         shape.cluster > 1 ? 1u : 0u};
  return driver().launch(&config, function, parameters, nullptr);
}

// A kernel's functions in each context that used it, loaded on first use.
struct Loaded {
  struct Place {
    Context context;
    Function function, repack, pack;
    int multiprocessors, clusters;
  };
  const char *symbol, *repack, *pack;  // the last two may be null
  const void *(*image)();
  Lock lock{};
  int count = 0;
  Place places[16] = {};

  // 0 and the place, or the driver's error.
  int get(Place &place, const LaunchShape &shape) {
    const Driver &cu = driver();
    if (!cu.whole) return 3;  // CUDA_ERROR_NOT_INITIALIZED
    Context context = nullptr;
    if (int error = cu.get_context(&context)) return error;
    if (!context) return 201;  // CUDA_ERROR_INVALID_CONTEXT
    lock.take();
    int error = 0, at = 0;
    while (at < count && places[at].context != context) ++at;
    if (at == count) error = load(at % 16, context, shape);
    place = places[at % 16];
    lock.give();
    return error;
  }

 private:
  int load(int at, Context context, const LaunchShape &shape) {
    const Driver &cu = driver();
    Place made{context, nullptr, nullptr, nullptr, 0, 0};
    int device = 0;
    void *module = nullptr;
#ifdef __CUDACC__
    cudaFunction_t found = nullptr;
    int error = cudaGetFuncBySymbol(&found, image());
    made.function = found;
    if (!error && (repack || pack)) error = cu.module_of ? cu.module_of(&module, made.function) : 36;
#else
    int error = cu.load(&module, image());
    if (!error) error = cu.find(&made.function, module, symbol);
#endif
    if (!error && repack) error = cu.find(&made.repack, module, repack);
    if (!error && pack) error = cu.find(&made.pack, module, pack);
    if (!error && shape.shared_bytes > 48 * 1024)
      error = cu.set_attribute(made.function, max_dynamic_shared, int(shape.shared_bytes));
    if (!error) error = cu.get_device(&device);
    if (!error) error = cu.device_attribute(&made.multiprocessors, multiprocessors, device);
    if (error) return error;
    // Not every multiprocessor has neighbours left to form a cluster with.
    made.clusters = made.multiprocessors / int(shape.cluster);
    if (shape.cluster > 1 && cu.resident) {
      LaunchAttribute attribute{cluster_dimension, {}, {shape.cluster, 1, 1}};
      LaunchConfig config{{shape.cluster, 1, 1}, {shape.threads, 1, 1}, shape.shared_bytes, nullptr, &attribute, 1};
      int most = 0;
      error = cu.resident(&most, made.function, &config);
      if (error) return error;
      if (most > 0 && most < made.clusters) made.clusters = most;
    }
    places[at] = made;
    if (count < 16) ++count;
    return 0;
  }
};

inline EpilogueArgs epilogue_args(const tw_gemm_args &x) {
  EpilogueArgs f{x.alpha, x.beta, x.c, {x.d[0], x.d[1]}, x.c_stride, x.c_batch_stride, {}, {}, {}};
  for (int t = 0; t < TW_MAX_D; ++t)
    f.d_row[t] = x.d_row_stride[t], f.d_column[t] = x.d_col_stride[t], f.d_batch[t] = x.d_batch_stride[t];
  return f;
}

template <class Config> struct Gemm {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  static constexpr auto pipeline = Config::pipeline;
  static constexpr bool packed = Config::packed;  // B is what `pack` made
  static constexpr int64_t most = int64_t(1) << 31;

  static bool empty(const tw_gemm_args &x) { return x.m == 0 || x.n == 0 || x.batch == 0; }
  static bool odd(int64_t elements, int64_t bytes) { return elements * bytes % 16 != 0; }
  static bool odd(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; }
  static bool odd_a(const tw_gemm_args &x) {
    return odd(x.a) || odd(x.a_stride, sizeof(A)) || (x.batch > 1 && odd(x.a_batch_stride, sizeof(A)));
  }
  static bool odd_b(const tw_gemm_args &x) {
    return packed ? false : odd(x.b) || odd(x.b_stride, sizeof(B)) || (x.batch > 1 && odd(x.b_batch_stride, sizeof(B)));
  }

  // What `pack` makes of B: a batch stride of 0 means one matrix for the whole batch.
  static PackArgs pack_args(const tw_gemm_args &x) {
    const int64_t padded = ceil_div(x.n, Pack::atom) * Pack::atom, blocks = ceil_div(x.k * sizeof(B), Pack::row);
    return PackArgs{x.b,        nullptr,          x.n,    x.k,   x.b_batch_stride ? x.batch : 1,
                    x.b_stride, x.b_batch_stride, padded, blocks};
  }
  static int64_t packed_bytes(const void *args) {
    const PackArgs t = pack_args(*static_cast<const tw_gemm_args *>(args));
    return t.padded * t.blocks * Pack::row * t.batch;
  }
  static int run_pack(Loaded &loaded, const void *args, void *to, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (x.n < 0 || x.k < 0 || x.batch < 0 || x.b_stride < (Config::b_rows ? x.n : x.k) || odd(to)) return TW_BAD_ARGS;
    PackArgs t = pack_args(x);
    t.to = static_cast<char *>(to);
    const int64_t pieces = t.padded * t.blocks * t.batch * (Pack::row / Pack::piece);
    if (!pieces) return TW_OK;
    Loaded::Place place{};
    int error = TW_BAD_ARGS;
    if constexpr (Config::packed) error = loaded.get(place, shape());  // shapes of other pipelines are not of this kind
    const int64_t most = ceil_div(pieces, Pack::threads), fair = int64_t(place.multiprocessors) * 16;
    void *parameters[] = {&t};
    if (!error)
      error = start(place.pack, unsigned(most < fair ? most : fair), 1, LaunchShape{unsigned(Pack::threads), 0, 1},
                    stream, parameters);
    return error ? TW_DEVICE | error << 8 : TW_OK;
  }

  // The first rule that is broken, as a code and a sentence.  The op's `supports` says the same in Python.
  static int broken(const tw_gemm_args *args, const char **why) {
    auto is = [why](int code, const char *sentence) {
      *why = sentence;
      return code;
    };
    if (!args) return is(TW_BAD_ARGS, "args is null");
    const tw_gemm_args &x = *args;
    if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return is(TW_BAD_ARGS, "a size is negative");
    if (x.a_stride < (Config::a_rows ? x.k : x.m)) return is(TW_BAD_ARGS, "the stride of A is shorter than its row");
    if (!packed && x.b_stride < (Config::b_rows ? x.n : x.k))
      return is(TW_BAD_ARGS, "the stride of B is shorter than its row");
    if (x.e_stride < x.n) return is(TW_BAD_ARGS, "the stride of E is shorter than its row");
    if (x.beta != 0 && !x.c) return is(TW_BAD_ARGS, "beta is not 0 but C is null");
    for (int t = 0; t < Config::num_d; ++t) {
      if (!empty(x) && !x.d[t]) return is(TW_BAD_ARGS, "a D tensor is null");
      if (x.d_col_stride[t] != 0 && x.d_col_stride[t] != 1)
        return is(TW_BAD_ARGS, "the column stride of a D tensor is neither 0 nor 1");
    }
    if (empty(x)) return is(TW_OK, "");
    if constexpr (pipeline == Pipeline::generic) return is(TW_OK, "");
    if constexpr (pipeline == Pipeline::multistage) {
      if (x.m >= most / 4 || x.n >= most / 4 || x.k >= most / 4) return is(TW_LIMIT, "a size is 2^29 or more");
      if (double(ceil_div(x.m, Config::tile_m)) * ceil_div(x.n, Config::tile_n) * x.batch >= most)
        return is(TW_LIMIT, "2^31 or more tiles");
      // Rows that are less than four-byte aligned may start anywhere.
      auto off = [&x](const void *at, int64_t stride, int64_t batch_stride, int64_t size, int64_t grain) {
        return grain >= 4 &&
               (intptr_t(at) % grain || stride * size % grain || (x.batch > 1 && batch_stride * size % grain));
      };
      if (off(x.a, x.a_stride, x.a_batch_stride, sizeof(A), Config::vector_a))
        return is(TW_ALIGNMENT,
                  "A, its leading stride or its batch stride is not aligned to what this kernel copies at a time");
      if (off(x.b, x.b_stride, x.b_batch_stride, sizeof(B), Config::vector_b))
        return is(TW_ALIGNMENT,
                  "B, its leading stride or its batch stride is not aligned to what this kernel copies at a time");
      return is(TW_OK, "");
    }
    if (x.k == 0) return is(TW_LIMIT, "k is 0: this pipeline has nothing to copy");
    if (x.m >= most || x.n >= most || x.k >= most) return is(TW_LIMIT, "a size is 2^31 or more");
    if constexpr (pipeline == Pipeline::skinny) {
      if (odd_a(x)) return is(TW_ALIGNMENT, "A, its leading stride or its batch stride is not a multiple of 16 bytes");
      if (odd_b(x)) return is(TW_ALIGNMENT, "B, its leading stride or its batch stride is not a multiple of 16 bytes");
      using S = skinny_of<Config>;
      if ((Config::few_columns ? x.n : x.m) > S::tokens)
        return is(TW_LIMIT, "more rows (or columns) than this kernel holds");
      if (x.k % 8) return is(TW_DIVISIBILITY, "k is not a multiple of 8");
      if (x.batch > 65535) return is(TW_LIMIT, "the batch is over 65535");
    } else {
      // What is not said of a problem one by one (addresses, batch strides) must hold for all three.
      const bool batched =
          x.batch > 1 && (odd(x.a_batch_stride, sizeof(A)) || (!packed && odd(x.b_batch_stride, sizeof(B))) ||
                          odd(x.e_batch_stride, sizeof(C)));
      if (packed && odd(x.b)) return is(TW_ALIGNMENT, "the packed B does not start at a multiple of 16 bytes");
      if (Config::tma_store &&
          (odd(x.a) || odd(x.b) || odd(x.e) || batched || odd(x.e_stride, sizeof(C)) || odd(x.n, sizeof(C))))
        return is(TW_ALIGNMENT,
                  "an address, a batch stride, or a row of E or its stride is not a multiple of 16 bytes");
      // In floating point: the product of four sizes may pass 64 bits.
      if (double(ceil_div(x.m, Config::tile_m)) * ceil_div(x.n, Config::tile_n) * x.batch *
              ceil_div(x.k, 128 / sizeof(A)) >=
          most)
        return is(TW_LIMIT, "2^31 or more steps of tiles along k");
    }
    return is(TW_OK, "");
  }
  static int check(const void *args, char *why, size_t bytes) {
    const char *sentence = "";
    int code = broken(static_cast<const tw_gemm_args *>(args), &sentence);
    size_t i = 0;
    for (; bytes && i + 1 < bytes && sentence[i]; ++i) why[i] = sentence[i];
    if (bytes) why[i] = 0;
    return code;
  }

  // Words where blocks meet, then what sums that change hands need, then copies of operands the copy engine
  // cannot read.
  static constexpr int most_blocks = 144;  // no sm_90 GPU has more multiprocessors
  static constexpr bool dealt =
      (pipeline == Pipeline::tma_ws || pipeline == Pipeline::multistage) && Config::deal != Deal::tiles;
  static constexpr int64_t clear_bytes = dealt ? most_blocks * 16 : 0;  // four words a block
  static constexpr int64_t sums_bytes = dealt ? int64_t(most_blocks) * Config::tile_m * Config::tile_n * 4 : 0;
  static int64_t workspace(const void *args, int64_t) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return 0;
    if (pipeline != Pipeline::tma_ws) return clear_bytes + sums_bytes;
    return clear_bytes + sums_bytes + (odd_a(x) ? copy_bytes(x, true) : 0) + (odd_b(x) ? copy_bytes(x, false) : 0);
  }

  static int run(Loaded &loaded, const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    Loaded::Place place;
    int error;
    if constexpr (pipeline == Pipeline::tma_ws) {
      if (!driver().encode) return TW_DEVICE | 36 << 8;  // the driver is older than CUDA 12
      error = loaded.get(place, shape());
      if (!error) error = run_tma_ws(x, place, workspace, stream);
    } else if constexpr (pipeline == Pipeline::multistage) {
      error = loaded.get(place, multistage_launch());
      if (!error) error = run_multistage(x, place, workspace, stream);
    } else {
      error = loaded.get(place, LaunchShape{0, 0, 1});
      if (!error) error = pipeline == Pipeline::skinny ? run_skinny(x, place, stream) : run_generic(x, place, stream);
    }
    return error < 0 ? -error : error ? TW_DEVICE | error << 8 : TW_OK;
  }

 private:
  // An operand with rows that start at multiples of 128 bytes; a broadcast one is copied once.
  static RepackJob copy_of(const tw_gemm_args &x, bool of_a, char *to) {
    const int64_t bytes = of_a ? sizeof(A) : sizeof(B), batch_stride = of_a ? x.a_batch_stride : x.b_batch_stride;
    const int64_t length = (of_a ? Config::a_rows : !Config::b_rows) ? x.k
                           : of_a                                    ? x.m
                                                                     : x.n,
                  lines = (of_a ? x.m : x.n) + x.k - length;
    return RepackJob{static_cast<const char *>(of_a ? x.a : x.b),
                     to,
                     length * bytes,
                     lines,
                     batch_stride ? x.batch : 1,
                     (of_a ? x.a_stride : x.b_stride) * bytes,
                     batch_stride * bytes,
                     ceil_div(length * bytes, 128) * 128};
  }
  static int64_t copy_bytes(const tw_gemm_args &x, bool of_a) {
    const RepackJob job = copy_of(x, of_a, nullptr);
    return job.to_stride * job.lines * job.batch;
  }
  static constexpr LaunchShape shape() {
    using S = tma_ws_of<Config>;
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), unsigned(S::Cluster)};
  }

  // Operands the copy engine cannot read are copied first; the problem is then about the copies.
  static int repack_odd(tw_gemm_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    const bool a = odd_a(x), b = odd_b(x);
    if (!a && !b) return 0;
    if (!workspace) return -TW_BAD_ARGS;
    char *free = static_cast<char *>(workspace) + clear_bytes + sums_bytes;
    RepackArgs t{};
    int jobs = 0;
    int64_t blocks[2] = {0, 0};
    for (int which = 0; which < 2; ++which) {
      const bool of_a = which == 0;
      if (!(of_a ? a : b)) continue;
      RepackJob &job = t.job[jobs] = copy_of(x, of_a, free);
      free += copy_bytes(x, of_a);
      const int64_t elements = job.to_stride / (of_a ? sizeof(A) : sizeof(B)),
                    every = job.batch > 1 ? elements * job.lines : 0;
      (of_a ? x.a : x.b) = job.to;
      (of_a ? x.a_stride : x.b_stride) = elements;
      (of_a ? x.a_batch_stride : x.b_batch_stride) = every;
      const int64_t most = ceil_div(job.lines * job.batch, Repack::lines_at_once),
                    fair = int64_t(place.multiprocessors) * 8;
      blocks[jobs++] = most < fair ? most : fair;
    }
    t.first = unsigned(blocks[0]);
    void *parameters[] = {&t};
    return start(place.repack, unsigned(blocks[0] + blocks[1]), 1, LaunchShape{unsigned(Repack::threads), 0, 1}, stream,
                 parameters);
  }

  // How the work is dealt out; the number of clusters to launch comes back.
  template <class S> static int64_t deal(TileOrder &order, int64_t clusters) {
    const int64_t tiles = int64_t(order.tiles_m) * order.tiles_n * order.batch, steps = order.steps;
    order.parts = 1;
    if constexpr (S::Dealt == Deal::stream_k) {
      // What would not fill the last round; a round more where that is little, or a tile would go to too many.
      int64_t streamed = tiles % clusters;
      if (streamed && streamed * 2 < clusters && tiles > clusters) streamed += clusters;
      const int64_t share = ceil_div(streamed * steps, clusters);
      order.streamed = int(streamed), order.share = int(share < 4 ? 4 : share);
      return tiles > streamed ? clusters : ceil_div(tiles * steps, order.share);
    }
    if constexpr (S::Dealt == Deal::split_k) {
      // As many parts as run at the same time (they wait for each other), of at least four steps.
      int64_t parts = tiles < clusters ? clusters / tiles : 1;
      if (parts > steps / 4) parts = steps < 8 ? 1 : steps / 4;
      order.share = int(ceil_div(steps, parts));
      order.parts = int(ceil_div(steps, order.share));
      if (order.parts > 1) return tiles * order.parts;
    }
    return tiles < clusters ? tiles : clusters;
  }

  static int run_tma_ws(tw_gemm_args x, const Loaded::Place &place, void *workspace, void *stream) {
    if constexpr (pipeline == Pipeline::tma_ws) {
      using S = tma_ws_of<Config>;
      if (dealt && !workspace) return -TW_BAD_ARGS;
      if (int error = repack_odd(x, place, workspace, stream)) return error;
      constexpr int k_box = S::BK;
      // k-contiguous: rows of 128 bytes; else 64 lines of 64 elements.
      using MapA = MapCache<A, S::MajorA ? 64 : k_box, S::MajorA ? 64 : S::BM / S::ClusterN, 3>;
      using MapB = MapCache<B, S::MajorB ? 64 : k_box, S::MajorB ? 64 : S::BN / S::ClusterM, 3>;
      using MapE = MapCache<C, S::chunk_columns, 64, S::chunk_columns == 64 ? 3 : S::chunk_columns == 32 ? 2 : 1>;
      static MapA maps_a;
      static MapB maps_b;
      TensorMap a = {}, b = {}, e = {};
      // As the kernel sees them: turned, it is B that lies along its m.
      struct Operand {
        const void *at;
        int64_t lines, stride, batch_stride;
      };
      Operand first{x.a, x.m, x.a_stride, x.a_batch_stride}, second{x.b, x.n, x.b_stride, x.b_batch_stride};
      if constexpr (S::Turned) {
        Operand was = first;
        first = second;
        second = was;
      }
      auto key = [&x](const Operand &o, bool lines_first) {
        // One matrix for the whole batch: every z reads the same one (every_a, every_b).
        return MapKey{o.at,
                      lines_first ? o.lines : x.k,
                      lines_first ? x.k : o.lines,
                      o.batch_stride ? x.batch : 1,
                      o.stride,
                      o.batch_stride};
      };
      int error = 0;
      if (!S::PackedA) error = maps_a.get(key(first, S::MajorA), a);
      if (!error && !S::PackedB) error = maps_b.get(key(second, S::MajorB), b);
      if constexpr (S::TmaStore) {
        static MapE maps_e;
        if (!error) error = maps_e.get(MapKey{x.e, x.n, x.m, x.batch, x.e_stride, x.e_batch_stride}, e);
      }
      if (error) return error;
      TmaWsArgs t{};
      t.m = int(first.lines), t.n = int(second.lines), t.k = int(x.k);
      t.order.batch = int(x.batch), t.order.steps = int(ceil_div(x.k, S::BK));
      t.order.tiles_m = int(ceil_div(t.m, S::BM * S::ClusterM)),
      t.order.tiles_n = int(ceil_div(t.n, S::BN * S::ClusterN));
      t.order.group = 2048 / (S::BM * S::ClusterM);  // bands of that many rows: about as high as a round is wide
      t.every_a = first.batch_stride ? 1 : 0, t.every_b = second.batch_stride ? 1 : 0;
      t.e = x.e, t.e_stride = x.e_stride, t.e_batch_stride = x.e_batch_stride;
      if (dealt) {
        t.flags = static_cast<unsigned *>(workspace);
        t.partial = reinterpret_cast<float *>(static_cast<char *>(workspace) + clear_bytes);
      }
      if (packed) {
        const PackArgs form = pack_args(x);
        t.packed = static_cast<const char *>(x.b);
        t.packed_lines = int(form.padded), t.packed_block = form.padded * Pack::row,
        t.packed_batch = t.packed_block * form.blocks;
      }
      t.finish = epilogue_args(x);
      constexpr int64_t limit = most_blocks / S::Cluster;
      const int64_t clusters = deal<S>(t.order, place.clusters < 1       ? 1
                                                : place.clusters > limit ? limit
                                                                         : place.clusters);
      void *parameters[] = {&a, &b, &e, &t};
      return start(place.function, unsigned(clusters * S::Cluster), 1, shape(), stream, parameters);
    }
    return 0;
  }

  static constexpr LaunchShape multistage_launch() {
    using S = Multistage<Config>;
    return LaunchShape{unsigned(S::threads), unsigned(S::shared_bytes), 1};
  }
  static int run_multistage(const tw_gemm_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if constexpr (pipeline == Pipeline::multistage) {
      using S = Multistage<Config>;
      if (dealt && !workspace) return -TW_BAD_ARGS;
      MultistageArgs t{};
      t.m = int(x.m), t.n = int(x.n), t.k = int(x.k);
      t.order.batch = int(x.batch),
      t.order.steps = x.k ? int(ceil_div(x.k, S::BK)) : 1;  // without k, one step of zeros
      t.order.tiles_m = int(ceil_div(x.m, S::BM)), t.order.tiles_n = int(ceil_div(x.n, S::BN));
      t.order.group = 8;
      t.a = x.a, t.b = x.b, t.e = x.e;
      t.a_stride = x.a_stride, t.b_stride = x.b_stride, t.e_stride = x.e_stride;
      t.a_batch = x.a_batch_stride, t.b_batch = x.b_batch_stride, t.e_batch = x.e_batch_stride;
      if (dealt) {
        t.flags = static_cast<unsigned *>(workspace);
        t.partial = reinterpret_cast<float *>(static_cast<char *>(workspace) + clear_bytes);
      }
      t.finish = epilogue_args(x);
      const int64_t tiles = int64_t(t.order.tiles_m) * t.order.tiles_n * x.batch;
      const int64_t parts = deal<S>(t.order, place.multiprocessors > most_blocks ? most_blocks : place.multiprocessors);
      void *parameters[] = {&t};
      return start(place.function, unsigned(t.order.parts > 1 ? parts : tiles), 1, multistage_launch(), stream,
                   parameters);
    }
    return 0;
  }

  static int run_skinny(const tw_gemm_args &x, const Loaded::Place &place, void *stream) {
    if constexpr (pipeline == Pipeline::skinny) {
      using S = skinny_of<Config>;
      SkinnyArgs t{
          x.a,        x.b,        x.e,        int(x.m),         int(x.n),         int(x.k),         int(x.batch),
          x.a_stride, x.b_stride, x.e_stride, x.a_batch_stride, x.b_batch_stride, x.e_batch_stride, epilogue_args(x)};
      if (S::Swapped)
        t.a = x.b, t.b = x.a, t.m = int(x.n), t.n = int(x.m), t.a_stride = x.b_stride, t.b_stride = x.a_stride,
        t.a_batch = x.b_batch_stride, t.b_batch = x.a_batch_stride;
      void *parameters[] = {&t};
      return start(place.function, unsigned(ceil_div(t.n, S::rows)), unsigned(x.batch),
                   LaunchShape{unsigned(S::threads), 0, 1}, stream, parameters);
    }
    return 0;
  }

  static int run_generic(const tw_gemm_args &x, const Loaded::Place &place, void *stream) {
    GenericArgs t{x.m,
                  x.n,
                  x.k,
                  x.batch,
                  ceil_div(x.m, Generic::tile),
                  ceil_div(x.n, Generic::tile),
                  x.a,
                  x.b,
                  x.e,
                  x.a_stride,
                  x.b_stride,
                  x.e_stride,
                  x.a_batch_stride,
                  x.b_batch_stride,
                  x.e_batch_stride,
                  epilogue_args(x)};
    int64_t tiles = t.tiles_m * t.tiles_n * x.batch, blocks = tiles < (1 << 30) ? tiles : 1 << 30;
    void *parameters[] = {&t};
    return start(place.function, unsigned(blocks), 1, LaunchShape{unsigned(Generic::threads), 0, 1}, stream,
                 parameters);
  }
};

}  // namespace tw::cuda
