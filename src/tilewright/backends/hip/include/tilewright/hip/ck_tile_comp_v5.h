// CK Tile's compv5 pipeline, the one header of theirs that may be read only once: it has no guard of its own, and
// would come with the precompiled header and with the kernel.
#pragma once
#include <ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v5.hpp>
