// The matrix instructions of fp32, which CK Tile's headers of mid-2025 leave out: exact products, fp32 accumulators.
#pragma once
#include <ck_tile/core.hpp>
#include <ck_tile/ops/gemm/warp/warp_gemm_dispatcher.hpp>

namespace tw::hip {

// A wave's product of `side` x `side`.  The instruction takes one element of A and B a lane; here a lane holds `each`
// that follow each other along k, so that it reads them from LDS at once.  Which k a lane holds matters to nobody as
// long as A and B are dealt alike.
template <int side, int each> struct Fp32Instruction {
  static_assert(side == 32 || side == 16, "there is no such matrix instruction");
  using ADataType = float;
  using BDataType = float;
  using CDataType = float;
  using AVecType = ck_tile::ext_vector_t<float, each>;
  using BVecType = AVecType;
  using CVecType = ck_tile::ext_vector_t<float, side * side / 64>;

  static constexpr auto Ctrl = ck_tile::WGAttrCtlEnum::Default_;
  static constexpr ck_tile::index_t kM = side, kN = side, kABKLane = 64 / side, kABKPerLane = each;
  static constexpr ck_tile::index_t kK = kABKLane * each;
  static constexpr ck_tile::index_t kAMBlock = 1, kBNBlock = 1, kAMLane = side, kBNLane = side;
  static constexpr ck_tile::index_t kCMLane = 64 / side, kCNLane = side, kCM0PerLane = side == 32 ? 4 : 1,
                                    kCM1PerLane = 4;

  template <bool nop = false> CK_TILE_DEVICE void operator()(CVecType &c, const AVecType &a, const BVecType &b,
                                                             ck_tile::bool_constant<nop> = {}) const {
    ck_tile::static_for<0, each, 1>{}([&](auto at) {
      constexpr int i = at;
#if defined(__gfx9__)
      if constexpr (side == 32) c = __builtin_amdgcn_mfma_f32_32x32x2f32(a[i], b[i], c, 0, 0, 0);
      else c = __builtin_amdgcn_mfma_f32_16x16x4f32(a[i], b[i], c, 0, 0, 0);
#else
      ck_tile::ignore = a[i] + b[i] + c[0];
#endif
    });
  }
  CK_TILE_DEVICE CVecType operator()(const AVecType &a, const BVecType &b) const {
    CVecType c{0.0f};
    operator()(c, a, b);
    return c;
  }
};

template <int side, int each> struct Fp32Wave {
  using Type = ck_tile::WarpGemmImpl<ck_tile::WarpGemmAtrributeMfma<Fp32Instruction<side, each>>>;
};

}  // namespace tw::hip

namespace ck_tile::impl {

template <> struct WarpGemmMfmaDispatcher<float, float, float, 32, 32, 4, false> : tw::hip::Fp32Wave<32, 2> {};
template <> struct WarpGemmMfmaDispatcher<float, float, float, 32, 32, 8, false> : tw::hip::Fp32Wave<32, 4> {};
template <> struct WarpGemmMfmaDispatcher<float, float, float, 16, 16, 8, false> : tw::hip::Fp32Wave<16, 2> {};
template <> struct WarpGemmMfmaDispatcher<float, float, float, 16, 16, 16, false> : tw::hip::Fp32Wave<16, 4> {};

}  // namespace ck_tile::impl
