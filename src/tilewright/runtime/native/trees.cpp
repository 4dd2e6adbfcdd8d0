// Scores rows of features with a forest of regression trees.  A tree is walked as deep as its deepest leaf by several
// rows at once: no branch depends on the data, and the loads of one row hide those of the others.
#include <stdint.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {

// A row goes to `left` where its feature is at most `threshold` (or is no number), else to the node behind that.
// A leaf leads to itself: its threshold is infinite.
struct Node {
  float threshold;
  int32_t feature;
  int32_t left;
  float value;  // of a leaf
};

constexpr int together = 16;

}  // namespace

SHOWN int64_t tw_trees_abi_version() { return 2; }

// out[r] = base + sum over trees; `roots` are the indices of the trees' first nodes, `depths` how deep they are.
SHOWN void tw_trees_score(const Node *nodes, const int32_t *roots, const int32_t *depths, int64_t trees,
                          const float *rows, int64_t count, int64_t width, double base, double *out) {
  for (int64_t r = 0; r < count; ++r) out[r] = base;
  // Tree by tree: one fits into the first-level cache, where all rows find it.
  for (int64_t t = 0; t < trees; ++t) {
    const int32_t root = roots[t], depth = depths[t];
    for (int64_t first = 0; first < count; first += together) {
      const float *row[together];
      int32_t at[together];
      for (int i = 0; i < together; ++i) {
        row[i] = rows + (first + i < count ? first + i : count - 1) * width;
        at[i] = root;
      }
      for (int32_t d = 0; d < depth; ++d)
        for (int i = 0; i < together; ++i) {
          const Node &node = nodes[at[i]];
          at[i] = node.left + (row[i][node.feature] > node.threshold);
        }
      for (int i = 0; i < together && first + i < count; ++i) out[first + i] += nodes[at[i]].value;
    }
  }
}
