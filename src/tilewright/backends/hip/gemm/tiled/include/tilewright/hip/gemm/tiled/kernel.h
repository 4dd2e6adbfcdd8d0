// GEMM by matrix instructions on any AMD GPU that has them: MFMA and WMMA, any layout, stride, size and alignment.
//
// A block stages tile_m lines of A and tile_n of B, tile_k deep, in one of `stages` places in LDS.  While waves multiply
// them, 16 x 16 accumulators at a time, lanes already hold what comes next; with two places there is one barrier per iteration.  Accumulators
// are stored through LDS, in whole accesses wherever these are aligned; splits of k go to the workspace and are added
// in their order by a second kernel.  What a launch is made of is that of the CK Tile kernels.
#pragma once
#include <hip/hip_runtime.h>

#include <tilewright/hip/finished.h>
#include <tilewright/hip/gemm.h>
#include <tilewright/hip/gemm/tiled/fetch.h>

#if defined(__HIP_DEVICE_COMPILE__)
namespace tw::hip {

template <class Config> struct Device {
  using A = typename Config::A;
  using B = typename Config::B;
  using OfA = typename Config::MultipliedA;
  using OfB = typename Config::MultipliedB;
  using Sum = typename Config::Acc;
  using Product = MatrixProduct<Config, OfA, OfB, false>;
  static constexpr int tm = Config::tile_m, tn = Config::tile_n, tk = Config::tile_k, stages = Config::stages;
  static constexpr int a_bytes = tm * StagedLines<OfA, tk, false>::row * int(sizeof(OfA)),
                       b_bytes = tn * StagedLines<OfB, tk, false>::row * int(sizeof(OfB)),
                       stage_bytes = a_bytes + b_bytes;
  static constexpr int staging_bytes = Product::band * Product::row * int(sizeof(Sum));
  static constexpr int lds_bytes = stages * stage_bytes > staging_bytes ? stages * stage_bytes : staging_bytes;
  static_assert(lds_bytes == Config::lds_bytes, "LDS is counted otherwise in Python");
  static_assert(Product::wave * Config::warp_grid_m * Config::warp_grid_n == Config::threads, "waves of another size");
  using FetchA = TileFetch<A, OfA, tm, tk, Config::threads, Config::a_rows>;
  using FetchB = TileFetch<B, OfB, tn, tk, Config::threads, !Config::b_rows>;

  struct Place {
    int m, n;
  };
  // Eight rows of tiles before the next eight: what they read of B stays in the cache.
  static TW_GPU Place place(int tile, int m, int n) {
    constexpr int group = 8;
    const int down = (m + tm - 1) / tm, across = (n + tn - 1) / tn;
    const int first = tile / (group * across) * group, rest = tile % (group * across);
    const int height = down - first < group ? down - first : group;
    return {(first + rest % height) * tm, rest / height * tn};
  }

  // One tile of the result, or one split of its k.
  template <int> static TW_GPU void run(const Launch &x) {
    __shared__ __attribute__((aligned(16))) char lds[lds_bytes];
    const Place at = place(int(blockIdx.x), x.m, x.n);
    const int z = int(blockIdx.y), part = int(blockIdx.z);
    int first = 0, end = x.k;
    if constexpr (Config::split_k > 1) {
      const int share = (x.k + tk * Config::split_k - 1) / (tk * Config::split_k) * tk;
      first = part * share;
      end = x.k - first > share ? first + share : x.k;
    }
    const A *const a = static_cast<const A *>(x.a) + z * x.a_batch + int64_t(at.m) * (Config::a_rows ? x.a_stride : 1);
    const B *const b = static_cast<const B *>(x.b) + z * x.b_batch + int64_t(at.n) * (Config::b_rows ? 1 : x.b_stride);
    Product product;
    multiply(product, FetchA(a, x.a_stride, x.m - at.m < tm ? x.m - at.m : tm, first),
             FetchB(b, x.b_stride, x.n - at.n < tn ? x.n - at.n : tn, first), end - first, lds);
    Sum *const accum = reinterpret_cast<Sum *>(lds);
    const StagedTile tile{z, at.m, at.n, x.m};
    if constexpr (Config::split_k > 1) {
      StagedStore<Config, 4, Product, Part<Config>>::all(tile, product, Part<Config>{x, part}, accum);
    } else {
      StagedStore<Config, Config::width_c, Product, Finished<Config>>::all(tile, product, Finished<Config>(x), accum);
    }
  }
  static TW_GPU void finish(const Launch &x) { add_splits<Config>(x, Finished<Config>(x)); }

 private:
  static TW_GPU OfA *staged_a(char *lds, int turn) {
    return reinterpret_cast<OfA *>(lds + (stages > 1 && turn & 1 ? stage_bytes : 0));
  }
  static TW_GPU OfB *staged_b(char *lds, int turn) {
    return reinterpret_cast<OfB *>(lds + (stages > 1 && turn & 1 ? stage_bytes : 0) + a_bytes);
  }
  static TW_GPU void load(FetchA &a, FetchB &b, int left) {
    if (a.whole(left)) a.load();
    if (b.whole(left)) b.load();
  }
  static TW_GPU void put(const FetchA &a, const FetchB &b, int left, char *lds, int turn) {
    if (a.whole(left)) a.put(staged_a(lds, turn));
    else a.copy(staged_a(lds, turn), left);
    if (b.whole(left)) b.put(staged_b(lds, turn));
    else b.copy(staged_b(lds, turn), left);
  }
  // Between turns no load is under way, for `put` read what it brought.  The compiler, which takes the conditions of loading
  // and putting for independent, would wait for those of a turn before, behind A's loads: that is for A's.
  static TW_GPU void none_under_way() {
#if defined(__GFX9__)
    __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0) alone
#endif
  }
  static TW_GPU void multiply(Product &product, FetchA a, FetchB b, int left, char *lds) {
    if (left <= 0) return;
    load(a, b, left);
    put(a, b, left, lds, 0);
    __syncthreads();
    int turn = 0;
#pragma clang loop unroll(disable)
    for (left -= tk; left > 0; left -= tk, ++turn) {
      a.next(), b.next();
      none_under_way();
      load(a, b, left);
      product.multiply(staged_a(lds, turn), staged_b(lds, turn));
      if constexpr (stages == 1) __syncthreads();
      put(a, b, left, lds, turn + 1);
      __syncthreads();
    }
    product.multiply(staged_a(lds, turn), staged_b(lds, turn));
    __syncthreads();  // LDS is free for the accumulators
  }
};

}  // namespace tw::hip
#endif
