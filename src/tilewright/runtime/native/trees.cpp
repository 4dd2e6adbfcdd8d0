// Scores rows of features with a forest of regression trees.  Rows go through a tree together, so that its nodes stay
// in the nearest cache; a node is 12 bytes.
#include <stdint.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {

// Inner: a row goes to `left` where its feature is at most `threshold` (or is no number), else to the node behind it.
// A leaf has feature -1, and its value as the threshold.
struct Node {
  float threshold;
  int32_t feature;
  int32_t left;
};

}  // namespace

SHOWN int64_t tw_trees_abi_version() { return 1; }

// out[r] = base + sum over trees; `roots` are the indices of the trees' first nodes.
SHOWN void tw_trees_score(const Node *nodes, const int32_t *roots, int64_t trees, const float *rows, int64_t count,
                          int64_t width, double base, double *out) {
  for (int64_t r = 0; r < count; ++r) out[r] = base;
  for (int64_t t = 0; t < trees; ++t) {
    const Node *const root = nodes + roots[t];
    for (int64_t r = 0; r < count; ++r) {
      const float *const row = rows + r * width;
      const Node *at = root;
      while (at->feature >= 0) at = nodes + at->left + (row[at->feature] > at->threshold);
      out[r] += at->threshold;
    }
  }
}
