// A kernel's own check, by the limits that selection uses too.
#pragma once
#include <tilewright/select/fields.h>
#include <tilewright/select/rules.h>

// A family's limits with the schedule of one kernel, as a type: `space` is the namespace of its limits.h, and `fill`
// sets the fields of the schedule `s` to the numbers that selection gets.
#define TW_LIMITS(Name, space, fill) \
  struct Name { \
    using Schedule = space::Schedule; \
    static constexpr Schedule schedule() { \
      Schedule s{}; \
      fill return s; \
    } \
    static const char *names() { return space::Schedule_names(); } \
    template <class Problem> static const tw::selection::Rule *broken(const Problem &p) { \
      return space::limits(schedule(), p); \
    } \
  };

namespace tw {
namespace selection {

// Numbers that a family's sentences name beyond those of the problem: a family that has some overloads `named_numbers`
// beside its `Schedule`.
struct NoNumbers {
  int64_t none;
};
inline const char *names_of(const NoNumbers &) { return ""; }
template <class Schedule, class Problem> NoNumbers named_numbers(const Schedule &, const Problem &) { return {}; }

// 0, or the code of the rule that a problem breaks, with its sentence in `why`.
template <class Limits, class Problem> int check(const Problem &p, char *why, size_t bytes) {
  const Rule *rule = Limits::broken(p);
  if (!rule) {
    if (bytes) *why = 0;
    return TW_OK;
  }
  const auto schedule = Limits::schedule();
  const Named of_problem{names_of(p), reinterpret_cast<const int64_t *>(&numbers_of(p))};
  const auto beyond = named_numbers(schedule, p);
  const Named named[] = {{names_of(beyond), reinterpret_cast<const int64_t *>(&beyond)},
                         of_problem,
                         {Limits::names(), reinterpret_cast<const int64_t *>(&schedule)}};
  return say(*rule, named, 3, why, bytes);
}

}  // namespace selection
}  // namespace tw
