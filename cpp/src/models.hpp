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

// Regression trees over features of the problem, of the kernel, of both, and the units, which come in this order.
//
// A tree is not traversed: it begins with all its leaves, as bits, and every feature that lies above the threshold of a node
// takes those on the node's left away.  The first that is left is the leaf that a traversal ends at.  So a feature is compared
// with the thresholds of all trees in one run, up to the first that it does not pass; what the problem takes away is
// worked out once for all kernels, and what a kernel does when it is read.
class Forest {
 public:
  struct Widths {
    int64_t problem, kernel, both;
  };
  Forest(const std::string &bytes, const std::string &what, double base, Widths widths);

  struct Cut {  // where a feature lies above, these leaves of a word are gone
    float above;
    uint32_t gone, word;
  };

  size_t words() const { return words_; }
  // The leaves that a kernel's own features leave, `words` of them.
  std::vector<uint32_t> leaves_of(const float *kernel) const;

  // Those of kernels, word by word of eight of them.
  std::vector<uint32_t> side_by_side(const std::vector<uint32_t> &leaves) const;

  struct Query {
    const float *problem;
    float units;
    const uint32_t *kernels;  // `words` of each kernel
    const uint32_t *blocks;   // the same of eight kernels after another (`side_by_side`); null: read from `kernels`
    const double *both;       // a row a feature, `stride` numbers apart, of the kernels of the query
    const int64_t *near;      // the kernels of the query
    int64_t count, stride;
  };
  void score(const Query &query, double *scores) const;

 private:
  struct Tree {
    uint32_t word, words, leaf;  // the first of its words and of its leaves
  };
  struct Node;
  void read_tree(const std::vector<Node> &nodes, int32_t root, int32_t end, const std::string &what,
                 std::vector<std::pair<int32_t, Cut>> &cuts);
  const Cut *take(int64_t feature, float value, uint32_t *leaves) const;
  void score_eight(const Query &query, int64_t first, int64_t count, bool block, double *scores) const;

  Widths widths_;
  std::vector<Cut> cuts_;        // of a feature after the other, the lowest first
  std::vector<uint32_t> ahead_;  // what the first `step_` cuts of a feature leave, the first twice as many, ...
  std::vector<uint32_t> ahead_at_;
  uint32_t step_ = 0;
  std::vector<uint32_t> first_;                           // of a feature's cuts
  std::vector<Tree> alike_, others_;                      // alike: they look at the problem alone
  std::vector<float> values_;                             // of the leaves
  uint32_t words_ = 0, of_others_ = 0, alike_words_ = 0;  // of leaves: all, and those of trees that are not alike, ...
  double base_;
};

// A model, as all signatures share it.
struct Model {
  std::string name;
  std::unique_ptr<Forest> forest;
  int64_t least_units, most_units, own, both;  // features of a kernel, and of it with a problem
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
  std::vector<uint32_t> leaves, blocks;             // that a kernel's own features leave of the forest's
  std::map<int64_t, std::unique_ptr<Terms>> terms;  // from a number of units on
};

// What a question to a model is about: all kernels of a signature, of which some serve the problem.
struct Query {
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

// False where the model says nothing of such a problem; `library` is that of its kernels.
bool predict(const Voice &voice, const SelectionLibrary &library, const Query &query, Predicted &predicted);

// A model of a registry's JSON; `bytes` are its trees.
std::unique_ptr<Model> read_model(const Json &row, const std::string &bytes);
// What it knows of the kernels of a signature; `library` is theirs.
Voice read_voice(const Model &model, const SelectionLibrary &library, const Json &group);
// Whether one of the devices that a model was trained on is this machine's.
bool knows_device(const Json &devices, const std::string &arch);

}  // namespace runtime
}  // namespace tw
