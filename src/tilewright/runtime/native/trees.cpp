// Scores rows of features with a forest of regression trees: row by row walks for any forest, and whole blocks of rows
// at once for forests of small trees whose features take few thresholds.
#ifdef __AVX__
#include <immintrin.h>
#endif
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
// rows says to it is worked out once, as a set of bits.
//
// A tree is a top of four levels and sixteen twigs of four more, whole ones: what a tree lacks is filled up with a decision
// in which every row goes left.  Of the twigs only those are looked at that some row comes to, which are few: rows of one
// problem agree in most decisions.  A node is known by its place in its part: 1, and of node n the children 2n, 2n + 1.
constexpr int half_deep = 4, part_nodes = 1 << half_deep, twigs = 1 << half_deep;
constexpr int leaves = 1 << 2 * half_deep;  // by number: the way from the root, the first level the highest bit
struct Part {
  uint16_t decision[part_nodes];
};

struct Shared {
  const Part *tops;      // of trees
  const Part *twigs_of;  // the twigs of each tree
  const float *values;   // of its leaves
  int64_t tree_count;
  const float *thresholds;  // of the decisions: ascending, feature by feature
  const int32_t *first;     // of a feature's; one more than features.  Behind the last: what every row goes left in
  // Trees that look at the problem alone say the same of all rows: they are walked, once a question.
  const Node *nodes;
  const int32_t *roots;
  int64_t root_count;
  double base;
};

// The columns of a row, in order: `problem` that all rows share, `kernel`, `both`, and the units.
struct Question {
  const float *problem;
  const float *kernel;   // a row of `stride` kernels a feature
  const double *both;    // the same
  const int64_t *asked;  // which kernels
  int64_t problem_count, kernel_count, both_count, stride, count;
  float units;
};

// What a model makes of the trees' scores: seconds of the kernels whose estimates are within `far` of the lowest.
struct Prediction {
  const double *estimates;   // of all kernels
  const double *low, *high;  // of the problem's features, between which the model speaks
  double far, trust, rough;
  double *seconds;  // of all kernels; infinite of those that are farther
  int64_t beyond;   // the first feature that lies beyond; -1 where none does, and `seconds` are known
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

// Rows that are compared at once: which of their values lie above a threshold.
#if defined __AVX512F__ && defined __AVX512BW__
#define WIDE 1
constexpr int most_words = 8;  // of a set: one register
constexpr int lanes = 16;
typedef uint16_t __attribute__((may_alias)) Lanes;
typedef __m512 Values;
inline Values values_at(const float *values) { return _mm512_loadu_ps(values); }
inline Lanes above(Values values, float threshold) {
  return _mm512_cmp_ps_mask(values, _mm512_set1_ps(threshold), _CMP_GT_OQ);
}
#else
#define WIDE 0
constexpr int most_words = 4;
constexpr int lanes = 8;
typedef uint8_t Lanes;
#ifdef __AVX__
typedef __m256 Values;
inline Values values_at(const float *values) { return _mm256_loadu_ps(values); }
inline Lanes above(Values values, float threshold) {
  return (Lanes)_mm256_movemask_ps(_mm256_cmp_ps(values, _mm256_set1_ps(threshold), _CMP_GT_OQ));
}
#else
struct Values {
  float row[lanes];
};
inline Values values_at(const float *values) {
  Values mine;
  memcpy(&mine, values, sizeof mine);
  return mine;
}
inline Lanes above(const Values &values, float threshold) {
  int bits = 0;
  for (int i = 0; i < lanes; ++i) bits |= (values.row[i] > threshold) << i;
  return (Lanes)bits;
}
#endif
#endif

#if !WIDE
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

#endif

// Sets of the rows of a block of 64 * words.
template <int words> struct Rows {
  typedef uint64_t Bits __attribute__((vector_size(8 * words)));
  static bool any(const Bits &bits) {
    uint64_t mine[words], some = 0;
    memcpy(mine, &bits, sizeof mine);
    for (int word = 0; word < words; ++word) some |= mine[word];
    return some != 0;
  }
};
template <> struct Rows<1> {
  typedef uint64_t Bits;
  static bool any(uint64_t bits) { return bits != 0; }
};

template <int words> struct Block {
  static constexpr int most = 64 * words,
                       side = 16;  // trees that are walked side by side: a step of one waits for memory
  using Bits = typename Rows<words>::Bits;

  // Rows that go right, by decision; what is no number does nowhere.  Bits of rows that are not there mean nothing.
  static void decide(const Shared &forest, int64_t feature, const float *values, int used, Bits *right) {
    Lanes *to = reinterpret_cast<Lanes *>(right + forest.first[feature]);
    const float *thresholds = forest.thresholds + forest.first[feature];
    const int32_t count = forest.first[feature + 1] - forest.first[feature];
    for (; used > 4; used -= 4, values += 4 * lanes, to += 4) decide_parts<4>(thresholds, count, values, to);
    if (used == 4) decide_parts<4>(thresholds, count, values, to);
    else if (used == 3) decide_parts<3>(thresholds, count, values, to);
    else if (used == 2) decide_parts<2>(thresholds, count, values, to);
    else decide_parts<1>(thresholds, count, values, to);
  }
  template <int parts>
  static void decide_parts(const float *thresholds, int32_t count, const float *values, Lanes *to) {
    Values mine[parts];
    for (int part = 0; part < parts; ++part) mine[part] = values_at(values + lanes * part);
    for (int32_t t = 0; t < count; ++t, to += most / lanes)
      for (int part = 0; part < parts; ++part) to[part] = above(mine[part], thresholds[t]);
  }

  // All rows agree.
  static void agree(const Shared &forest, int64_t feature, float value, Bits *right) {
    for (int32_t t = forest.first[feature]; t < forest.first[feature + 1]; ++t)
      right[t] = Bits{} - (uint64_t)(value > forest.thresholds[t]);
  }

  static void fill(const Shared &forest, const Question &asked, const int64_t *kernels, int rows, Bits *right) {
    float values[most] = {};
    const int used = (rows + lanes - 1) / lanes;
    for (int64_t f = 0; f < asked.problem_count; ++f) agree(forest, f, asked.problem[f], right);
    int64_t feature = asked.problem_count;
    for (int64_t f = 0; f < asked.kernel_count; ++f, ++feature) {
      if (forest.first[feature] == forest.first[feature + 1]) continue;  // no tree reads it
      const float *row = asked.kernel + f * asked.stride;
      for (int i = 0; i < rows; ++i) values[i] = row[kernels[i]];
      decide(forest, feature, values, used, right);
    }
    for (int64_t f = 0; f < asked.both_count; ++f, ++feature) {
      if (forest.first[feature] == forest.first[feature + 1]) continue;
      const double *row = asked.both + f * asked.stride;
      for (int i = 0; i < rows; ++i) values[i] = (float)row[kernels[i]];
      decide(forest, feature, values, used, right);
    }
    agree(forest, feature, asked.units, right);
    right[forest.first[feature + 1]] = Bits{};
  }

  // Where rows go in some trees: by level, and by twig.
  struct Ways {
    Bits right[side][2 * half_deep];
    Bits twig[side * twigs];
  };

  // From a node of a part on: which rows go right, by level, and where those of a top go.  Every node has code of its
  // own, so that all sets stay in registers.
  template <int node, int level> static inline __attribute__((always_inline)) void walk(const Part &part,
                                                                                        const Bits *right, Bits here,
                                                                                        Bits *gone, Bits *twig) {
    const Bits there = here & right[part.decision[node]];
    gone[level] |= there;
    if constexpr (level + 1 < half_deep) {
      walk<2 * node, level + 1>(part, right, here ^ there, gone, twig);
      walk<2 * node + 1, level + 1>(part, right, there, gone, twig);
    } else if (twig) {
      twig[2 * node - part_nodes] = here ^ there, twig[2 * node + 1 - part_nodes] = there;
    }
  }

  // `out` has a place for every row of the block.
  static void score(const Shared &forest, const Bits *right, int rows, double *out) {
    Ways ways;
    uint16_t live[side * twigs + 1];
    uint8_t numbers[side][most];
    uint64_t mine[words] = {};
    for (int i = 0; i < rows; ++i) mine[i / 64] |= (uint64_t)1 << i % 64;
    Bits all;
    memcpy(&all, mine, sizeof all);
    for (int64_t t = 0; t < forest.tree_count; t += side) {
      const int count = forest.tree_count - t < side ? (int)(forest.tree_count - t) : side;
      const Part *parts = forest.twigs_of + t * twigs;
      const float *values = forest.values + t * leaves;
      for (int i = 0; i < count; ++i) {
        Bits gone[half_deep] = {};
        walk<1, 0>(forest.tops[t + i], right, all, gone, ways.twig + i * twigs);
        for (int level = 0; level < half_deep; ++level) ways.right[i][level] = gone[level];
        for (int level = half_deep; level < 2 * half_deep; ++level) ways.right[i][level] = Bits{};
      }
      // Without a branch that depends on rows: a twig is put down in any case, and stays if rows come to it.
      int some = 0;
      for (int i = 0; i < count * twigs; ++i) live[some] = (uint16_t)i, some += Rows<words>::any(ways.twig[i]);
      // Between two calls of a program a forest is as good as never in a near cache.
      for (int i = 0; i < some; ++i)
        __builtin_prefetch(parts + live[i]), __builtin_prefetch(values + live[i] * part_nodes);
      for (int i = 0; i < some; ++i) {
        Bits gone[half_deep] = {}, *to = ways.right[live[i] / twigs] + half_deep;
        walk<1, 0>(parts[live[i]], right, ways.twig[live[i]], gone, nullptr);
        for (int level = 0; level < half_deep; ++level) to[level] |= gone[level];
      }
      for (int i = 0; i < count; ++i) number(ways.right[i], rows, numbers[i]);
      add(values, count, rows, numbers, out);
    }
  }

  // Each row's leaf, by the levels in which it goes right.
  static void number(const Bits *gone, int rows, uint8_t *out) {
#if WIDE
    for (int word = 0; 64 * word < rows; ++word) {
      __m512i found = _mm512_setzero_si512();
      for (int level = 0; level < 2 * half_deep; ++level) {
        uint64_t bits;
        memcpy(&bits, (const char *)&gone[level] + 8 * word, sizeof bits);
        found = _mm512_or_si512(found, _mm512_maskz_set1_epi8(bits, (char)(leaves >> 1 >> level)));
      }
      memcpy(out + 64 * word, &found, sizeof found);
    }
#else
    for (int first = 0; first < rows; first += spread_rows) {
      Bytes found = {};
      for (int level = 0; level < 2 * half_deep; ++level)
        found |= spread((const uint8_t *)&gone[level] + first / 8, 2 * half_deep - 1 - level);
      memcpy(out + first, &found, sizeof found);
    }
#endif
  }

  // The values of leaves of some trees, in the order of the trees.
  static void add(const float *values, int count, int rows, const uint8_t (*numbers)[most], double *out) {
#if WIDE
    for (int first = 0; first < rows; first += 8) {
      __m512d sums = _mm512_loadu_pd(out + first);
      for (int i = 0; i < count; ++i) {
        const __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(numbers[i] + first)));
        const __m256 told = _mm256_i32gather_ps(values + i * leaves, at, sizeof(float));
        sums = _mm512_add_pd(sums, _mm512_maskz_cvtps_pd(0xff, told));
      }
      _mm512_storeu_pd(out + first, sums);
    }
#else
    for (int i = 0; i < count; ++i)
      for (int row = 0; row < rows; ++row) out[row] += values[i * leaves + numbers[i][row]];
#endif
  }

  // The rows from `begin` on, as many as a block has: how many.  `base` is what all of them begin with.
  static int ask(const Shared &forest, const Question &asked, int64_t begin, double base, void *room, double *out) {
    Bits *right = static_cast<Bits *>(room);
    const int rows = asked.count - begin < most ? (int)(asked.count - begin) : most;
    double sums[most];
    for (int i = 0; i < most; ++i) sums[i] = base;
    fill(forest, asked, asked.asked + begin, rows, right);
    score(forest, right, rows, sums);
    memcpy(out + begin, sums, (size_t)rows * sizeof *sums);
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

SHOWN int64_t tw_trees_abi_version() { return 7; }

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
