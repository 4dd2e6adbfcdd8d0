// A selection library: which kernels of an op on a backend serve a problem, and what each is estimated to take.
//
// The kernel families are headers of their own (limits.h, cost.h); the source that includes this one names them.
// Everything that Python fills in is an array of int64 or double whose names the library exports (tw_select_names), so
// that the two cannot drift apart unnoticed.
#pragma once
#include <math.h>
#include <tilewright/select/fields.h>
#include <tilewright/select/rules.h>

namespace tw {
namespace selection {

constexpr int64_t kVersion = 9;

// Numbers of schedules and archs that are sizes and counts, in whatever family: limits and costs divide by them.
// clang-format off
constexpr char kCounts[] =
    " cluster_m cluster_n columns compute_units ctas_per_sm deep grain_k grain_m grain_n pixels read_a read_b"
    " results rows scratch_bytes shared_bytes shares split_k step stride taps threads tile_channels tile_h tile_k"
    " tile_m tile_m0 tile_n tile_n0 tile_n1 tile_w vector vector_bytes vectors warpgroups warps warps_m warps_n"
    " wave width_a width_b ";
// clang-format on
constexpr int64_t kMostNumber = int64_t(1) << 20;  // products of three of them still fit

// The least that a number of this name may be: of one that is read from a file, before it is asked with.
inline int64_t least_number(const char *name) {
  for (const char *at = kCounts; *at; ++at) {
    const char *mine = name, *known = at + 1;
    if (*at != ' ') continue;
    while (*mine && *mine == *known) ++mine, ++known;
    if (!*mine && *known == ' ') return 1;
  }
  return 0;
}

// A kernel of a question: what was prepared of it once.
struct Candidate {
  int64_t family;  // its place in the set; -1: the library does not know it
  const void *schedule, *arch, *rates;
};

// `order` decides between equal estimates: of two, the kernel whose number is lower.
struct Question {
  const Candidate *candidates;
  const int64_t *order;
  const void *problem;
  int64_t *rules;   // the address of a kernel's broken rule, 0 where it serves the problem, -1 where Python decides
  double *seconds;  // infinite where it does not
  int64_t count;
  int64_t estimates_only;  // not 0: of all kernels, whether they serve the problem or not
  Host host;
  int64_t served;  // answers: how many serve it, and the place of the lowest estimate, -1 where none does
  int64_t best;
};

struct Verdict {
  const Rule *rule;
  double seconds;
};

// A family of kernels, their schedules as they were filled in.
template <class Query> struct Family {
  const char *name;
  const char *(*fields)();
  // Of up to kTogether kernels that are asked about with the same facts of an arch.
  void (*answer)(const Candidate *kernels, int64_t count, const Query &query, bool estimates_only, Verdict *verdicts);
};

constexpr int64_t kTogether = 32;

// A family's estimates: one after another, or, where it has `seconds_of_some`, of several kernels at once, so that what
// each waits for (a power, say) is worked out while others wait.
template <class Schedule, class Query>
auto several(const Schedule *const *some, int64_t count, const Query &query, double *seconds, int)
    -> decltype(seconds_of_some(some, count, query, seconds)) {
  seconds_of_some(some, count, query, seconds);
}
template <class Schedule, class Query>
void several(const Schedule *const *some, int64_t count, const Query &query, double *to, long) {
  for (int64_t i = 0; i < count; ++i) to[i] = seconds(*some[i], query);
}

template <class Schedule, class Query, class Limits> void judge(const Candidate *kernels, int64_t count,
                                                                const Query &query, bool estimates_only, Limits limits,
                                                                Verdict *verdicts) {
  const Schedule *some[kTogether];
  double times[kTogether];
  int64_t places[kTogether], timed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Schedule *mine = static_cast<const Schedule *>(kernels[i].schedule);
    verdicts[i] = {limits(*mine, query.problem()), __builtin_inf()};
    some[timed] = mine, places[timed] = i, timed += estimates_only || !verdicts[i].rule;
  }
  several(some, timed, query, times, 0);
  for (int64_t i = 0; i < timed; ++i) verdicts[places[i]].seconds = times[i];
}

// `space` holds a family's Schedule, limits and seconds; Query::problem() is what limits are evaluated for.
#define TW_SELECT_FAMILY(name, space) \
  {name, &space::Schedule_names, \
   [](const tw::selection::Candidate *kernels, int64_t count, const Query &query, bool estimates_only, \
      tw::selection::Verdict *verdicts) { \
     tw::selection::judge<space::Schedule>( \
         kernels, count, query, estimates_only, \
         [](const space::Schedule &s, const auto &problem) { return space::limits(s, problem); }, verdicts); \
   }}

inline void settle(Question &q, int64_t at, Verdict verdict) {
  int64_t rule = verdict.rule == &undecided ? -1 : int64_t(reinterpret_cast<intptr_t>(verdict.rule));
  if (isnan(verdict.seconds)) {  // it would win or lose by its place in the list
    verdict.seconds = __builtin_inf();
    if (q.estimates_only) rule = -1;
  }
  q.rules[at] = rule, q.seconds[at] = verdict.seconds;
  if (rule) return;
  ++q.served;
  const bool first = q.best < 0 || verdict.seconds < q.seconds[q.best] ||
                     (verdict.seconds == q.seconds[q.best] && q.order[at] < q.order[q.best]);
  if (first) q.best = at;
}

// Whether two kernels can be asked about at once.
inline bool alike(const Candidate &x, const Candidate &y) {
  return x.family == y.family && x.arch == y.arch && x.rates == y.rates;
}

// Prepared: what of a problem all kernels share, made from its numbers once (`Prepared::Problem`).
template <class Prepared, class Query, class Rates, class Arch>
void answer(Question &q, const Family<Query> *families) {
  const Prepared problem(*static_cast<const typename Prepared::Problem *>(q.problem));
  q.served = 0, q.best = -1;
  Verdict verdicts[kTogether];
  for (int64_t at = 0, end; at < q.count; at = end) {
    const Candidate &first = q.candidates[at];
    end = at + 1;
    if (first.family < 0) {
      settle(q, at, {&undecided, __builtin_inf()});
      continue;
    }
    while (end < q.count && end - at < kTogether && alike(first, q.candidates[end])) ++end;
    const Query query =
        Query::of(problem, *static_cast<const Rates *>(first.rates), *static_cast<const Arch *>(first.arch), q.host);
    families[first.family].answer(&first, end - at, query, q.estimates_only, verdicts);
    for (int64_t i = at; i < end; ++i) settle(q, i, verdicts[i - at]);
  }
}

}  // namespace selection
}  // namespace tw

#define TW_SELECT_API extern "C" __attribute__((visibility("default")))

// The exports, for a namespace with Query, Rates, Arch and kFamilies: names 0 the problem, 1 arch, 2 rates; then, for
// each family, its name and its fields; a null pointer beyond the last.
#define TW_SELECT_LIBRARY(space, Prepared) \
  TW_SELECT_API int64_t tw_select_abi_version() { return tw::selection::kVersion; } \
  TW_SELECT_API int64_t tw_select_question_bytes() { return sizeof(tw::selection::Question); } \
  TW_SELECT_API const char *tw_select_names(int64_t what) { \
    if (what == 0) return Prepared::names(); \
    if (what == 1) return space::Arch_names(); \
    if (what == 2) return space::Rates_names(); \
    const int64_t family = (what - 3) / 2; \
    if (family >= int64_t(sizeof(space::kFamilies) / sizeof(space::kFamilies[0]))) return nullptr; \
    return (what - 3) % 2 ? space::kFamilies[family].fields() : space::kFamilies[family].name; \
  } \
  TW_SELECT_API void tw_select_ask(tw::selection::Question *question) { \
    tw::selection::answer<Prepared, space::Query, space::Rates, space::Arch>(*question, space::kFamilies); \
  }
