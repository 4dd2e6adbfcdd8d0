// gemm_int8_rcr_packed_112x256x512_14x32x4_split_k4_padmn_x86_64_v4_vnni_7994eeba
// Written by tilewright from the spec in the manifest below; edit the spec, not this file.
#include <tilewright/cpu/gemm/kernel.h>
#include <tilewright/cpu/gemm/packed/kernel.h>
#include <tilewright/cpu/gemm/packed/limits.h>

namespace {
struct Config {
  using A = tw::int8;
  using B = tw::int8;
  using C = tw::int8;
  using D = tw::int8;
  static constexpr bool a_rows = true;
  static constexpr bool b_rows = false;
  static constexpr bool b_packed = false;
  static constexpr auto epilogue = tw::Epilogue::PassThrough;
  static constexpr int num_d = 0;
  static constexpr int tile_m = 112;
  static constexpr int warp_tile_m = 14;
  static constexpr int tile_n = 256;
  static constexpr int warp_tile_n = 32;
  static constexpr int tile_k = 512;
  static constexpr int warp_tile_k = 4;
  static constexpr int pad_n = 1;
  static constexpr int split_k = 4;
  static constexpr int unroll = 1;
  static constexpr int prefetch = 0;
};
TW_LIMITS(Limits, tw::selection::cpu_gemm::packed, s.tile_n = 256; s.tile_k = 512; s.rows = 14; s.columns = 32; s.step = 4; s.grain_m = 1; s.grain_n = 1; s.grain_k = 4; s.split_k = 4; s.b_packed = 0; )
}  // namespace

TW_EXPORT_STRUCT(R"json({"arch":"x86_64_v4_vnni","op":"gemm","schedule":{"pad":[true,true,false],"pipeline":"packed","prefetch":0,"split_k":4,"tile":[112,256,512],"unroll":1,"warp_tile":[14,32,4]},"schema":2,"signature":{"dtype_a":"int8","dtype_acc":"int32","dtype_b":"int8","dtype_c":"int8","dtype_d":"int8","epilogue":"PassThrough","layout":"rcr","num_d":0,"variant":"standard"}})json", tw::Gemm<Config, tw::GemmPacked<Config, false>, Limits>)
