// How many rows and keys see each other, in closed form: what attention and its gradients count their work in.
#pragma once
#include <tilewright/select/fields.h>

namespace tw {
namespace selection {

// Pairs of a row and a key below a staircase: key < row + limit and key < cut.
inline Wide pairs_below(int64_t rows, int64_t limit, int64_t cut) {
  const int64_t stairs = larger(0, smaller(rows, cut - limit));  // rows above those that see all
  const int64_t low = larger(limit, 0), high = stairs - 1 + limit;
  const Wide under = high >= low ? Wide(low + high) * (high - low + 1) / 2 : 0;
  return Wide(rows - stairs) * cut + under;
}

// Of one sequence and head.
inline Wide seen_pairs(int64_t rows, int64_t keys, int64_t bottom_right, int64_t left, int64_t right, int64_t sinks) {
  const int64_t shift = bottom_right ? keys - rows : 0;
  const Wide upper = right >= 0 ? pairs_below(rows, shift + right + 1, keys) : Wide(rows) * keys;
  if (left < 0) return upper;
  const int64_t first = shift - left;
  return upper - pairs_below(rows, first, keys) + pairs_below(rows, first, smaller(sinks, keys));
}

}  // namespace selection
}  // namespace tw
