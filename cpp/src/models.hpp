// Learned selection: what a model that Python worked out for a registry's kernels says of them on a problem.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "json.hpp"
#include "library.hpp"

namespace tw {
namespace runtime {

// Regression trees over features of the problem, of the kernel, of both, and the units.
class Forest {
 public:
  Forest(const std::string &bytes, const std::string &what, double base, int64_t of_problem, int64_t width);
  // The trees that look at the problem alone, with the base: the same for all kernels.
  double common(const float *problem) const;
  // With the others added; a row holds all features.  `ahead`: null, or what is added to each score before they are
  // compared; rows that cannot have the lowest any more get an infinite one.
  void score(const float *rows, int64_t count, int64_t width, const double *ahead, double *scores) const;

 private:
  struct Node {
    float threshold;
    int32_t feature, left;
    float value;
  };
  std::vector<Node> nodes_;
  template <size_t... lane>
  void walk_lanes(int32_t *at, const float *const *features, std::index_sequence<lane...>) const;
  void walk(const int32_t *roots, size_t trees, const float *rows, int64_t width, const std::vector<int64_t> &which,
            std::vector<float> &values) const;
  std::vector<int32_t> alike_, others_;  // roots
  std::vector<double> low_, high_;       // what the others add from a tree on, at least and at most
  int64_t depth_ = 0;                    // steps from any root to any leaf
  double base_;
};

// A model, as all signatures share it.
struct Model {
  std::string name;
  std::unique_ptr<Forest> forest;
  int64_t least_units, most_units, both;
  double far, trust, rough[3];
  std::vector<double> low, high;  // of the problem's features
  bool estimated;
};

// A model and the kernels of one signature.
struct Voice {
  struct Terms {
    std::vector<std::vector<double>> real;
    std::vector<std::vector<uint8_t>> switches;
    std::vector<const void *> places;  // as the selection library takes them; null where no kernel has any
  };
  const Model *model;
  std::vector<int64_t> unseen;                      // places of kernels that are newer than the model
  std::vector<std::pair<int64_t, float>> words;     // features of the problem that are words
  std::vector<float> rows;                          // a kernel's own features
  int64_t width;                                    // of such a row
  std::map<int64_t, std::unique_ptr<Terms>> terms;  // from a number of units on
};

// What a question to a model is about: all kernels of a signature, of which some serve the problem.
struct Asked {
  const int64_t *numbers;   // the problem's measured form
  double bytes, flops;      // of it
  const double *estimates;  // of that form; infinite where a kernel does not serve the problem
  int64_t count, units;
};
struct Predicted {
  int64_t best = -1;
  double seconds = 0;
  bool seen = true;  // else the estimate beside the model's own choice decided
};

using Features = void (*)(const void *problem, const void *terms, int64_t count, int64_t units, float *of_problem,
                          double *of_both);

// False where the model says nothing of such a problem.
bool predict(const Voice &voice, Features features, const Asked &asked, Predicted &told);

// A model of a registry's JSON; `bytes` are its trees.
std::unique_ptr<Model> read_model(const Json &row, const std::string &bytes);
// What it knows of the kernels of a signature; `of_kernel` is the width of its rows.
Voice read_voice(const Model &model, const Json &group);
// Whether one of the devices that a model was trained on is this machine's.
bool knows_device(const Json &devices, const std::string &arch);

}  // namespace runtime
}  // namespace tw
