#include "models.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "device.hpp"
#include "failure.hpp"
#include "host.hpp"

namespace tw {
namespace runtime {
namespace {

constexpr char kMark[] = "TWTREES1";
constexpr size_t kMarkBytes = sizeof kMark - 1;
constexpr uint32_t kAlike = uint32_t(1) << 31;  // of a word, until it is known how many there are

[[noreturn]] void damaged(const std::string &what, const std::string &why) {
  throw bad_machine("model-file", what, what + " is no model that can be used: " + why, "export the registry again");
}

std::vector<double> reals(const Json &list, const std::string &what) {
  std::vector<double> numbers;
  for (const Json &number : list.items(what)) numbers.push_back(number.real(what));
  return numbers;
}

// Of eight kernels; compilers use what registers there are.
constexpr int64_t kLanes = 8;
typedef uint32_t Eight __attribute__((vector_size(kLanes * sizeof(uint32_t)), may_alias));
typedef Eight EightAnywhere __attribute__((aligned(4), may_alias));
typedef float EightValues __attribute__((vector_size(kLanes * sizeof(float))));
struct alignas(sizeof(Eight)) EightWords {
  uint32_t lane[kLanes];
};

// A thread's scratch memory, kept so that a query seldom allocates.
struct Desk {
  std::vector<float> problem;
  std::vector<double> both, known, scores, seconds;
  std::vector<int64_t> near;
  std::vector<uint32_t> leaves;  // that the problem leaves
  std::vector<EightWords> some;  // that eight kernels leave
  std::vector<const Forest::Cut *> behind;
};
Desk &desk() {
  static thread_local Desk mine;
  return mine;
}

// What runs on eight numbers at once, for CPUs with and without AVX2.
struct OnEight {
  template <class Cut> static inline __attribute__((always_inline)) void take(const Cut *cut, const float *values,
                                                                              float most, uint32_t *leaves) {
    EightValues mine;
    std::memcpy(&mine, values, sizeof mine);
    for (; most > cut->above; ++cut) {
      Eight *const at = reinterpret_cast<Eight *>(leaves + kLanes * cut->word);
      *at &= ~(Eight(mine > cut->above) & cut->gone);
    }
  }
  static inline __attribute__((always_inline)) void keep(uint32_t *leaves, const uint32_t *kept, size_t words) {
    for (size_t word = 0; word < words; word += kLanes)
      *reinterpret_cast<EightAnywhere *>(leaves + word) &= *reinterpret_cast<const EightAnywhere *>(kept + word);
  }
};
#if defined(__x86_64__)
const bool kAvx2 = __builtin_cpu_supports("avx2");
template <class Cut>
__attribute__((target("avx2"))) void take_avx2(const Cut *cut, const float *values, float most, uint32_t *leaves) {
  OnEight::take(cut, values, most, leaves);
}
__attribute__((target("avx2"))) void keep_avx2(uint32_t *leaves, const uint32_t *kept, size_t words) {
  OnEight::keep(leaves, kept, words);
}
template <class Cut> void take_eight(const Cut *cut, const float *values, float most, uint32_t *leaves) {
  if (kAvx2) take_avx2(cut, values, most, leaves);
  else OnEight::take(cut, values, most, leaves);
}
void keep(uint32_t *leaves, const uint32_t *kept, size_t words) {
  if (kAvx2) keep_avx2(leaves, kept, words);
  else OnEight::keep(leaves, kept, words);
}
#else
template <class Cut> void take_eight(const Cut *cut, const float *values, float most, uint32_t *leaves) {
  OnEight::take(cut, values, most, leaves);
}
void keep(uint32_t *leaves, const uint32_t *kept, size_t words) { OnEight::keep(leaves, kept, words); }
#endif

// The first leaf of a tree that is left: its last one always is.
inline uint32_t first_leaf(const uint32_t *words, int64_t step, uint32_t count) {
  uint32_t leaf = 0;
  for (; --count && !*words; words += step) leaf += 32;
  return leaf + uint32_t(__builtin_ctz(*words));
}

}  // namespace

struct Forest::Node {
  float threshold;
  int32_t feature, left;
  float value;
};

Forest::Forest(const std::string &bytes, const std::string &what, double base, Widths widths)
    : widths_(widths), base_(base) {
  int64_t counts[2] = {-1, -1};
  constexpr size_t kHead = kMarkBytes + sizeof counts;
  if (bytes.size() < kHead || bytes.compare(0, kMarkBytes, kMark) != 0) damaged(what, "it begins otherwise");
  std::memcpy(counts, bytes.data() + kMarkBytes, sizeof counts);
  constexpr int64_t kMost = int64_t(1) << 28;
  if (counts[0] < 0 || counts[1] < 0 || counts[0] > kMost || counts[1] > counts[0] ||
      bytes.size() != kHead + size_t(counts[0]) * sizeof(Node) + size_t(counts[1]) * sizeof(int32_t))
    damaged(what, "its size is another");
  std::vector<Node> nodes(static_cast<size_t>(counts[0]));
  std::vector<int32_t> roots(size_t(counts[1]) + 1, int32_t(counts[0]));
  if (counts[0]) std::memcpy(nodes.data(), bytes.data() + kHead, nodes.size() * sizeof(Node));
  if (counts[1])
    std::memcpy(roots.data(), bytes.data() + kHead + nodes.size() * sizeof(Node), (roots.size() - 1) * sizeof(int32_t));
  std::vector<std::pair<int32_t, Cut>> cuts;
  for (size_t tree = 0; tree + 1 < roots.size(); ++tree) read_tree(nodes, roots[tree], roots[tree + 1], what, cuts);
  std::sort(cuts.begin(), cuts.end(), [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first < b.first : a.second.above < b.second.above;
  });
  // Words of trees that look at the problem alone come behind the others.  A feature's last cut is one that nothing passes.
  of_others_ = words_;
  auto cut = cuts.begin();
  for (int64_t feature = 0; feature < widths.problem + widths.kernel + widths.both + 1; ++feature) {
    first_.push_back(uint32_t(cuts_.size()));
    for (; cut != cuts.end() && cut->first == feature; ++cut) {
      Cut &mine = cuts_.emplace_back(cut->second);
      if (mine.word & kAlike) mine.word = (mine.word & ~kAlike) + of_others_;
    }
    cuts_.push_back({HUGE_VALF, 0, 0});
  }
  for (Tree &tree : alike_) tree.word += of_others_;
  words_ += alike_words_;
  words_ += (kLanes - words_ % kLanes) % kLanes;  // whole vectors
  first_.push_back(uint32_t(cuts_.size()));
  step_ = std::max<uint32_t>(16, words_ / 32);
  for (size_t feature = 0; feature + 1 < first_.size(); ++feature) {
    ahead_at_.push_back(uint32_t(ahead_.size()));
    std::vector<uint32_t> leaves(words_, ~uint32_t(0));
    for (uint32_t at = first_[feature]; at + step_ < first_[feature + 1]; at += step_) {
      for (uint32_t i = 0; i < step_; ++i) leaves[cuts_[at + i].word] &= ~cuts_[at + i].gone;
      ahead_.insert(ahead_.end(), leaves.begin(), leaves.end());
    }
  }
}

// Leaves are numbered from left to right; those that are left of a node's right child are cut where a feature lies above.
void Forest::read_tree(const std::vector<Node> &nodes, int32_t root, int32_t end, const std::string &what,
                       std::vector<std::pair<int32_t, Cut>> &cuts) {
  if (root < 0 || root >= end || end > int32_t(nodes.size())) damaged(what, "its trees do not follow each other");
  const int64_t width = widths_.problem + widths_.kernel + widths_.both + 1;
  const size_t size = size_t(end - root);
  std::vector<uint32_t> count(size, 1), start(size, 0), parents(size, 0);
  bool alike = true;
  for (int32_t at = end; at-- > root;) {  // children come behind their parents
    const Node &node = nodes[size_t(at)];
    const bool leaf = node.left == at, inside = node.left > at && node.left + 1 < end;
    if (node.feature < 0 || node.feature >= width || (!leaf && !inside)) damaged(what, "a node leads back, or outside");
    if (leaf && !std::isfinite(node.value)) damaged(what, "a leaf is no number");
    if (leaf) continue;
    const size_t left = size_t(node.left - root);
    if (++parents[left] > 1 || ++parents[left + 1] > 1) damaged(what, "two nodes lead to one");
    count[size_t(at - root)] = count[left] + count[left + 1];
    alike = alike && node.feature < widths_.problem;
  }
  if (size_t(std::count(parents.begin(), parents.end(), 0u)) != 1 || parents[0]) damaged(what, "a node has no parent");
  uint32_t &words = alike ? alike_words_ : words_;
  const Tree tree{words, (count[0] + 31) / 32, uint32_t(values_.size())};
  words += tree.words, values_.resize(values_.size() + count[0]);
  for (int32_t at = root; at < end; ++at) {
    const Node &node = nodes[size_t(at)];
    const size_t mine = size_t(at - root), left = size_t(node.left - root);
    if (node.left == at) {
      values_[tree.leaf + start[mine]] = node.value;
      continue;
    }
    start[left] = start[mine], start[left + 1] = start[mine] + count[left];
    if (!(node.threshold < HUGE_VALF)) continue;                                     // nothing lies above
    for (uint32_t from = start[mine], to = start[mine] + count[left]; from < to;) {  // word by word
      const uint32_t last = std::min(to, (from / 32 + 1) * 32), bits = last - from;
      const uint32_t gone = (bits == 32 ? ~uint32_t(0) : (uint32_t(1) << bits) - 1) << from % 32;
      cuts.push_back({node.feature, {node.threshold, gone, (tree.word + from / 32) | (alike ? kAlike : 0)}});
      from = last;
    }
  }
  (alike ? alike_ : others_).push_back(tree);
}

// Behind the cuts that a value passes.  Most of them were put together before.
const Forest::Cut *Forest::take(int64_t feature, float value, uint32_t *leaves) const {
  const Cut *cut = cuts_.data() + first_[size_t(feature)], *const end = cuts_.data() + first_[size_t(feature) + 1];
  uint32_t steps = 0;
  for (; cut + step_ < end && value > cut[step_ - 1].above; cut += step_) ++steps;
  if (steps) {
    const uint32_t *const ahead = ahead_.data() + ahead_at_[size_t(feature)] + size_t(steps - 1) * words_;
    keep(leaves, ahead, words_);
  }
  for (; value > cut->above; ++cut) leaves[cut->word] &= ~cut->gone;
  return cut;
}

std::vector<uint32_t> Forest::leaves_of(const float *kernel) const {
  std::vector<uint32_t> leaves(words_, ~uint32_t(0));
  for (int64_t f = 0; f < widths_.kernel; ++f) take(widths_.problem + f, kernel[f], leaves.data());
  return leaves;
}

std::vector<uint32_t> Forest::side_by_side(const std::vector<uint32_t> &leaves) const {
  const size_t kernels = words_ ? leaves.size() / words_ : 0, blocks = (kernels + kLanes - 1) / kLanes;
  std::vector<uint32_t> together(blocks * words_ * kLanes, ~uint32_t(0));
  for (size_t kernel = 0; kernel < kernels; ++kernel)
    for (size_t word = 0; word < words_; ++word)
      together[(kernel / kLanes * words_ + word) * kLanes + kernel % kLanes] = leaves[kernel * words_ + word];
  return together;
}

// Of up to eight kernels, `count` of the near ones from `first` on.  Lanes that are not used repeat the first of them.
// `block`: they lie among eight that are read at once; else each is read where it lies.
void Forest::score_eight(const Query &query, int64_t first, int64_t count, bool block, double *scores) const {
  Desk &d = desk();
  const int64_t *const near = query.near + first;
  const double *const both = query.both + first;
  uint32_t *const some = d.some.data()->lane;
  const uint32_t *const shared = d.leaves.data();
  const Cut *const *const behind_of = d.behind.data();
  int64_t lanes[kLanes], columns[kLanes] = {};  // where a near kernel is, and which one a lane has
  for (int64_t at = 0; at < count; ++at) lanes[at] = block ? near[at] % kLanes : at, columns[lanes[at]] = at;
  if (block) {
    const uint32_t *const mine = query.blocks + size_t(near[0] / kLanes) * words_ * kLanes;
    for (size_t word = 0; word < of_others_; ++word)
      reinterpret_cast<Eight *>(some)[word] =
          *reinterpret_cast<const EightAnywhere *>(mine + kLanes * word) & shared[word];
  } else {
    const uint32_t *mine[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) mine[lane] = query.kernels + size_t(near[columns[lane]]) * words_;
    for (size_t word = 0; word < of_others_; ++word) {
      const Eight all = {mine[0][word], mine[1][word], mine[2][word], mine[3][word],
                         mine[4][word], mine[5][word], mine[6][word], mine[7][word]};
      reinterpret_cast<Eight *>(some)[word] = all & shared[word];
    }
  }
  for (int64_t f = 0; f < widths_.both; ++f) {
    const Cut *const behind = behind_of[f];  // what all kernels pass
    if (behind->above == HUGE_VALF) continue;
    float values[kLanes], most = -HUGE_VALF;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      values[lane] = float(both[f * query.stride + columns[lane]]);
      most = values[lane] > most ? values[lane] : most;
    }
    take_eight(behind, values, most, some);
  }
  for (const Tree &tree : others_) {
    const uint32_t *const words = some + kLanes * int64_t(tree.word);
    const float *const values = values_.data() + tree.leaf;
    if (tree.words == 1)
      for (int64_t at = 0; at < count; ++at) scores[at] += double(values[__builtin_ctz(words[lanes[at]])]);
    else
      for (int64_t at = 0; at < count; ++at)
        scores[at] += double(values[first_leaf(words + lanes[at], kLanes, tree.words)]);
  }
}

void Forest::score(const Query &query, double *scores) const {
  Desk &d = desk();
  d.leaves.assign(words_, ~uint32_t(0)), d.some.resize(words_);
  for (int64_t f = 0; f < widths_.problem; ++f) take(f, query.problem[f], d.leaves.data());
  take(widths_.problem + widths_.kernel + widths_.both, query.units, d.leaves.data());
  d.behind.resize(size_t(widths_.both));
  for (int64_t f = 0; f < widths_.both; ++f) {
    const double *const row = query.both + f * query.stride;
    float least = HUGE_VALF;
    for (int64_t at = 0; at < query.count; ++at) {
      const float value = float(row[at]);
      least = std::isnan(value) ? -HUGE_VALF : std::min(least, value);  // what is no number passes nothing
    }
    d.behind[size_t(f)] = take(widths_.problem + widths_.kernel + f, least, d.leaves.data());
  }
  double common = base_;
  for (const Tree &tree : alike_) {
    common += double(values_[tree.leaf + first_leaf(d.leaves.data() + tree.word, 1, tree.words)]);
  }
  std::fill_n(scores, query.count, common);
  // Eight that lie together are read at once; where few of each eight are near, others are put together.
  int64_t blocks = query.count ? 1 : 0;
  for (int64_t at = 1; at < query.count; ++at) blocks += query.near[at] / kLanes != query.near[at - 1] / kLanes;
  const bool block = query.blocks && blocks <= 2 * ((query.count + kLanes - 1) / kLanes);
  for (int64_t first = 0, last; first < query.count; first = last) {
    last = std::min(first + kLanes, query.count);
    while (block && query.near[last - 1] / kLanes != query.near[first] / kLanes) --last;
    score_eight(query, first, last - first, block, scores + first);
  }
}

std::unique_ptr<Model> read_model(const Json &row, const std::string &bytes) {
  auto model = std::make_unique<Model>();
  const std::string what = "a model of a registry";
  model->name = row.at("name", what).text("its name");
  const std::vector<Json> &units = row.at("units", what).items("units");
  const std::vector<double> rough = reals(row.at("rough", what), "rough");
  model->low = reals(row.at("low", what), "low"), model->high = reals(row.at("high", what), "high");
  if (units.size() != 2 || rough.size() != 3 || model->low.size() != model->high.size())
    damaged(model->name, "its ranges do not fit its features");
  model->least_units = units[0].integer("units"), model->most_units = units[1].integer("units");
  for (size_t i = 0; i < 3; ++i) model->rough[i] = rough[i];
  model->both = row.at("both", what).integer("both"), model->estimated = row.at("estimated", what).boolean("estimated");
  model->far = row.at("far", what).real("far"), model->trust = row.at("trust", what).real("trust");
  model->own = row.at("own", what).integer("own");
  if (model->both < 0 || model->both > 4096 || model->own < 0 || model->own > 4096)
    damaged(model->name, "its features are too many");
  model->forest = std::make_unique<Forest>(bytes, model->name, row.at("base", what).real("base"),
                                           Forest::Widths{int64_t(model->low.size()), model->own, model->both});
  return model;
}

namespace {

// How many numbers a kernel's term has at least, by what the library says of its place; 0 where it may be missing and is.
size_t rows_of(const std::string &said, const Json &term, const Model &model) {
  const bool optional = said.back() == '?';
  if (term.is_null() && !optional) damaged(model.name, "a term is missing");
  return term.is_null() ? 0 : size_t(std::stoll(said));
}

}  // namespace

Voice read_voice(const Model &model, const SelectionLibrary &library, const Json &group) {
  Voice voice;
  voice.model = &model;
  if (int64_t(model.low.size()) != library.of_problem || model.both != library.of_both + (model.estimated ? 1 : 0))
    damaged(model.name, "it has other features than its selection library");
  const std::string what = "the kernels of a model";
  const std::vector<Json> &kernels = group.at("kernels", what).items("kernels"),
                          &rows = group.at("rows", what).items("rows");
  if (rows.size() != kernels.size() || rows.empty()) damaged(model.name, "it has other kernels than features");
  for (const Json &row : rows) {
    const std::vector<double> numbers = reals(row, "a feature");
    if (int64_t(numbers.size()) != model.own) damaged(model.name, "a kernel has other features than it looks at");
    const std::vector<float> own(numbers.begin(), numbers.end());
    const std::vector<uint32_t> leaves = model.forest->leaves_of(own.data());
    voice.leaves.insert(voice.leaves.end(), leaves.begin(), leaves.end());
  }
  voice.blocks = model.forest->side_by_side(voice.leaves);
  for (const Json &place : group.at("unseen", what).items("unseen")) {
    voice.unseen.push_back(place.integer("a place"));
    if (voice.unseen.back() < 0 || voice.unseen.back() >= int64_t(kernels.size()))
      damaged(model.name, "a kernel is not there");
  }
  for (const Json &word : group.at("words", what).items("words")) {
    const std::vector<Json> &pair = word.items("a word");
    if (pair.size() != 2 || pair[0].integer("a place") < 0 || pair[0].integer("a place") >= int64_t(model.low.size()))
      damaged(model.name, "a word has no place");
    voice.words.emplace_back(pair[0].integer("a place"), float(pair[1].real("a word")));
  }
  const size_t real_terms = size_t(group.at("real_terms", what).integer("real_terms"));
  for (const auto &member : group.at("terms", what).members("terms")) {
    auto terms = std::make_unique<Voice::Terms>();
    const std::vector<Json> &listed = member.second.items("terms");
    if (listed.size() != library.of_terms.size()) damaged(model.name, "it has other terms than its selection library");
    terms->real.reserve(listed.size()), terms->switches.reserve(listed.size());
    for (size_t at = 0; at < listed.size(); ++at) {
      const size_t rows = rows_of(library.of_terms[at], listed[at], model);
      if (!rows) {
        terms->places.push_back(nullptr);
        continue;
      }
      std::vector<double> numbers = reals(listed[at], "a term");
      if (numbers.size() % kernels.size() || numbers.size() < rows * kernels.size())
        damaged(model.name, "a term is not of its kernels");
      if (at < real_terms) {
        terms->real.push_back(std::move(numbers));
        terms->places.push_back(terms->real.back().data());
      } else {
        terms->switches.emplace_back(numbers.begin(), numbers.end());
        terms->places.push_back(terms->switches.back().data());
      }
    }
    voice.terms[std::stoll(member.first)] = std::move(terms);
  }
  if (voice.terms.empty()) damaged(model.name, "it has no terms");
  return voice;
}

bool knows_device(const Json &devices, const std::string &arch) {
  const std::map<std::string, Json> here = identity_of(arch);
  for (const Json &device : devices.items("devices")) {
    bool same = !device.members("a device").empty();
    for (const auto &word : device.members("a device")) {
      const auto mine = here.find(word.first);
      same = same && mine != here.end() && mine->second.written() == word.second.written();
    }
    if (same) return true;
  }
  return false;
}

namespace {

// Whether what the model sees of the problem, which is put down on the desk, lies within what it was trained on.
bool fill_problem(const Voice &voice, const SelectionLibrary &library, const Query &query, double &rough) {
  Desk &d = desk();
  const Model &model = *voice.model;
  d.problem.resize(model.low.size());
  rough = library.problem_features(query.numbers, model.rough, d.problem.data());
  for (const auto &word : voice.words) d.problem[size_t(word.first)] = word.second;
  for (size_t at = 0; at < d.problem.size(); ++at)
    if (double(d.problem[at]) < model.low[at] || double(d.problem[at]) > model.high[at]) return false;
  return true;
}

// Seconds of the kernels whose estimates give them a hope; false where one is no number.  `known` on the desk are
// estimates of the kernels that the model has seen, the least of which is `least`.
bool fill_seconds(const Voice &voice, const SelectionLibrary &library, const Query &query, double least, double rough) {
  Desk &d = desk();
  const Model &model = *voice.model;
  d.near.clear();
  for (int64_t at = 0; at < query.count; ++at)
    if (d.known[size_t(at)] <= model.far * least) d.near.push_back(at);
  const int64_t near = int64_t(d.near.size());
  d.both.resize(size_t(model.both * query.count)), d.scores.resize(size_t(near));
  const auto terms = std::prev(voice.terms.upper_bound(query.units));
  library.kernel_features(query.numbers, terms->second->places.data(), query.count, query.units, d.near.data(), near,
                          d.both.data());
  double *ratios = d.both.data() + (model.both - 1) * query.count;
  for (int64_t row = 0; model.estimated && row < near; ++row)
    ratios[row] = d.known[size_t(d.near[size_t(row)])] / least;
  model.forest->score({d.problem.data(), float(query.units), voice.leaves.data(), voice.blocks.data(), d.both.data(),
                       d.near.data(), near, query.count},
                      d.scores.data());
  d.seconds.assign(size_t(query.count), HUGE_VAL);
  for (size_t row = 0; row < d.near.size(); ++row) {
    const size_t at = size_t(d.near[row]);
    const double ahead = model.trust != 0 ? model.trust * std::log(d.known[at] / least) : 0.0;
    d.seconds[at] = rough * std::exp(d.scores[row] + ahead);
    if (std::isnan(d.seconds[at])) return false;
  }
  return true;
}

// The place of the lowest time, the first of equal ones; -1 where all take for ever.
int64_t lowest(const std::vector<double> &seconds) {
  const auto least = std::min_element(seconds.begin(), seconds.end());
  return least == seconds.end() || !(*least < HUGE_VAL) ? -1 : least - seconds.begin();
}

}  // namespace

bool predict(const Voice &voice, const SelectionLibrary &library, const Query &query, Predicted &predicted) {
  if (query.units < voice.model->least_units || query.units > voice.model->most_units) return false;
  if (voice.terms.upper_bound(query.units) == voice.terms.begin()) return false;
  Desk &d = desk();
  d.known.assign(query.estimates, query.estimates + query.count);
  for (int64_t at : voice.unseen) d.known[size_t(at)] = HUGE_VAL;
  const double least = *std::min_element(d.known.begin(), d.known.end());
  if (!(least < HUGE_VAL)) return false;  // it has seen none of them
  double rough = 0;
  if (!fill_problem(voice, library, query, rough) || !fill_seconds(voice, library, query, least, rough)) return false;
  const int64_t mine = lowest(d.seconds);
  if (mine < 0) return false;
  // Kernels newer than the model: so much of the time of the one it would choose as of its estimate.
  for (int64_t at : voice.unseen)
    d.seconds[size_t(at)] = query.estimates[at] < HUGE_VAL
                                ? d.seconds[size_t(mine)] * query.estimates[at] / query.estimates[mine]
                                : HUGE_VAL;
  predicted.best = lowest(d.seconds), predicted.seconds = d.seconds[size_t(predicted.best)];
  predicted.seen = std::find(voice.unseen.begin(), voice.unseen.end(), predicted.best) == voice.unseen.end();
  return true;
}

}  // namespace runtime
}  // namespace tw
