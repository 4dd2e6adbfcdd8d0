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

constexpr int64_t kVersion = 7;

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

// A family of kernels, its schedule as it was filled in.
template <class Asked> struct Family {
  const char *name;
  const char *(*fields)();
  Verdict (*answer)(const void *schedule, const Asked &asked, bool estimates_only);
};

// `space` holds a family's Schedule, limits and seconds; Asked::problem() is what limits are evaluated for.
#define TW_SELECT_FAMILY(name, space) \
  {name, &space::Schedule_names, \
   [](const void *schedule, const Asked &asked, bool estimates_only) -> tw::selection::Verdict { \
     const space::Schedule &s = *static_cast<const space::Schedule *>(schedule); \
     const tw::selection::Rule *rule = space::limits(s, asked.problem()); \
     return {rule, rule && !estimates_only ? __builtin_inf() : space::seconds(s, asked)}; \
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

// Prepared: what of a problem all kernels share, made from its numbers once (`Prepared::Problem`).
template <class Prepared, class Asked, class Rates, class Arch>
void answer(Question &q, const Family<Asked> *families) {
  const Prepared problem(*static_cast<const typename Prepared::Problem *>(q.problem));
  q.served = 0, q.best = -1;
  for (int64_t at = 0; at < q.count; ++at) {
    const Candidate &one = q.candidates[at];
    if (one.family < 0) {
      settle(q, at, {&undecided, __builtin_inf()});
      continue;
    }
    const Asked asked =
        Asked::of(problem, *static_cast<const Rates *>(one.rates), *static_cast<const Arch *>(one.arch), q.host);
    settle(q, at, families[one.family].answer(one.schedule, asked, q.estimates_only));
  }
}

}  // namespace selection
}  // namespace tw

#define TW_SELECT_API extern "C" __attribute__((visibility("default")))

// The exports, for a namespace with Asked, Rates, Arch and kFamilies: names 0 the problem, 1 arch, 2 rates; then, for
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
    tw::selection::answer<Prepared, space::Asked, space::Rates, space::Arch>(*question, space::kFamilies); \
  }
