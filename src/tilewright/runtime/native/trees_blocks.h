// The forest of trees.cpp: its tables, and blocks of rows that are asked about at once.
#pragma once
#ifdef __AVX__
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

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
  // Trees that look at the problem alone say the same of all rows: they are traversed, once a question.
  const Node *nodes;
  const int32_t *roots;
  int64_t root_count;
  double base;
};

// The columns of a row, in order: `problem` that all rows share, `kernel`, `both`, and the units.
struct Question {
  const float *problem;
  const float *kernel;        // a row of `stride` kernels a feature
  const double *both;         // the same
  const int64_t *candidates;  // which kernels
  int64_t problem_count, kernel_count, both_count, stride, count;
  int64_t packed;  // not 0: `both` begins with the columns of the kernels that are asked about, and has no others
  float units;
};

// What a model makes of the trees' scores: seconds of the kernels whose estimates are within `far` of the lowest.
struct Prediction {
  const double *estimates;   // of all kernels
  const double *low, *high;  // of the problem's features, between which the model speaks
  double far, trust, rough;
  double *seconds;  // of all kernels; infinite of those that are farther
  int64_t beyond;   // the first feature that lies beyond; -1 where none does, and `seconds` are set
};

// A whole choice in one call: a selection library says which kernels serve a problem and what each is estimated to take,
// and fills in features; the forest says which of them is the fastest.  All but `words` is prepared once.
struct Choice {
  void (*ask)(void *question);  // of the selection library, as is all that stands here
  void *question;
  const void *numbers;    // the problem's
  const int64_t *served;  // its answers: how many kernels serve the problem, behind that the place of the lowest
                          // estimate, and of each kernel the broken rule
  const int64_t *rules;
  double (*problem_features)(const void *numbers, const double *rough, float *problem);
  void (*kernel_features)(const void *numbers, const void *terms, int64_t count, int64_t units, const int64_t *places,
                          int64_t some, double *both);
  const void *terms;
  const Shared *forest;
  void *room;
  double *out;
  double *known;   // room for the estimates of kernels that the model has seen
  float *problem;  // `query` reads these two
  double *both;
  const int64_t *word_at;  // places among the problem's features, and what stands there
  const float *words;
  const int64_t *unseen;  // the places of kernels newer than the model
  int64_t word_count, unseen_count, estimated, units;
  const double *rough;  // a start, and seconds of a byte and of an operation
  Question query;
  Prediction wanted;      // its estimates are the library's
  int64_t decided;        // the answers: `Decision`
  int64_t first, second;  // the kernel predicted the fastest, and the next; -1 where no other is predicted
  int64_t some, best;     // how many serve the problem, and that of the lowest estimate; -1 where none does
  double first_seconds, second_seconds, best_seconds;  // of these
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

// The least and the most of some values; the least is below everything where one is no number.
struct Range {
  float least, most;
};
#if WIDE
inline Range range_of(const float *values, int used) {
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  __m512 least = _mm512_set1_ps(__builtin_inff()), most = none;
  for (int part = 0; part < used; ++part) {
    const __m512 read = values_at(values + lanes * part);
    const __m512 mine = _mm512_mask_mov_ps(none, _mm512_cmp_ps_mask(read, read, _CMP_ORD_Q), read);
    least = _mm512_min_ps(least, mine), most = _mm512_max_ps(most, mine);
  }
  return {_mm512_reduce_min_ps(least), _mm512_reduce_max_ps(most)};
}
#else
inline Range range_of(const float *values, int used) {
  Range range = {__builtin_inff(), -__builtin_inff()};
  for (int i = 0; i < used * lanes; ++i) {
    const float mine = values[i] == values[i] ? values[i] : -__builtin_inff();
    range.least = mine < range.least ? mine : range.least, range.most = mine > range.most ? mine : range.most;
  }
  return range;
}
#endif

// How many of some thresholds, which ascend, a value passes; what is no number passes none.
inline int32_t passed(const float *thresholds, int32_t count, float value) {
#if WIDE
  int32_t found = 0;
  const __m512 mine = _mm512_set1_ps(value);
  for (; count > 0; count -= lanes, thresholds += lanes) {
    const __mmask16 there = count < lanes ? (__mmask16)((1u << count) - 1) : (__mmask16)0xffff;
    const __m512 read = _mm512_maskz_loadu_ps(there, thresholds);
    found += __builtin_popcount(_mm512_mask_cmp_ps_mask(there, mine, read, _CMP_GT_OQ));
  }
  return found;
#else
  const float *from = thresholds;
  while (count > 0) {
    const int32_t half = count / 2;
    const bool on = value > from[half];
    from += on ? half + 1 : 0, count = on ? count - half - 1 : half;
  }
  return (int32_t)(from - thresholds);
#endif
}

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
                       side = 16,  // trees that are traversed side by side: a step of one waits for memory
      few = 24;                    // thresholds of which it is not worth looking for those that all rows agree in
  using Bits = typename Rows<words>::Bits;

  // Rows that go right, by decision; what is no number does nowhere.  Bits of rows that are not there mean nothing.
  // Between thresholds that all rows pass and those that none does there are few: rows of one problem are alike.
  static void decide(const Shared &forest, int64_t feature, float *values, int rows, Bits *right) {
    const float *thresholds = forest.thresholds + forest.first[feature];
    const int32_t count = forest.first[feature + 1] - forest.first[feature];
    int used = (rows + lanes - 1) / lanes;
    for (int i = rows; i < used * lanes; ++i) values[i] = values[0];
    Bits *const mine = right + forest.first[feature];
    int32_t all = 0, some = count;
    if (count > few) {
      const Range range = range_of(values, used);
      all = passed(thresholds, count, range.least), some = passed(thresholds, count, range.most);
      memset((void *)mine, 0xff, (size_t)all * sizeof *mine);
      memset((void *)(mine + some), 0, (size_t)(count - some) * sizeof *mine);
    }
    Lanes *to = reinterpret_cast<Lanes *>(mine + all);
    for (; used > 4; used -= 4, values += 4 * lanes, to += 4) decide_parts<4>(thresholds + all, some - all, values, to);
    if (used == 4) decide_parts<4>(thresholds + all, some - all, values, to);
    else if (used == 3) decide_parts<3>(thresholds + all, some - all, values, to);
    else if (used == 2) decide_parts<2>(thresholds + all, some - all, values, to);
    else decide_parts<1>(thresholds + all, some - all, values, to);
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
    const int32_t first = forest.first[feature], count = forest.first[feature + 1] - first;
    const int32_t all = passed(forest.thresholds + first, count, value);
    memset((void *)(right + first), 0xff, (size_t)all * sizeof *right);
    memset((void *)(right + first + all), 0, (size_t)(count - all) * sizeof *right);
  }

  static void fill(const Shared &forest, const Question &query, int64_t begin, int rows, Bits *right) {
    const int64_t *kernels = query.candidates + begin;
    float values[most];
    for (int64_t f = 0; f < query.problem_count; ++f) agree(forest, f, query.problem[f], right);
    int64_t feature = query.problem_count;
    for (int64_t f = 0; f < query.kernel_count; ++f, ++feature) {
      if (forest.first[feature] == forest.first[feature + 1]) continue;  // no tree asks for it
      const float *row = query.kernel + f * query.stride;
      for (int i = 0; i < rows; ++i) values[i] = row[kernels[i]];
      decide(forest, feature, values, rows, right);
    }
    for (int64_t f = 0; f < query.both_count; ++f, ++feature) {
      if (forest.first[feature] == forest.first[feature + 1]) continue;
      const double *row = query.both + f * query.stride;
      if (query.packed)
        for (int i = 0; i < rows; ++i) values[i] = (float)row[begin + i];
      else
        for (int i = 0; i < rows; ++i) values[i] = (float)row[kernels[i]];
      decide(forest, feature, values, rows, right);
    }
    agree(forest, feature, query.units, right);
    right[forest.first[feature + 1]] = Bits{};
  }

  // Where rows go in some trees: by level, and by twig.
  struct Ways {
    Bits right[side][2 * half_deep];
    Bits twig[side * twigs];
  };

  // From a node of a part on: which rows go right, by level, and where those of a top go.  Every node has code of its
  // own, so that all sets stay in registers.
  template <int node, int level>
  static inline __attribute__((always_inline)) void traversal(const Part &part, const Bits *right, Bits here,
                                                              Bits *gone, Bits *twig) {
    const Bits there = here & right[part.decision[node]];
    gone[level] |= there;
    if constexpr (level + 1 < half_deep) {
      traversal<2 * node, level + 1>(part, right, here ^ there, gone, twig);
      traversal<2 * node + 1, level + 1>(part, right, there, gone, twig);
    } else if (twig) {
      twig[2 * node - part_nodes] = here ^ there, twig[2 * node + 1 - part_nodes] = there;
    }
  }

  // `out` has a place for every row of the block.
  static void score(const Shared &forest, const Bits *right, int rows, double *out) {
    Ways ways;
    Live live;
    uint64_t mine[words] = {};
    for (int word = 0; word < words; ++word) {
      const int left = rows - 64 * word;
      mine[word] = left >= 64 ? ~(uint64_t)0 : left > 0 ? ((uint64_t)1 << left) - 1 : 0;
    }
    Bits all;
    memcpy(&all, mine, sizeof all);
    for (int64_t t = 0; t < forest.tree_count; t += side) {
      const int count = forest.tree_count - t < side ? (int)(forest.tree_count - t) : side;
      const Part *parts = forest.twigs_of + t * twigs;
      const float *values = forest.values + t * leaves;
      for (int i = 0; i < count; ++i) {
        __asm__ volatile("");  // one tree after another: compilers would shuffle decisions of several together
        Bits gone[half_deep] = {};
        traversal<1, 0>(forest.tops[t + i], right, all, gone, ways.twig + i * twigs);
        for (int level = 0; level < half_deep; ++level) ways.right[i][level] = gone[level];
        for (int level = half_deep; level < 2 * half_deep; ++level) ways.right[i][level] = Bits{};
      }
      live.find(ways.twig, count);
      // Between two calls of a program a forest is as good as never in a near cache.
      for (int i = 0; i < live.first[count]; ++i)
        __builtin_prefetch(parts + live.twig[i]), __builtin_prefetch(values + live.twig[i] * part_nodes);
      for (int i = 0; i < live.first[count]; ++i) {
        Bits gone[half_deep] = {}, *to = ways.right[live.twig[i] / twigs] + half_deep;
        traversal<1, 0>(parts[live.twig[i]], right, ways.twig[live.twig[i]], gone, nullptr);
        for (int level = 0; level < half_deep; ++level) to[level] |= gone[level];
      }
      add_leaves(ways, live, values, count, rows, out);
    }
  }

  // The twigs of some trees that rows come to, in order, and where those of each tree begin.
  struct Live {
    int32_t twig[side * twigs + twigs], first[side + 1];

    void find(const Bits *sets, int count) {
      int some = 0;
      for (int i = 0; i < count; ++i) {
        first[i] = some;
        some += of_tree(sets + i * twigs, i * twigs, twig + some);
      }
      first[count] = some;
    }
    // Without a branch that depends on rows.
    static int of_tree(const Bits *sets, int from, int32_t *to) {
#if WIDE
      if constexpr (words == 1) {
        const __m512i low = _mm512_loadu_si512(sets), high = _mm512_loadu_si512(sets + 8);
        const unsigned some = (unsigned)_mm512_test_epi64_mask(low, low) | (unsigned)_mm512_test_epi64_mask(high, high)
                                                                               << 8;
        const __m512i each = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i places = _mm512_add_epi32(_mm512_set1_epi32(from), each);
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)some, places));
        return __builtin_popcount(some);
      }
#endif
      int some = 0;
      for (int i = 0; i < twigs; ++i) to[some] = from + i, some += Rows<words>::any(sets[i]);
      return some;
    }
  };

  static void add_leaves(const Ways &ways, const Live &live, const float *values, int count, int rows, double *out) {
#if WIDE
    if constexpr (words == 1) {
      if (rows <= 16) return add_by_twigs<1>(ways, live, values, count, out);
      if (rows <= 32) return add_by_twigs<2>(ways, live, values, count, out);
      if (rows <= 48) return add_by_twigs<3>(ways, live, values, count, out);
      return add_by_twigs<4>(ways, live, values, count, out);
    }
#endif
    uint8_t numbers[side][most];
    for (int i = 0; i < count; ++i) number(ways.right[i], rows, numbers[i]);
    add(values, count, rows, numbers, out);
  }

#if WIDE
  // The leaves of a twig are a register, from which each row that comes to it takes its own.
  template <int parts>
  static void add_by_twigs(const Ways &ways, const Live &live, const float *values, int count, double *out) {
    __m512d accum[2 * parts];
    for (int part = 0; part < 2 * parts; ++part) accum[part] = _mm512_loadu_pd(out + 8 * part);
    for (int i = 0; i < count; ++i) {
      __m512i leaf = _mm512_setzero_si512();
      for (int level = half_deep; level < 2 * half_deep; ++level) {
        uint64_t bits;
        memcpy(&bits, &ways.right[i][level], sizeof bits);
        leaf = _mm512_or_si512(leaf, _mm512_maskz_set1_epi8(bits, (char)(leaves >> 1 >> level)));
      }
      __m512i at[parts];
      __m512 found[parts];
      at[0] = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(leaf));
      if constexpr (parts > 1) at[1] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(leaf, 1));
      if constexpr (parts > 2) at[2] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(leaf, 2));
      if constexpr (parts > 3) at[3] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(leaf, 3));
      for (int part = 0; part < parts; ++part) found[part] = _mm512_setzero_ps();
      for (int twig = live.first[i]; twig < live.first[i + 1]; ++twig) {
        const __m512 mine = _mm512_loadu_ps(values + live.twig[twig] * part_nodes);
        Lanes here[4];
        memcpy(here, &ways.twig[live.twig[twig]], sizeof here);
        for (int part = 0; part < parts; ++part)
          found[part] = _mm512_mask_permutexvar_ps(found[part], here[part], at[part], mine);
      }
      for (int part = 0; part < parts; ++part) {
        const __m256 low = _mm512_castps512_ps256(found[part]);
        const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(found[part]), 1));
        accum[2 * part] = _mm512_add_pd(accum[2 * part], _mm512_cvtps_pd(low));
        accum[2 * part + 1] = _mm512_add_pd(accum[2 * part + 1], _mm512_cvtps_pd(high));
      }
    }
    for (int part = 0; part < 2 * parts; ++part) _mm512_storeu_pd(out + 8 * part, accum[part]);
  }
#endif

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
      __m512d accum = _mm512_loadu_pd(out + first);
      for (int i = 0; i < count; ++i) {
        const __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(numbers[i] + first)));
        const __m256 predicted = _mm256_i32gather_ps(values + i * leaves, at, sizeof(float));
        accum = _mm512_add_pd(accum, _mm512_maskz_cvtps_pd(0xff, predicted));
      }
      _mm512_storeu_pd(out + first, accum);
    }
#else
    for (int i = 0; i < count; ++i)
      for (int row = 0; row < rows; ++row) out[row] += values[i * leaves + numbers[i][row]];
#endif
  }

  // The rows from `begin` on, as many as a block has: how many.  `base` is what all of them begin with.
  static int ask(const Shared &forest, const Question &query, int64_t begin, double base, void *room, double *out) {
    Bits *right = static_cast<Bits *>(room);
    const int rows = query.count - begin < most ? (int)(query.count - begin) : most;
    double accum[most];
    for (int i = 0; i < most; ++i) accum[i] = base;
    fill(forest, query, begin, rows, right);
    score(forest, right, rows, accum);
    memcpy(out + begin, accum, (size_t)rows * sizeof *accum);
    return rows;
  }
};

// What the trees say that look at the problem alone.  Many are traversed side by side: a step of one waits for memory.
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
