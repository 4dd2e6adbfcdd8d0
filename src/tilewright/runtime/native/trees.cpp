// Scores rows of features with a forest of regression trees: row by row traversals for any forest, and whole blocks of rows
// at once for forests of small trees whose features take few thresholds.
#include "trees_blocks.h"

#define SHOWN extern "C" __attribute__((visibility("default")))

SHOWN int64_t tw_trees_abi_version() { return 8; }

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

namespace {

// The first of the problem's features that lies beyond what the model has seen; -1 where none does.
int64_t beyond(const Question &query, const Prediction &p) {
  for (int64_t at = 0; at < query.problem_count; ++at) {
    const double value = query.problem[at];
    if (value < p.low[at] || value > p.high[at]) return at;
  }
  return -1;
}

// The kernels whose estimates are near the least of all, which it returns, are asked about.
double ask_near(Question &query, const Prediction &p) {
  double least = p.estimates[0];
  for (int64_t i = 1; i < query.stride; ++i) least = p.estimates[i] < least ? p.estimates[i] : least;
  const double most = p.far * least;
  int64_t *near = const_cast<int64_t *>(query.candidates);
  int64_t count = 0;
  for (int64_t i = 0; i < query.stride; ++i) near[count] = i, count += p.estimates[i] <= most;
  query.count = count;
  return least;
}

}  // namespace

// out[i] = base + sum over trees, of the kernel query.candidates[i]; `room` has 64 bytes a decision and 64 more, aligned so.
SHOWN void tw_trees_ask(const Shared *forest, const Question *query, void *room, double *out) {
  const double base = common(*forest, query->problem);
  int64_t begin = 0;
  for (int64_t left = query->count; left > 0; left = query->count - begin) {
    if (left <= 64) begin += Block<1>::ask(*forest, *query, begin, base, room, out);
    else if (left <= 128) begin += Block<2>::ask(*forest, *query, begin, base, room, out);
    else if (left <= 256 || most_words == 4) begin += Block<4>::ask(*forest, *query, begin, base, room, out);
    else begin += Block<most_words>::ask(*forest, *query, begin, base, room, out);
  }
}

namespace {

void predict_near(const Shared &forest, const Question &query, void *room, double *out, const Prediction &p,
                  double least) {
  const int64_t *near = query.candidates;
  for (int64_t i = 0; i < query.stride; ++i) p.seconds[i] = __builtin_inf();
  tw_trees_ask(&forest, &query, room, out);
  for (int64_t i = 0; i < query.count; ++i) {
    const double predicted = p.trust ? p.trust * log(p.estimates[near[i]] / least) : 0.0;
    p.seconds[near[i]] = p.rough * exp(out[i] + predicted);
  }
}

}  // namespace

// The whole of a prediction; `query.candidates` has room for all kernels, and is filled in.
SHOWN void tw_trees_predict(const Shared *forest, Question *query, void *room, double *out, Prediction *wanted) {
  wanted->beyond = beyond(*query, *wanted);
  if (wanted->beyond >= 0) return;
  const double least = ask_near(*query, *wanted);
  predict_near(*forest, *query, room, out, *wanted, least);
}

namespace {

// The two lowest times.  False where one is no number.
bool ranked(const double *seconds, int64_t count, int64_t *first, int64_t *second) {
  *first = *second = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (isnan(seconds[i])) return false;
    if (isinf(seconds[i])) continue;
    if (*first < 0 || seconds[i] < seconds[*first]) *second = *first, *first = i;
    else if (*second < 0 || seconds[i] < seconds[*second]) *second = i;
  }
  return *first >= 0;
}

enum Decision : int64_t { kUnclear = -2, kSilent = -1, kEstimate = 0, kForest = 1 };

// What the forest says of the kernels that serve the problem, where it has something to say.
Decision decide(Choice &c) {
  const int64_t count = c.query.stride;
  const double *estimates = c.wanted.estimates;
  int64_t unseen = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!c.rules[i] && isinf(estimates[i])) return kSilent;
    c.known[i] = c.rules[i] ? __builtin_inf() : estimates[i];
  }
  for (int64_t i = 0; i < c.unseen_count; ++i) unseen += !c.rules[c.unseen[i]], c.known[c.unseen[i]] = __builtin_inf();
  if (unseen == *c.served) return kSilent;
  const double rough = c.problem_features(c.numbers, c.rough, c.problem);
  for (int64_t i = 0; i < c.word_count; ++i) c.problem[c.word_at[i]] = c.words[i];
  Prediction predicted = c.wanted;
  predicted.estimates = c.known, predicted.rough = rough;
  if (beyond(c.query, predicted) >= 0) return kSilent;
  const double least = ask_near(c.query, predicted);
  c.kernel_features(c.numbers, c.terms, count, c.units, c.query.candidates, c.query.count, c.both);
  if (c.estimated) {
    double *ratios = c.both + (c.query.both_count - 1) * count;
    for (int64_t i = 0; i < c.query.count; ++i) ratios[i] = c.known[c.query.candidates[i]] / least;
  }
  predict_near(*c.forest, c.query, c.room, c.out, predicted, least);
  if (!ranked(predicted.seconds, count, &c.first, &c.second)) return kUnclear;
  if (!unseen) return kForest;
  // Kernels newer than the model: so much of the time of the one it would choose as of its estimate.
  const int64_t best = c.first;
  for (int64_t i = 0; i < c.unseen_count; ++i) {
    const int64_t at = c.unseen[i];
    predicted.seconds[at] = c.rules[at] ? __builtin_inf() : predicted.seconds[best] * estimates[at] / estimates[best];
  }
  return ranked(predicted.seconds, count, &c.first, &c.second) ? kForest : kUnclear;
}

}  // namespace

SHOWN int64_t tw_trees_choice_bytes() { return sizeof(Choice); }

// Numbers of the problem and words are filled in.
SHOWN void tw_trees_choose(Choice *choice) {
  Choice &c = *choice;
  c.ask(c.question);
  c.some = c.served[0], c.best = c.served[1];
  c.decided = c.some < 2 ? kEstimate : decide(c);
  c.best_seconds = c.best < 0 ? 0.0 : c.wanted.estimates[c.best];
  if (c.decided != kForest) return;
  c.first_seconds = c.wanted.seconds[c.first];
  c.second_seconds = c.second < 0 ? 0.0 : c.wanted.seconds[c.second];
}
