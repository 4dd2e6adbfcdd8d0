// What the emulated cuda/copies/copies.h and cuda/primitives/mma.h call: copies that land late, shared memory that is watched,
// and the matrix instructions of a warp.
#pragma once
#include <stdint.h>

namespace emulated {

enum class Kind { bf16, fp16, int8, e4m3, e5m2, tf32 };

void copy_async(char *to, const char *from, int bytes, int valid);
void commit_copies();
void wait_copies(int left);
// Before an access: a fault where another thread's access since the last barrier makes it a race, or where
// a copy has not landed.
void touch(const void *p, int bytes, bool writes);
void load_matrices(uint32_t *to, const char *row, bool transposed);
void mma(void *accum, const uint32_t *a, const uint32_t *b, Kind kind_a, Kind kind_b);

}  // namespace emulated
