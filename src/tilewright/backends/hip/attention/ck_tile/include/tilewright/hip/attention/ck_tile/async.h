// The forward pipeline that copies K to LDS past the registers.
#pragma once
#include <tilewright/hip/attention/ck_tile/device.h>

#if defined(__HIP_DEVICE_COMPILE__)
#include <ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async_default_policy.hpp>
#define block_tile_reduce_sync(...) TW_REDUCE_AFTER_KEYS(__VA_ARGS__)
#include <ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async.hpp>
#undef block_tile_reduce_sync
#endif
