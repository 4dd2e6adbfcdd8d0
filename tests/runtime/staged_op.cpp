// Kernels of the op in staged_op.py: `square` (STAGE 1) writes x * x as doubles into the workspace between the stages,
// `gather` (STAGE 2) reads them by a table.  WANTED is what of a workspace of its own each asks for, CLEAR how much of
// that must be zero.
#include <string.h>
#include <tilewright/abi.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

struct Args {
  int64_t count, picks;
  const float *x;
  const int32_t *table;
  const float *more;  // may be null
  double *between;
  float *y;
  int32_t *seen;
  double alpha, gamma;
};

static int check(const void *raw, char *why, size_t bytes) {
  auto &a = *static_cast<const Args *>(raw);
  if (a.count >= 0 && a.picks >= 0) return TW_OK;
  if (bytes) strncpy(why, "a size is negative", bytes - 1);
  return TW_BAD_ARGS;
}
static int64_t workspace(const void *, int64_t) { return WANTED; }
static int launch(const void *raw, void *scratch, void *) {
  auto &a = *static_cast<const Args *>(raw);
  auto mine = static_cast<unsigned char *>(scratch);
  for (int64_t i = 0; i < CLEAR; ++i)
    if (mine[i]) return TW_DEVICE;                                 // the zeros are not zero
  if (WANTED > CLEAR) memset(mine + CLEAR, 0xff, WANTED - CLEAR);  // what is ours may be written
  if (STAGE == 1) {
    for (int64_t i = 0; i < a.count; ++i) a.between[i] = double(a.x[i]) * a.x[i];
    return TW_OK;
  }
  for (int64_t i = 0; i < a.picks; ++i) {
    if (a.table[i] < 0 || a.table[i] >= a.count) return TW_LIMIT;
    a.y[i] = float(a.alpha * a.between[a.table[i]] + (a.more ? a.gamma * a.more[i] : 0));
    a.seen[i] = a.table[i] + 1;
  }
  return TW_OK;
}

SHOWN int64_t tw_abi_version(void) { return TW_ABI_VERSION; }
static const tw_kernel table[] = {{MANIFEST, check, workspace, launch, nullptr, nullptr, CLEAR}};
SHOWN const tw_kernel *tw_kernels(int64_t *count) {
  *count = 1;
  return table;
}
