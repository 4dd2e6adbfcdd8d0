// Scores rows of features with a forest of regression trees: row by row walks for any forest, and whole blocks of rows
// at once for forests of small trees whose features take few thresholds.
#include <math.h>
#include <stdint.h>
#include <string.h>

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

// A forest by sets of rows.  Trees share decisions: a decision is a feature and one of its thresholds, and what a block of
// rows says to it is worked out once, as a set of bits.  The inner nodes of a tree lie level by level.
struct Split {
  uint16_t decision;
  uint16_t at;    // the node's place in its tree
  uint16_t left;  // its children's places: this and the next
};

constexpr int most_deep = 8;

// A leaf has a number: bit d says whether the way to it goes right at level d.
struct Tree {
  uint8_t splits[most_deep];  // of a level; those of a tree lie behind those of the tree before
  int32_t deep;
  int32_t first_value;  // of 1 << deep
};

struct Shared {
  const Tree *trees;
  int64_t tree_count;
  const Split *splits;
  const float *values;
  const float *thresholds;  // of the decisions: ascending, feature by feature
  const int32_t *first;     // of a feature's; one more than features
  // Trees that look at the problem alone say the same of all rows: they are walked, once a question.
  const Node *nodes;
  const int32_t *roots;
  int64_t root_count;
  double base;
};

// The columns of a row, in order: `problem` that all rows share, `kernel` by rank, `both` as numbers, and the units.
struct Question {
  const float *problem;
  const uint16_t *kernel;  // a row of `stride` kernels a feature
  const double *both;      // the same
  const int64_t *asked;    // which kernels
  int64_t problem_count, kernel_count, both_count, stride, count;
  float units;
};

// What a model makes of the trees' scores: seconds of the kernels whose estimates are within `far` of the lowest.
struct Prediction {
  const double *estimates;   // of all kernels
  const double *low, *high;  // of the problem's features, between which the model speaks
  double far, trust, rough;
  double *seconds;  // of all kernels; infinite of those that are farther
  int64_t beyond;   // the first feature that lies beyond; -1 where none does, and `seconds` are told
};

// A whole choice in one call: a selection library says which kernels serve a problem and what each is estimated to take,
// and fills in features; the forest says which of them is the fastest.  All but `words` and `rough` is prepared once.
struct Choice {
  void (*ask)(void *question);  // of the selection library, as is all that stands here
  void *question;
  const void *numbers;    // the problem's
  const int64_t *served;  // its answers: how many kernels serve the problem, and of each the broken rule
  const int64_t *rules;
  void (*features)(const void *numbers, const void *terms, int64_t count, int64_t units, float *problem, double *both);
  const void *terms;
  const Shared *forest;
  void *room;
  double *out;
  double *known;   // room for the estimates of kernels that the model has seen
  float *problem;  // `asked` reads these two
  double *both;
  const int64_t *word_at;  // places among the problem's features, and what stands there
  const float *words;
  const int64_t *unseen;  // the places of kernels newer than the model
  int64_t word_count, unseen_count, estimated, units;
  Question asked;
  Prediction wanted;      // its estimates are the library's
  int64_t decided;        // the answers: `Decision`
  int64_t first, second;  // the kernel predicted the fastest, and the next; -1 where no other is predicted
};

constexpr int ahead = 8;                          // trees whose leaves are sent for at once
constexpr int most_nodes = (2 << most_deep) - 1;  // of a tree

// How many of a feature's thresholds lie below a value; of what is no number, none does.  Halves, without a branch that
// depends on the value.
inline int rank_of(const Shared &forest, int64_t feature, float value) {
  const float *at = forest.thresholds + forest.first[feature];
  const float *begin = at;
  int32_t left = forest.first[feature + 1] - forest.first[feature];
  if (left == 0) return 0;
  while (left > 1) {
    const int32_t half = left / 2;
    at += at[half - 1] < value ? half : 0;
    left -= half;
  }
  return (int)(at - begin) + (*at < value);
}

#ifdef __AVX512F__
constexpr int most_words = 8;  // of a set: one register
#else
constexpr int most_words = 4;
#endif
#ifdef __AVX2__
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

// The same of a block's rows: each threshold is compared with many values at a time, which is sooner done than halving
// for each.  Values and ranks are read and written in whole chunks.
constexpr int chunk = 64;
inline void count_below(const Shared &forest, int64_t feature, const float *values, int rows, int *ranks) {
  constexpr int wide = register_bytes / 4, parts = chunk / wide;
  typedef float Values __attribute__((vector_size(register_bytes)));
  typedef int Counts __attribute__((vector_size(register_bytes)));
  for (int first = 0; first < rows; first += chunk) {
    Values mine[parts];
    Counts below[parts] = {};
    memcpy(mine, values + first, sizeof mine);
    for (int32_t t = forest.first[feature]; t < forest.first[feature + 1]; ++t)
      for (int part = 0; part < parts; ++part) below[part] -= mine[part] > forest.thresholds[t];
    memcpy(ranks + first, below, sizeof below);
  }
}

#ifdef __AVX2__
// 32 rows' bits as bytes: 1 << level of a row whose bit is set.
constexpr int spread_rows = 32;
typedef uint8_t Bytes __attribute__((vector_size(spread_rows)));
inline Bytes spread(const uint8_t *bits, int level) {
  typedef uint32_t Words __attribute__((vector_size(spread_rows)));
  // Every byte is to hold the eight bits among which its row's is; shuffles stay within halves of a register.
  constexpr Bytes from = {0,  0,  0,  0,  0,  0,  0,  0,  1,  1,  1,  1,  1,  1,  1,  1,
                          18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19};
  constexpr Bytes mine = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                          1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  uint32_t word;
  memcpy(&word, bits, sizeof word);
  const Bytes all = __builtin_shuffle((Bytes)(Words{} + word), from);
  return (Bytes)((all & mine) == mine) & (uint8_t)(1 << level);
}
#else
// The same of eight rows, by a table: a byte's bits as bytes.
constexpr int spread_rows = 8;
typedef uint64_t Bytes;
struct Spread {
  uint64_t of[256];
  constexpr Spread() : of() {
    for (int byte = 0; byte < 256; ++byte)
      for (int bit = 0; bit < 8; ++bit) of[byte] |= (uint64_t)(byte >> bit & 1) << 8 * bit;
  }
};
constexpr Spread spread_of;
inline Bytes spread(const uint8_t *bits, int level) { return spread_of.of[*bits] << level; }
#endif

// Sets of the rows of a block of 64 * words.
template <int words> struct Rows {
  typedef uint64_t Bits __attribute__((vector_size(8 * words)));
  Bits bits;
};

template <int words> struct Block {
  static constexpr int most = 64 * words;
  using Set = Rows<words>;

  // Rows that go right, by decision: those whose rank is above the threshold's number.
  static void decide(const Shared &forest, int64_t feature, const int *ranks, int rows, Set *right) {
    const int32_t count = forest.first[feature + 1] - forest.first[feature];
    Set *mine = right + forest.first[feature];
    memset(mine, 0, (size_t)count * sizeof *mine);
    // Rank 0 goes right nowhere; its rows are put where something else is, which comes back.
    Set *ranked = mine - 1;
    const Set before = *ranked;
    // Rows in turns of a word each: a row need not wait for its neighbour, which often has the same rank.
    const int used = (rows + 63) / 64;
    for (int bit = 0; bit < 64; ++bit)
      for (int word = 0; word < used; ++word) ((uint64_t *)&ranked[ranks[64 * word + bit]])[word] |= (uint64_t)1 << bit;
    *ranked = before;
    for (int32_t t = count - 1; t > 0; --t) mine[t - 1].bits |= mine[t].bits;
  }

  // All rows agree.
  static void agree(const Shared &forest, int64_t feature, float value, Set *right) {
    const int32_t count = forest.first[feature + 1] - forest.first[feature];
    const int rank = rank_of(forest, feature, value);
    memset(right + forest.first[feature], 255, (size_t)rank * sizeof *right);
    memset(right + forest.first[feature] + rank, 0, (size_t)(count - rank) * sizeof *right);
  }

  static void fill(const Shared &forest, const Question &asked, const int64_t *kernels, int rows, Set *right) {
    int ranks[most] = {};
    float values[most] = {};
    int64_t feature = asked.problem_count;
    for (int64_t f = 0; f < asked.kernel_count; ++f, ++feature) {
      if (forest.first[feature] == forest.first[feature + 1]) continue;  // no tree asks for it
      const uint16_t *row = asked.kernel + f * asked.stride;
      for (int i = 0; i < rows; ++i) ranks[i] = row[kernels[i]];
      decide(forest, feature, ranks, rows, right);
    }
    for (int64_t f = 0; f < asked.both_count; ++f, ++feature) {
      if (forest.first[feature] == forest.first[feature + 1]) continue;
      const double *row = asked.both + f * asked.stride;
      for (int i = 0; i < rows; ++i) values[i] = (float)row[kernels[i]];
      count_below(forest, feature, values, rows, ranks);
      decide(forest, feature, ranks, rows, right);
    }
  }

  // Each row's number: its bits, gathered from the sets of rows that go right at each level.
  static void number(const Set *levels, int deep, int rows, uint8_t *out) {
    for (int first = 0; first < rows; first += spread_rows) {
      Bytes found = {};
      for (int level = 0; level < deep; ++level) found |= spread((const uint8_t *)&levels[level] + first / 8, level);
      memcpy(out + first, &found, sizeof found);
    }
  }

  // Every node's rows, from the root on; then each row's leaf.
  static void score(const Shared &forest, const Set *right, int rows, double *out) {
    const Split *split = forest.splits;
    Set sets[most_nodes], levels[most_deep];
    uint8_t numbers[ahead][most];
    int waiting = 0;
    memset(&sets[0], 255, sizeof sets[0]);
    for (const Tree *tree = forest.trees; tree < forest.trees + forest.tree_count; ++tree) {
      for (int level = 0; level < tree->deep; ++level) {
        typename Set::Bits gone = {};
        for (const Split *end = split + tree->splits[level]; split < end; ++split) {
          const typename Set::Bits here = sets[split->at].bits, there = here & right[split->decision].bits;
          sets[split->left].bits = here ^ there;
          sets[split->left + 1].bits = there;
          gone |= there;
        }
        levels[level].bits = gone;
      }
      number(levels, tree->deep, rows, numbers[waiting]);
      fetch(forest.values + tree->first_value, tree->deep, rows, numbers[waiting]);
      if (++waiting == ahead) add(forest, tree + 1 - waiting, waiting, rows, numbers, out), waiting = 0;
    }
    add(forest, forest.trees + forest.tree_count - waiting, waiting, rows, numbers, out);
  }

  // The leaves of some trees, which were sent for before they are read: between two calls of a program the values are
  // as good as never in a near cache, and the way through the next trees hides the wait.
  static void add(const Shared &forest, const Tree *trees, int count, int rows, const uint8_t (*numbers)[most],
                  double *out) {
    for (int t = 0; t < count; ++t) {
      const float *values = forest.values + trees[t].first_value;
      for (int i = 0; i < rows; ++i) out[i] += values[numbers[t][i]];
    }
  }

  static void fetch(const float *values, int deep, int rows, const uint8_t *numbers) {
    constexpr int line = 64 / sizeof(float);
    if (rows < (1 << deep) / line)
      for (int i = 0; i < rows; ++i) __builtin_prefetch(values + numbers[i]);
    else
      for (int at = 0; at < 1 << deep; at += line) __builtin_prefetch(values + at);
  }

  // The rows from `begin` on, as many as a block has: how many.  `base` is what all of them begin with.
  static int ask(const Shared &forest, const Question &asked, int64_t begin, double base, void *room, double *out) {
    Set *right = (Set *)room + 1;
    const int64_t units = asked.problem_count + asked.kernel_count + asked.both_count;
    for (int64_t f = 0; f < asked.problem_count; ++f) agree(forest, f, asked.problem[f], right);
    agree(forest, units, asked.units, right);
    const int rows = asked.count - begin < most ? (int)(asked.count - begin) : most;
    for (int i = 0; i < rows; ++i) out[begin + i] = base;
    fill(forest, asked, asked.asked + begin, rows, right);
    score(forest, right, rows, out + begin);
    return rows;
  }
};

// What the trees say that look at the problem alone.  Many are walked side by side: a step of one waits for memory.
double common(const Shared &forest, const float *problem) {
  double found = forest.base;
  for (int64_t first = 0; first < forest.root_count; first += together) {
    const int count = forest.root_count - first < together ? (int)(forest.root_count - first) : together;
    int32_t at[together];
    for (int i = 0; i < count; ++i) at[i] = forest.roots[first + i];
    for (bool on = true; on;) {
      on = false;
      for (int i = 0; i < count; ++i) {
        const Node &node = forest.nodes[at[i]];
        if (node.left == at[i]) continue;
        at[i] = node.left + (problem[node.feature] > node.threshold);
        on = true;
      }
    }
    for (int i = 0; i < count; ++i) found += forest.nodes[at[i]].value;
  }
  return found;
}

}  // namespace

SHOWN int64_t tw_trees_abi_version() { return 6; }

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

// ranks[f * count + i] of values[f * count + i], for the features from `feature` on.
SHOWN void tw_trees_ranks(const Shared *forest, int64_t feature, int64_t features, const float *values, int64_t count,
                          uint16_t *ranks) {
  for (int64_t f = 0; f < features; ++f)
    for (int64_t i = 0; i < count; ++i)
      ranks[f * count + i] = (uint16_t)rank_of(*forest, feature + f, values[f * count + i]);
}

// out[i] = base + sum over trees, of the kernel asked.asked[i]; `room` has 64 bytes a decision and 64 more, aligned so.
SHOWN void tw_trees_ask(const Shared *forest, const Question *asked, void *room, double *out) {
  const double base = common(*forest, asked->problem);
  int64_t begin = 0;
  for (int64_t left = asked->count; left > 0; left = asked->count - begin) {
    if (left <= 64) begin += Block<1>::ask(*forest, *asked, begin, base, room, out);
    else if (left <= 128) begin += Block<2>::ask(*forest, *asked, begin, base, room, out);
    else if (left <= 256 || most_words == 4) begin += Block<4>::ask(*forest, *asked, begin, base, room, out);
    else begin += Block<most_words>::ask(*forest, *asked, begin, base, room, out);
  }
}

// The whole of a prediction; `asked.asked` has room for all kernels and is filled in.
SHOWN void tw_trees_predict(const Shared *forest, Question *asked, void *room, double *out, Prediction *wanted) {
  Prediction &p = *wanted;
  for (p.beyond = 0; p.beyond < asked->problem_count; ++p.beyond) {
    const double value = asked->problem[p.beyond];
    if (value < p.low[p.beyond] || value > p.high[p.beyond]) return;
  }
  p.beyond = -1;
  double least = p.estimates[0];
  for (int64_t i = 1; i < asked->stride; ++i) least = p.estimates[i] < least ? p.estimates[i] : least;
  int64_t *near = const_cast<int64_t *>(asked->asked);
  asked->count = 0;
  for (int64_t i = 0; i < asked->stride; ++i) {
    p.seconds[i] = __builtin_inf();
    if (p.estimates[i] <= p.far * least) near[asked->count++] = i;
  }
  tw_trees_ask(forest, asked, room, out);
  for (int64_t i = 0; i < asked->count; ++i) {
    const double told = p.trust ? p.trust * log(p.estimates[near[i]] / least) : 0.0;
    p.seconds[near[i]] = p.rough * exp(out[i] + told);
  }
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
  const int64_t count = c.asked.stride;
  const double *estimates = c.wanted.estimates;
  double least = __builtin_inf();
  int64_t unseen = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!c.rules[i] && isinf(estimates[i])) return kSilent;
    c.known[i] = c.rules[i] ? __builtin_inf() : estimates[i];
  }
  for (int64_t i = 0; i < c.unseen_count; ++i) unseen += !c.rules[c.unseen[i]], c.known[c.unseen[i]] = __builtin_inf();
  if (unseen == *c.served) return kSilent;
  for (int64_t i = 0; i < count; ++i) least = c.known[i] < least ? c.known[i] : least;
  c.features(c.numbers, c.terms, count, c.units, c.problem, c.both);
  for (int64_t i = 0; i < c.word_count; ++i) c.problem[c.word_at[i]] = c.words[i];
  if (c.estimated) {
    double *ratios = c.both + (c.asked.both_count - 1) * count;
    for (int64_t i = 0; i < count; ++i) ratios[i] = c.known[i] / least;
  }
  Prediction told = c.wanted;
  told.estimates = c.known;
  tw_trees_predict(c.forest, &c.asked, c.room, c.out, &told);
  if (told.beyond >= 0) return kSilent;
  if (!ranked(told.seconds, count, &c.first, &c.second)) return kUnclear;
  if (!unseen) return kForest;
  // Kernels newer than the model: so much of the time of the one it would choose as of its estimate.
  const int64_t best = c.first;
  for (int64_t i = 0; i < c.unseen_count; ++i) {
    const int64_t at = c.unseen[i];
    told.seconds[at] = c.rules[at] ? __builtin_inf() : told.seconds[best] * estimates[at] / estimates[best];
  }
  return ranked(told.seconds, count, &c.first, &c.second) ? kForest : kUnclear;
}

}  // namespace

SHOWN int64_t tw_trees_choice_bytes() { return sizeof(Choice); }

// Numbers of the problem, words and `rough` are filled in.
SHOWN void tw_trees_choose(Choice *choice) {
  choice->ask(choice->question);
  choice->decided = *choice->served < 2 ? kEstimate : decide(*choice);
}
