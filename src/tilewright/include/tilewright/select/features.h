// What a learned model sees of a problem and of kernels: the exports that libraries of all ops have alike.
#pragma once
#include <math.h>
#include <stdint.h>

namespace tw {
namespace selection {

// Kernels by their places among all of a question; null places: the first so many.
struct Some {
  const int64_t *places;
  int64_t count;
  int64_t place(int64_t row) const { return places ? places[row] : row; }
};

// As `ceil`, which is a call where the compiler may use no more than every x86-64 has.
inline double ceiling(double x) {
  if (!(x > -4e15 && x < 4e15)) return ceil(x);
  const double cut = double(int64_t(x));
  return cut < x ? cut + 1.0 : cut;
}

}  // namespace selection
}  // namespace tw

// For a namespace with of_problem, of_both and `Seen`, which is made of a problem and has its bytes and operations: all at
// once; and one after the other, of kernels that still have a hope.  Columns are then those of these kernels, in rows as
// long as for all.  What is answered of a problem is what it takes whatever the kernel, to a factor of a few: `rough` are
// a start, and seconds of a byte and of an operation.  Who reads a model from a file learns what must fit: how many
// features there are, and of each member of Terms how many rows, with a ? behind those that may be null.
#define TW_SELECT_FEATURES(Problem, space) \
  TW_SELECT_API void tw_select_features(const Problem *problem, const space::Terms *terms, int64_t count, \
                                        int64_t units, float *of_problem, double *of_both) { \
    const space::Seen seen(*problem); \
    space::of_problem(seen, of_problem); \
    space::of_both(seen, *terms, count, units, {nullptr, count}, of_both); \
  } \
  TW_SELECT_API double tw_select_problem_features(const Problem *problem, const double *rough, float *of_problem) { \
    const space::Seen seen(*problem); \
    space::of_problem(seen, of_problem); \
    return rough[0] + rough[1] * seen.moved + rough[2] * space::flops(seen); \
  } \
  TW_SELECT_API void tw_select_kernel_features(const Problem *problem, const space::Terms *terms, int64_t count, \
                                               int64_t units, const int64_t *places, int64_t some, double *of_both) { \
    space::of_both(space::Seen(*problem), *terms, count, units, {places, some}, of_both); \
  } \
  TW_SELECT_API void tw_select_feature_counts(int64_t *of_problem, int64_t *of_both, const char **of_terms) { \
    *of_problem = space::kProblem, *of_both = space::kBoth, *of_terms = space::kTermRows; \
  }
