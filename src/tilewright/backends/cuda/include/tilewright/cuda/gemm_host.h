// The host's half of a GEMM kernel: what it refuses, with a sentence, and how its launch is made.
// A launch allocates nothing and waits for nothing, so it can be captured in a graph; the first one in
// a context loads the code.
#pragma once
#include <tilewright/abi.h>
#include <tilewright/cuda/driver.h>
#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#endif

namespace tw::cuda {

inline int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// A kernel's function in each context that used it, loaded on first use.
struct Loaded {
  struct Place { Context context; Function function; int multiprocessors; };
  const char *symbol;
  const void *(*image)();
  Lock lock{};
  int count = 0;
  Place places[16] = {};

  // 0 and the place, or the driver's error.
  int get(Place &place, int shared_bytes) {
    const Driver &cu = driver();
    if (!cu.whole) return 3;  // CUDA_ERROR_NOT_INITIALIZED
    Context context = nullptr;
    if (int error = cu.get_context(&context)) return error;
    if (!context) return 201;  // CUDA_ERROR_INVALID_CONTEXT
    lock.take();
    int error = 0, at = 0;
    while (at < count && places[at].context != context) ++at;
    if (at == count) error = load(at % 16, context, shared_bytes);
    place = places[at % 16];
    lock.give();
    return error;
  }

 private:
  int load(int at, Context context, int shared_bytes) {
    const Driver &cu = driver();
    Place made{context, nullptr, 0};
    int device = 0;
#ifdef __CUDACC__
    cudaFunction_t found = nullptr;
    int error = cudaGetFuncBySymbol(&found, image());
    made.function = found;
#else
    void *module = nullptr;
    int error = cu.load(&module, image());
    if (!error) error = cu.find(&made.function, module, symbol);
#endif
    if (!error && shared_bytes > 48 * 1024) error = cu.set_attribute(made.function, max_dynamic_shared, shared_bytes);
    if (!error) error = cu.get_device(&device);
    if (!error) error = cu.device_attribute(&made.multiprocessors, multiprocessors, device);
    if (error) return error;
    places[at] = made;
    if (count < 16) ++count;
    return 0;
  }
};

inline EpilogueArgs epilogue_args(const tw_gemm_args &x) {
  EpilogueArgs f{x.alpha, x.beta, x.c, {x.d[0], x.d[1]}, x.c_stride, x.c_batch_stride, {}, {}, {}};
  for (int t = 0; t < TW_MAX_D; ++t) f.d_row[t] = x.d_row_stride[t], f.d_column[t] = x.d_col_stride[t], f.d_batch[t] = x.d_batch_stride[t];
  return f;
}

// An operand as the copy engine sees it: x contiguous, y lines a stride apart, z the batch.
struct MapKey {
  const void *address;
  int64_t x, y, z, stride, batch_stride;
  bool operator==(const MapKey &o) const {
    return address == o.address && x == o.x && y == o.y && z == o.z && stride == o.stride && batch_stride == o.batch_stride;
  }
};

template <class T> struct map_type;  // CUtensorMapDataType
template <> struct map_type<bf16> { static constexpr int value = 9; };
template <> struct map_type<fp16> { static constexpr int value = 6; };
template <> struct map_type<float> { static constexpr int value = 7; };
template <> struct map_type<fp8_e4m3> { static constexpr int value = 0; };
template <> struct map_type<fp8_e5m2> { static constexpr int value = 0; };

// Maps of the problems seen last, so that a repeated call encodes nothing.
template <class T, int BoxX, int BoxY, int Swizzle> struct MapCache {
  static constexpr int size = 8;
  Lock lock{};
  unsigned turn = 0;
  MapKey keys[size] = {};
  TensorMap maps[size] = {};

  int get(const MapKey &key, TensorMap &map) {
    lock.take();
    for (int i = 0; i < size; ++i)
      if (keys[i].address && keys[i] == key) {
        map = maps[i];
        lock.give();
        return 0;
      }
    // A broadcast batch is one matrix, a batch of one has no stride: neither may be 0 for the engine.
    constexpr uint64_t bytes = sizeof(T);
    const uint64_t sizes[3] = {uint64_t(key.x), uint64_t(key.y), uint64_t(key.z)};
    const uint64_t strides[2] = {uint64_t(key.stride) * bytes,
                                 uint64_t(key.z > 1 ? key.batch_stride : key.stride * key.y) * bytes};
    const uint32_t box[3] = {BoxX, BoxY, 1}, steps[3] = {1, 1, 1};
    int error = driver().encode(&map, map_type<T>::value, 3, const_cast<void *>(key.address), sizes, strides, box, steps, 0,
                                Swizzle, 2, 0);
    if (!error) {
      unsigned at = turn++ % size;
      keys[at] = key;
      maps[at] = map;
    }
    lock.give();
    return error;
  }
};

template <class Config> struct Gemm {
  using A = typename Config::A;
  using B = typename Config::B;
  using C = typename Config::C;
  static constexpr auto pipeline = Config::pipeline;
  static constexpr int64_t most = int64_t(1) << 31;

  static bool empty(const tw_gemm_args &x) { return x.m == 0 || x.n == 0 || x.batch == 0; }
  static bool odd(int64_t elements, int64_t bytes) { return elements * bytes % 16 != 0; }
  static bool odd(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 != 0; }

  // The first rule that is broken, as a code and a sentence.  The op's `supports` says the same in Python.
  static int broken(const tw_gemm_args *args, const char **why) {
    auto is = [why](int code, const char *sentence) { *why = sentence; return code; };
    if (!args) return is(TW_BAD_ARGS, "args is null");
    const tw_gemm_args &x = *args;
    if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return is(TW_BAD_ARGS, "a size is negative");
    if (x.a_stride < (Config::a_rows ? x.k : x.m)) return is(TW_BAD_ARGS, "the stride of A is shorter than its row");
    if (x.b_stride < (Config::b_rows ? x.n : x.k)) return is(TW_BAD_ARGS, "the stride of B is shorter than its row");
    if (x.e_stride < x.n) return is(TW_BAD_ARGS, "the stride of E is shorter than its row");
    if (x.beta != 0 && !x.c) return is(TW_BAD_ARGS, "beta is not 0 but C is null");
    for (int t = 0; t < Config::num_d; ++t) {
      if (!empty(x) && !x.d[t]) return is(TW_BAD_ARGS, "a D tensor is null");
      if (x.d_col_stride[t] != 0 && x.d_col_stride[t] != 1)
        return is(TW_BAD_ARGS, "the column stride of a D tensor is neither 0 nor 1");
    }
    if (empty(x)) return is(TW_OK, "");
    if constexpr (pipeline == Pipeline::generic) return is(TW_OK, "");
    if (x.k == 0) return is(TW_LIMIT, "k is 0: this pipeline has nothing to copy");
    if (x.m >= most || x.n >= most || x.k >= most) return is(TW_LIMIT, "a size is 2^31 or more");
    if (odd(x.a) || odd(x.a_stride, sizeof(A)) || (x.batch > 1 && odd(x.a_batch_stride, sizeof(A))))
      return is(TW_ALIGNMENT, "A, its leading stride or its batch stride is not a multiple of 16 bytes");
    if (odd(x.b) || odd(x.b_stride, sizeof(B)) || (x.batch > 1 && odd(x.b_batch_stride, sizeof(B))))
      return is(TW_ALIGNMENT, "B, its leading stride or its batch stride is not a multiple of 16 bytes");
    if constexpr (pipeline == Pipeline::skinny) {
      using S = skinny_of<Config>;
      if ((Config::few_columns ? x.n : x.m) > S::tokens) return is(TW_LIMIT, "more rows (or columns) than this kernel holds");
      if (x.k % 8) return is(TW_DIVISIBILITY, "k is not a multiple of 8");
      if (x.batch > 65535) return is(TW_LIMIT, "the batch is over 65535");
    } else {
      if (Config::tma_store && (odd(x.e) || odd(x.e_stride, sizeof(C)) || odd(x.n, sizeof(C)) ||
                                (x.batch > 1 && odd(x.e_batch_stride, sizeof(C)))))
        return is(TW_ALIGNMENT, "E, its row, its leading stride or its batch stride is not a multiple of 16 bytes");
      if (ceil_div(x.m, Config::tile_m) * ceil_div(x.n, Config::tile_n) * x.batch * ceil_div(x.k, 128 / sizeof(A)) >= most)
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

  // Stream-K: flags, then a tile of sums for each block; no sm_90 GPU has more multiprocessors.
  static constexpr int most_blocks = 144;
  static int64_t workspace(const void *args, int64_t) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (!Config::stream_k || empty(x)) return 0;
    return TW_WORKSPACE_FLAGS + int64_t(most_blocks) * Config::tile_m * Config::tile_n * 4;
  }

  static int run(Loaded &loaded, const void *args, void *workspace, void *stream) {
    auto &x = *static_cast<const tw_gemm_args *>(args);
    if (empty(x)) return TW_OK;
    Loaded::Place place;
    int error;
    if constexpr (pipeline == Pipeline::tma_ws) {
      if (!driver().encode) return TW_DEVICE | 36 << 8;  // the driver is older than CUDA 12
      error = loaded.get(place, tma_ws_of<Config>::shared_bytes);
      if (!error) error = run_tma_ws(x, place, workspace, stream);
    } else {
      error = loaded.get(place, 0);
      if (!error) error = pipeline == Pipeline::skinny ? run_skinny(x, place, stream) : run_generic(x, place, stream);
    }
    return error < 0 ? -error : error ? TW_DEVICE | error << 8 : TW_OK;
  }

 private:
  static int start(Function function, unsigned blocks, unsigned batch, unsigned threads, unsigned shared, unsigned cluster,
                   void *stream, void **parameters) {
    LaunchAttribute attribute{cluster_dimension, {}, {cluster, 1, 1}};
    LaunchConfig config{{blocks, batch, 1}, {threads, 1, 1}, shared, stream, &attribute, cluster > 1 ? 1u : 0u};
    return driver().launch(&config, function, parameters, nullptr);
  }

  static int run_tma_ws(const tw_gemm_args &x, const Loaded::Place &place, void *workspace, void *stream) {
    if constexpr (pipeline == Pipeline::tma_ws) {
      using S = tma_ws_of<Config>;
      constexpr int k_box = S::BK;
      // k-contiguous: rows of 128 bytes; else 64 lines of 64 elements.
      using MapA = MapCache<A, S::MajorA ? 64 : k_box, S::MajorA ? 64 : S::BM / S::ClusterN, 3>;
      using MapB = MapCache<B, S::MajorB ? 64 : k_box, S::MajorB ? 64 : S::BN / S::ClusterM, 3>;
      using MapE = MapCache<C, S::chunk_columns, 64, S::chunk_columns == 64 ? 3 : S::chunk_columns == 32 ? 2 : 1>;
      static MapA maps_a;
      static MapB maps_b;
      TensorMap a, b, e = {};
      auto key = [&x](const void *p, bool swapped, int64_t lines, int64_t length, int64_t stride, int64_t batch_stride) {
        // One matrix for the whole batch: every z reads the same one (every_a, every_b).
        return MapKey{p, swapped ? lines : length, swapped ? length : lines, batch_stride ? x.batch : 1, stride, batch_stride};
      };
      int error = maps_a.get(key(x.a, S::MajorA, x.m, x.k, x.a_stride, x.a_batch_stride), a);
      if (!error) error = maps_b.get(key(x.b, S::MajorB, x.n, x.k, x.b_stride, x.b_batch_stride), b);
      if constexpr (S::TmaStore) {
        static MapE maps_e;
        if (!error) error = maps_e.get(MapKey{x.e, x.n, x.m, x.batch, x.e_stride, x.e_batch_stride}, e);
      }
      if (error) return error;
      TmaWsArgs t{};
      t.m = int(x.m), t.n = int(x.n), t.k = int(x.k), t.batch = int(x.batch);
      t.tiles_m = int(ceil_div(x.m, S::BM * S::ClusterM)), t.tiles_n = int(ceil_div(x.n, S::BN * S::ClusterN));
      t.group = S::ClusterM < 8 ? 8 / S::ClusterM : 1;
      t.every_a = x.a_batch_stride ? 1 : 0, t.every_b = x.b_batch_stride ? 1 : 0;
      t.e = x.e, t.e_stride = x.e_stride, t.e_batch_stride = x.e_batch_stride;
      t.finish = epilogue_args(x);
      int64_t tiles = int64_t(t.tiles_m) * t.tiles_n * x.batch, steps = ceil_div(x.k, S::BK);
      int64_t clusters = (place.multiprocessors < most_blocks ? place.multiprocessors : most_blocks) / S::Cluster;
      if (clusters < 1) clusters = 1;
      if constexpr (S::StreamK) {
        if (!workspace) return -TW_BAD_ARGS;
        int64_t share = ceil_div(tiles * steps, clusters);
        t.share = int(share < 4 ? 4 : share);
        clusters = ceil_div(tiles * steps, t.share);
        t.flags = static_cast<unsigned *>(workspace);
        t.partial = reinterpret_cast<float *>(static_cast<char *>(workspace) + TW_WORKSPACE_FLAGS);
      } else if (tiles < clusters) {
        clusters = tiles;
      }
      void *parameters[] = {&a, &b, &e, &t};
      return start(place.function, unsigned(clusters * S::Cluster), 1, S::threads, S::shared_bytes, S::Cluster, stream, parameters);
    }
    return 0;
  }

  static int run_skinny(const tw_gemm_args &x, const Loaded::Place &place, void *stream) {
    if constexpr (pipeline == Pipeline::skinny) {
      using S = skinny_of<Config>;
      SkinnyArgs t{x.a, x.b, x.e, int(x.m), int(x.n), int(x.k), int(x.batch), x.a_stride, x.b_stride, x.e_stride,
                   x.a_batch_stride, x.b_batch_stride, x.e_batch_stride, epilogue_args(x)};
      if (S::Swapped)
        t.a = x.b, t.b = x.a, t.m = int(x.n), t.n = int(x.m), t.a_stride = x.b_stride, t.b_stride = x.a_stride,
        t.a_batch = x.b_batch_stride, t.b_batch = x.a_batch_stride;
      void *parameters[] = {&t};
      return start(place.function, unsigned(ceil_div(t.n, S::rows)), unsigned(x.batch), S::threads, 0, 1, stream, parameters);
    }
    return 0;
  }

  static int run_generic(const tw_gemm_args &x, const Loaded::Place &place, void *stream) {
    GenericArgs t{x.m, x.n, x.k, x.batch, ceil_div(x.m, Generic::tile), ceil_div(x.n, Generic::tile), x.a, x.b, x.e,
                  x.a_stride, x.b_stride, x.e_stride, x.a_batch_stride, x.b_batch_stride, x.e_batch_stride, epilogue_args(x)};
    int64_t tiles = t.tiles_m * t.tiles_n * x.batch, blocks = tiles < (1 << 30) ? tiles : 1 << 30;
    void *parameters[] = {&t};
    return start(place.function, unsigned(blocks), 1, Generic::threads, 0, 1, stream, parameters);
  }
};

}  // namespace tw::cuda
