// Every instruction an inspection counts, for comparing our reading of opcodes with nvdisasm's.
#include <stdint.h>

#define MMA(shape, kinds, d, c) \
  asm volatile("mma.sync.aligned." shape ".row.col." kinds " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \
               : c((d)[0]), c((d)[1]), c((d)[2]), c((d)[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]))
#define WGMMA(kinds, d, c, more) \
  asm volatile("wgmma.mma_async.sync.aligned." kinds " {%0,%1,%2,%3},%4,%5,1" more ";" \
               : c((d)[0]), c((d)[1]), c((d)[2]), c((d)[3]) \
               : "l"(left), "l"(right))

template <class T> __device__ void move(void *p) {
  static_cast<volatile T *>(p)[200] = static_cast<volatile T *>(p)[201];
}

extern "C" __global__ void __launch_bounds__(128) sample(float *o, int *p, double *q, const uint32_t *a) {
  float d[8] = {};
  int e[8] = {};
  double f[2] = {};
  MMA("m16n8k16", "f32.bf16.bf16.f32", d, "+f");
  MMA("m16n8k8", "f32.tf32.tf32.f32", d, "+f");
  MMA("m16n8k32", "s32.s8.s8.s32", e, "+r");
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
               : "+d"(f[0]), "+d"(f[1])
               : "d"(q[3]), "d"(q[4]));
#if __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
  MMA("m16n8k32", "f32.e4m3.e4m3.f32", d, "+f");
#endif
#if __CUDA_ARCH__ == 900
  uint64_t left = a[9], right = a[10];
  asm volatile("wgmma.fence.sync.aligned;");
  WGMMA("m64n8k16.f32.bf16.bf16", d + 4, "+f", ",1,1,0,0");
  WGMMA("m64n8k32.f32.e4m3.e4m3", d + 4, "+f", ",1,1");
  WGMMA("m64n8k32.s32.s8.s8", e + 4, "+r", "");
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
#endif
  __shared__ char shared[64];
  uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile(
      "cp.async.cg.shared.global [%0],[%1],16;\ncp.async.ca.shared.global [%0],[%1],4;\n"
      "cp.async.ca.shared.global [%0],[%1],8;\ncp.async.wait_all;" ::"r"(to),
      "l"(a + 64));
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1,{%2,%2}],[%0];\n"
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%1,{%2,%2}],[%0];\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"r"(to),
      "l"(q), "r"(0));
#endif
  for (int i = 0; i < 8; ++i) o[i] = d[i], p[i] = e[i];
  q[0] = f[0];
  move<signed char>(p + 100), move<short>(p + 200), move<unsigned char>(p + 300), move<unsigned short>(p + 400);
  reinterpret_cast<uint4 *>(p)[500] = reinterpret_cast<const uint4 *>(p)[501];
  reinterpret_cast<uint2 *>(p)[600] = reinterpret_cast<const uint2 *>(p)[601];
  int local[64];  // indexed by a variable: it lies in local memory
  for (int i = 0; i < 64; ++i) local[i] = p[i];
  p[700] = local[p[3] & 63];
}
