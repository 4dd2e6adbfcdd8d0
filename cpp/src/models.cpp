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

[[noreturn]] void damaged(const std::string &what, const std::string &why) {
  throw bad_machine("model-file", what, what + " is no model that can be used: " + why, "export the registry again");
}

std::vector<double> reals(const Json &list, const std::string &what) {
  std::vector<double> numbers;
  for (const Json &number : list.items(what)) numbers.push_back(number.real(what));
  return numbers;
}

// What a thread asks with, kept so that a question seldom allocates.
struct Desk {
  std::vector<float> problem, rows;
  std::vector<double> both, known, scores, seconds;
  std::vector<int64_t> near, which;
  std::vector<float> values;
  std::vector<double> ahead;
};
Desk &desk() {
  static thread_local Desk mine;
  return mine;
}

}  // namespace

Forest::Forest(const std::string &bytes, const std::string &what, double base, int64_t of_problem, int64_t width)
    : base_(base) {
  int64_t counts[2] = {-1, -1};
  constexpr size_t kHead = kMarkBytes + sizeof counts;
  if (bytes.size() < kHead || bytes.compare(0, kMarkBytes, kMark) != 0) damaged(what, "it begins otherwise");
  std::memcpy(counts, bytes.data() + kMarkBytes, sizeof counts);
  constexpr int64_t kMost = int64_t(1) << 30;
  if (counts[0] < 0 || counts[1] < 0 || counts[0] > kMost || counts[1] > counts[0] ||
      bytes.size() != kHead + size_t(counts[0]) * sizeof(Node) + size_t(counts[1]) * sizeof(int32_t))
    damaged(what, "its size is another");
  nodes_.resize(size_t(counts[0]));
  std::vector<int32_t> roots(size_t(counts[1]) + 1, int32_t(counts[0]));
  if (counts[0]) std::memcpy(nodes_.data(), bytes.data() + kHead, nodes_.size() * sizeof(Node));
  if (counts[1])
    std::memcpy(roots.data(), bytes.data() + kHead + nodes_.size() * sizeof(Node),
                (roots.size() - 1) * sizeof(int32_t));
  std::vector<int64_t> level(nodes_.size(), 0);
  for (size_t tree = 0; tree + 1 < roots.size(); ++tree) {
    if (roots[tree] < 0 || roots[tree] >= roots[tree + 1]) damaged(what, "its trees do not follow each other");
    bool alike = true;
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (int32_t at = roots[tree]; at < roots[tree + 1]; ++at) {
      Node &node = nodes_[size_t(at)];
      const bool leaf = node.left == at, inside = node.left > at && node.left + 1 < roots[tree + 1];
      if (node.feature < 0 || node.feature >= width || (!leaf && !inside))
        damaged(what, "a node leads back, or outside");
      if (leaf) {
        if (!std::isfinite(node.value)) damaged(what, "a leaf is no number");
        node.threshold = HUGE_VALF, node.feature = 0;  // a walk that has come here stays here
        low = std::min(low, double(node.value)), high = std::max(high, double(node.value));
        depth_ = std::max(depth_, level[size_t(at)]);
        continue;
      }
      for (int32_t next : {node.left, node.left + 1})
        level[size_t(next)] = std::max(level[size_t(next)], level[size_t(at)] + 1);
      alike = alike && node.feature < of_problem;
    }
    (alike ? alike_ : others_).push_back(roots[tree]);
    if (!alike) low_.push_back(low), high_.push_back(high);
  }
  for (size_t tree = low_.size(); tree-- > 1;) low_[tree - 1] += low_[tree], high_[tree - 1] += high_[tree];
}

// The values of trees for rows, tree by tree.  Eight walks beside each other, written out and without a branch: where a
// problem leads is not foreseen by the processor, and each walk waits for memory at every step.
template <size_t... lane>
void Forest::walk_lanes(int32_t *at, const float *const *features, std::index_sequence<lane...>) const {
  const Node *const nodes = nodes_.data();
  int32_t now[] = {at[lane]...};
  for (int64_t step = 0; step < depth_; ++step)
    ((now[lane] =
          nodes[now[lane]].left + int32_t(features[lane][nodes[now[lane]].feature] > nodes[now[lane]].threshold)),
     ...);
  ((at[lane] = now[lane]), ...);
}

void Forest::walk(const int32_t *roots, size_t trees, const float *rows, int64_t width,
                  const std::vector<int64_t> &which, std::vector<float> &values) const {
  constexpr size_t kLanes = 8;
  int32_t at[kLanes] = {};
  const float *features[kLanes];
  for (const float *&each : features) each = rows;  // lanes that are not used walk too
  size_t used = 0;
  values.resize(trees * which.size());
  float *into = values.data();
  const auto finish = [&] {
    walk_lanes(at, features, std::make_index_sequence<kLanes>());
    for (size_t lane = 0; lane < used; ++lane) *into++ = nodes_[size_t(at[lane])].value;
    used = 0;
  };
  for (size_t tree = 0; tree < trees; ++tree)
    for (int64_t row : which) {
      at[used] = roots[tree], features[used] = rows + row * width;
      if (++used == kLanes) finish();
    }
  if (used) finish();
}

double Forest::common(const float *problem) const {
  Desk &d = desk();
  d.which.assign(1, 0);
  walk(alike_.data(), alike_.size(), problem, 0, d.which, d.values);
  double sum = base_;
  for (float value : d.values) sum += double(value);
  return sum;
}

void Forest::score(const float *rows, int64_t count, int64_t width, const double *ahead, double *scores) const {
  constexpr size_t kTrees = 16;     // after so many it is seen who can still win
  constexpr double kMargin = 1e-6;  // far more than sums of doubles are wrong by
  Desk &d = desk();
  d.which.resize(size_t(count));
  for (int64_t row = 0; row < count; ++row) d.which[size_t(row)] = row;
  for (size_t first = 0; first < others_.size(); first += kTrees) {
    if (ahead && first && d.which.size() > 1) {
      double bar = HUGE_VAL;
      for (int64_t row : d.which) bar = std::min(bar, scores[row] + ahead[row] + high_[first]);
      const auto beaten = [&](int64_t row) {
        if (!(scores[row] + ahead[row] + low_[first] > bar + kMargin)) return false;
        return scores[row] = HUGE_VAL, true;
      };
      d.which.erase(std::remove_if(d.which.begin(), d.which.end(), beaten), d.which.end());
    }
    const size_t trees = std::min(kTrees, others_.size() - first);
    walk(others_.data() + first, trees, rows, width, d.which, d.values);
    const float *value = d.values.data();
    for (size_t tree = 0; tree < trees; ++tree)
      for (int64_t row : d.which) scores[row] += double(*value++);
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
  const int64_t of_kernel = row.at("own", what).integer("own"), of_problem = int64_t(model->low.size());
  if (model->both < 0 || model->both > 4096 || of_kernel < 0 || of_kernel > 4096)
    damaged(model->name, "its features are too many");
  model->forest = std::make_unique<Forest>(bytes, model->name, row.at("base", what).real("base"), of_problem,
                                           of_problem + of_kernel + model->both + 1);
  return model;
}

Voice read_voice(const Model &model, const Json &group) {
  Voice voice;
  voice.model = &model;
  const std::string what = "the kernels of a model";
  const std::vector<Json> &kernels = group.at("kernels", what).items("kernels"),
                          &rows = group.at("rows", what).items("rows");
  if (rows.size() != kernels.size() || rows.empty()) damaged(model.name, "it has other kernels than features");
  voice.width = int64_t(rows[0].items("a row").size());
  for (const Json &row : rows) {
    if (int64_t(row.items("a row").size()) != voice.width) damaged(model.name, "its kernels differ in their features");
    for (double number : reals(row, "a feature")) voice.rows.push_back(float(number));
  }
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
    terms->real.reserve(listed.size()), terms->switches.reserve(listed.size());
    for (size_t at = 0; at < listed.size(); ++at) {
      if (listed[at].is_null()) {
        terms->places.push_back(nullptr);
        continue;
      }
      std::vector<double> numbers = reals(listed[at], "a term");
      if (numbers.size() % kernels.size()) damaged(model.name, "a term is not of its kernels");
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

// What the model sees of the problem, and of it with each kernel, on the desk; false where that is beyond its training.
// `known` are estimates of the kernels that it has seen, the least of which is `least`.
bool fill_features(const Voice &voice, Features features, const Asked &asked, double least) {
  Desk &d = desk();
  const Model &model = *voice.model;
  const auto terms = std::prev(voice.terms.upper_bound(asked.units));
  d.problem.assign(model.low.size(), 0), d.both.assign(size_t(model.both * asked.count), 0);
  features(asked.numbers, terms->second->places.data(), asked.count, asked.units, d.problem.data(), d.both.data());
  for (const auto &word : voice.words) d.problem[size_t(word.first)] = word.second;
  for (size_t at = 0; at < d.problem.size(); ++at)
    if (double(d.problem[at]) < model.low[at] || double(d.problem[at]) > model.high[at]) return false;
  double *ratios = d.both.data() + (model.both - 1) * asked.count;
  for (int64_t at = 0; model.estimated && at < asked.count; ++at) ratios[at] = d.known[size_t(at)] / least;
  return true;
}

// Seconds of the kernels whose estimates give them a hope; false where one is no number.
bool fill_seconds(const Voice &voice, const Asked &asked, double least) {
  Desk &d = desk();
  const Model &model = *voice.model;
  d.near.clear();
  for (int64_t at = 0; at < asked.count; ++at)
    if (d.known[size_t(at)] <= model.far * least) d.near.push_back(at);
  const int64_t width = int64_t(d.problem.size()) + voice.width + model.both + 1, near = int64_t(d.near.size());
  d.rows.resize(size_t(near * width));
  float *to = d.rows.data();
  for (int64_t at : d.near) {
    to = std::copy(d.problem.begin(), d.problem.end(), to);
    to = std::copy_n(voice.rows.data() + at * voice.width, voice.width, to);
    for (int64_t f = 0; f < model.both; ++f) *to++ = float(d.both[size_t(f * asked.count + at)]);
    *to++ = float(asked.units);
  }
  const double rough = model.rough[0] + model.rough[1] * asked.bytes + model.rough[2] * asked.flops;
  d.ahead.clear();
  for (int64_t at : d.near)
    d.ahead.push_back(model.trust != 0 ? model.trust * std::log(d.known[size_t(at)] / least) : 0.0);
  d.scores.assign(size_t(near), model.forest->common(d.problem.data()));
  const bool sound =
      rough > 0 && std::all_of(d.ahead.begin(), d.ahead.end(), [](double a) { return std::isfinite(a); });
  model.forest->score(d.rows.data(), near, width, sound ? d.ahead.data() : nullptr, d.scores.data());
  d.seconds.assign(size_t(asked.count), HUGE_VAL);
  for (size_t row = 0; row < d.near.size(); ++row) {
    const size_t at = size_t(d.near[row]);
    d.seconds[at] = rough * std::exp(d.scores[row] + d.ahead[row]);
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

bool predict(const Voice &voice, Features features, const Asked &asked, Predicted &told) {
  if (asked.units < voice.model->least_units || asked.units > voice.model->most_units) return false;
  if (voice.terms.upper_bound(asked.units) == voice.terms.begin()) return false;
  Desk &d = desk();
  d.known.assign(asked.estimates, asked.estimates + asked.count);
  for (int64_t at : voice.unseen) d.known[size_t(at)] = HUGE_VAL;
  const double least = *std::min_element(d.known.begin(), d.known.end());
  if (!(least < HUGE_VAL)) return false;  // it has seen none of them
  if (!fill_features(voice, features, asked, least) || !fill_seconds(voice, asked, least)) return false;
  const int64_t mine = lowest(d.seconds);
  if (mine < 0) return false;
  // Kernels newer than the model: so much of the time of the one it would choose as of its estimate.
  for (int64_t at : voice.unseen)
    d.seconds[size_t(at)] = asked.estimates[at] < HUGE_VAL
                                ? d.seconds[size_t(mine)] * asked.estimates[at] / asked.estimates[mine]
                                : HUGE_VAL;
  told.best = lowest(d.seconds), told.seconds = d.seconds[size_t(told.best)];
  told.seen = std::find(voice.unseen.begin(), voice.unseen.end(), told.best) == voice.unseen.end();
  return true;
}

}  // namespace runtime
}  // namespace tw
