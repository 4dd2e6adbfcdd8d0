// Trees evaluated by masks of leaves predict what traversed trees predict: drawn ones, to the bit.
// With `-I cpp/src`, and cpp/src/models.cpp and json.cpp beside it.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "host.hpp"
#include "models.hpp"

// What models.cpp reads of the machine, and this test does not.
std::map<std::string, tw::runtime::Json> tw::runtime::identity_of(const std::string &) { return {}; }

namespace {

using tw::runtime::Forest;

struct Node {
  float threshold;
  int32_t feature, left;
  float value;
};

struct Drawn {
  std::vector<Node> nodes;
  std::vector<int32_t> roots;
  Forest::Widths widths;
  std::mt19937 draw;

  explicit Drawn(unsigned seed) : widths{5, 4, 6}, draw(seed) {}
  int below(int count) { return int(draw() % unsigned(count)); }
  float number() {  // few different ones, so that features meet thresholds
    const int kind = below(40);
    return kind == 0 ? NAN : kind == 1 ? HUGE_VALF : kind == 2 ? -HUGE_VALF : float(below(9) - 4) / 2;
  }
  void grow(size_t at, int leaves, int features) {
    nodes[at] = {HUGE_VALF, 0, int32_t(at), float(below(2001) - 1000) / 1024};
    if (leaves < 2) return;
    const size_t left = nodes.size();
    nodes.resize(left + 2);
    float threshold = number();
    while (std::isnan(threshold)) threshold = number();
    nodes[at] = {threshold, below(features), int32_t(left), 0};
    const int mine = 1 + below(leaves - 1);
    grow(left, mine, features), grow(left + 1, leaves - mine, features);
  }
  std::string bytes() {
    const int64_t width = widths.problem + widths.kernel + widths.both + 1;
    for (int tree = 0; tree < 40; ++tree) {
      roots.push_back(int32_t(nodes.size()));
      nodes.emplace_back();
      grow(nodes.size() - 1, 1 + below(tree % 4 ? 31 : 150), int(tree % 5 ? width : widths.problem));
    }
    const int64_t counts[] = {int64_t(nodes.size()), int64_t(roots.size())};
    std::string text = "TWTREES1";
    text.append(reinterpret_cast<const char *>(counts), sizeof counts);
    text.append(reinterpret_cast<const char *>(nodes.data()), nodes.size() * sizeof(Node));
    return text.append(reinterpret_cast<const char *>(roots.data()), roots.size() * sizeof(int32_t));
  }
  bool alike(size_t tree) const {  // it looks at the problem alone
    const size_t end = tree + 1 < roots.size() ? size_t(roots[tree + 1]) : nodes.size();
    for (size_t at = size_t(roots[tree]); at < end; ++at)
      if (nodes[at].left != int32_t(at) && nodes[at].feature >= widths.problem) return false;
    return true;
  }
  double traversed(const std::vector<float> &row) const {
    double sum = 0.25;
    for (bool first : {true, false})
      for (size_t tree = 0; tree < roots.size(); ++tree) {
        if (alike(tree) != first) continue;
        int32_t at = roots[tree];
        while (nodes[size_t(at)].left != at)
          at = nodes[size_t(at)].left + (row[size_t(nodes[size_t(at)].feature)] > nodes[size_t(at)].threshold);
        sum += double(nodes[size_t(at)].value);
      }
    return sum;
  }
};

int differ(unsigned seed) {
  Drawn drawn(seed);
  const Forest forest(drawn.bytes(), "drawn trees", 0.25, drawn.widths);
  const int64_t kernels = 1 + drawn.below(20), of_both = drawn.widths.both;
  std::vector<float> own(size_t(kernels * drawn.widths.kernel));
  std::vector<uint32_t> leaves;
  for (float &number : own) number = drawn.number();
  for (int64_t kernel = 0; kernel < kernels; ++kernel) {
    const std::vector<uint32_t> mine = forest.leaves_of(own.data() + kernel * drawn.widths.kernel);
    leaves.insert(leaves.end(), mine.begin(), mine.end());
  }
  const std::vector<uint32_t> together = forest.side_by_side(leaves);
  int wrong = 0;
  for (int question = 0; question < 20; ++question) {
    std::vector<float> problem(size_t(drawn.widths.problem));
    std::vector<double> both(size_t(of_both * kernels));
    std::vector<int64_t> near;
    for (float &number : problem) number = drawn.number();
    for (double &number : both) number = double(drawn.number());
    for (int64_t kernel = 0; kernel < kernels; ++kernel)
      if (near.empty() || drawn.below(4)) near.push_back(kernel);
    const float units = float(drawn.below(5));
    std::vector<double> scores(near.size());
    forest.score({problem.data(), units, leaves.data(), question % 2 ? together.data() : nullptr, both.data(),
                  near.data(), int64_t(near.size()), kernels},
                 scores.data());
    for (size_t at = 0; at < near.size(); ++at) {
      std::vector<float> row = problem;
      const float *mine = own.data() + near[at] * drawn.widths.kernel;
      row.insert(row.end(), mine, mine + drawn.widths.kernel);
      for (int64_t f = 0; f < of_both; ++f) row.push_back(float(both[size_t(f * kernels) + at]));
      row.push_back(units);
      wrong += drawn.traversed(row) != scores[at];
    }
  }
  return wrong;
}

}  // namespace

int main() {
  int wrong = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) wrong += differ(seed);
  std::printf("models: %d failed\n", wrong);
  return wrong ? 1 : 0;
}
