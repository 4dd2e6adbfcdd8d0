// The selection library: which kernels serve a problem, and what each is estimated to take.
//
// A set is the kernels of one op on one backend; its families are headers of <tilewright/select/>.  Everything that
// Python fills in is an array of int64 or double whose names the library tells (tw_select_names), so that the two
// cannot drift apart unnoticed.
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
#include <math.h>
#include <tilewright/select/cpu_gemm_direct.h>
#include <tilewright/select/cpu_gemm_loops.h>
#include <tilewright/select/cpu_gemm_packed.h>
#include <tilewright/select/cpu_gemm_stream.h>
#include <tilewright/select/cuda_conv_band.h>
#include <tilewright/select/cuda_conv_gather.h>
#include <tilewright/select/cuda_conv_known.h>
#include <tilewright/select/cuda_conv_pointwise.h>
#include <tilewright/select/cuda_conv_tma_ws.h>
#include <tilewright/select/cuda_gemm_loops.h>
#include <tilewright/select/cuda_gemm_multistage.h>
#include <tilewright/select/cuda_gemm_skinny.h>
#include <tilewright/select/cuda_gemm_tma_ws.h>
#include <tilewright/select/gemm_features.h>
#include <tilewright/select/hip_gemm_ck_tile.h>
#include <tilewright/select/hip_gemm_loops.h>

namespace tw {
namespace select {
namespace {

constexpr int64_t kVersion = 6;

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
  int32_t *rules;   // a kernel's first broken rule, 0 where it serves the problem, -1 where Python must be asked
  double *seconds;  // infinite where it does not
  int64_t count;
  int64_t estimates_only;  // not 0: of all kernels, whether they serve the problem or not
  Host host;
  int64_t served;  // answers: how many serve it, and the place of the lowest estimate, -1 where none does
  int64_t best;
};

struct Answer {
  int32_t rule;
  double seconds;
};

// A family of kernels, its schedule as it was filled in.
template <class Asked> struct Family {
  const char *name;
  const char *(*fields)();
  Answer (*answer)(const void *schedule, const Asked &asked, bool estimates_only);
};

#define TW_SELECT_FAMILY(space) \
  {#space, &space::Schedule_names, [](const void *schedule, const Asked &asked, bool estimates_only) -> Answer { \
     const space::Schedule &s = *static_cast<const space::Schedule *>(schedule); \
     const int32_t rule = int32_t(space::limits(s, asked)); \
     return {rule, rule && !estimates_only ? __builtin_inf() : space::seconds(s, asked)}; \
   }}

void settle(Question &q, int64_t at, Answer answer) {
  if (isnan(answer.seconds)) {  // it would win or lose by its place in the list
    answer.seconds = __builtin_inf();
    if (q.estimates_only) answer.rule = -1;
  }
  q.rules[at] = answer.rule, q.seconds[at] = answer.seconds;
  if (answer.rule) return;
  ++q.served;
  const bool first = q.best < 0 || answer.seconds < q.seconds[q.best] ||
                     (answer.seconds == q.seconds[q.best] && q.order[at] < q.order[q.best]);
  if (first) q.best = at;
}

constexpr Answer kUndecided{-1, __builtin_inf()};  // of kernels the library does not know

template <class Set> void ask_gemm(Question &q) {
  const GemmProblem &p = *static_cast<const GemmProblem *>(q.problem);
  const double moved = bytes_moved(p);
  for (int64_t at = 0; at < q.count; ++at) {
    const Candidate &one = q.candidates[at];
    if (one.family < 0) {
      settle(q, at, kUndecided);
      continue;
    }
    const typename Set::Asked asked{p, moved, *static_cast<const typename Set::Rates *>(one.rates),
                                    *static_cast<const typename Set::Arch *>(one.arch), q.host};
    settle(q, at, Set::families[one.family].answer(one.schedule, asked, q.estimates_only));
  }
}

template <class Set> void ask_conv(Question &q) {
  const Conv c(*static_cast<const ConvProblem *>(q.problem));
  for (int64_t at = 0; at < q.count; ++at) {
    const Candidate &one = q.candidates[at];
    if (one.family < 0) {
      settle(q, at, kUndecided);
      continue;
    }
    const typename Set::Asked asked{c, *static_cast<const typename Set::Rates *>(one.rates),
                                    *static_cast<const typename Set::Arch *>(one.arch), q.host};
    settle(q, at, Set::families[one.family].answer(one.schedule, asked, q.estimates_only));
  }
}

// What is told of a set: names of the numbers that are filled in, and of its families.
struct Names {
  const char *set;
  const char *(*problem)(), *(*rules)(), *(*arch)(), *(*rates)();
  void (*ask)(Question &);
  int64_t families;
  const char *(*family)(int64_t), *(*fields)(int64_t);
};

template <class Set> const char *family_name(int64_t at) { return Set::families[at].name; }
template <class Set> const char *family_fields(int64_t at) { return Set::families[at].fields(); }

}  // namespace

// A set: the families of an op on a backend, by the namespace of their headers.
#define TW_SELECT_SET(space, ...) \
  namespace space { \
  const Family<Asked> kFamilies[] = {__VA_ARGS__}; \
  struct Set { \
    using Asked = space::Asked; \
    using Rates = space::Rates; \
    using Arch = space::Arch; \
    static constexpr auto &families = space::kFamilies; \
  }; \
  }
#define TW_SELECT_NAMES(space, Problem, Rule, ask) \
  {#space, \
   &Problem##_names, \
   &Rule##_names, \
   &space::Arch_names, \
   &space::Rates_names, \
   &ask<space::Set>, \
   int64_t(sizeof(space::kFamilies) / sizeof(space::kFamilies[0])), \
   &family_name<space::Set>, \
   &family_fields<space::Set>}
#define TW_SELECT_GEMM(space) TW_SELECT_NAMES(space, GemmProblem, GemmRule, ask_gemm)
#define TW_SELECT_CONV(space) TW_SELECT_NAMES(space, ConvProblem, ConvRule, ask_conv)

TW_SELECT_SET(cpu_gemm, TW_SELECT_FAMILY(packed), TW_SELECT_FAMILY(direct), TW_SELECT_FAMILY(stream),
              TW_SELECT_FAMILY(loops))
TW_SELECT_SET(cuda_gemm, TW_SELECT_FAMILY(tma_ws), TW_SELECT_FAMILY(multistage), TW_SELECT_FAMILY(skinny),
              TW_SELECT_FAMILY(loops))
TW_SELECT_SET(hip_gemm, TW_SELECT_FAMILY(ck_tile), TW_SELECT_FAMILY(loops))
TW_SELECT_SET(cuda_conv, TW_SELECT_FAMILY(tma_ws), TW_SELECT_FAMILY(band), TW_SELECT_FAMILY(gather),
              TW_SELECT_FAMILY(depthwise), TW_SELECT_FAMILY(pointwise::tma_ws), TW_SELECT_FAMILY(pointwise::skinny),
              TW_SELECT_FAMILY(pointwise_multistage), TW_SELECT_FAMILY(folded), TW_SELECT_FAMILY(copies))

namespace {
const Names kSets[] = {TW_SELECT_GEMM(cpu_gemm), TW_SELECT_GEMM(cuda_gemm), TW_SELECT_GEMM(hip_gemm),
                       TW_SELECT_CONV(cuda_conv)};
constexpr int64_t kSetCount = sizeof(kSets) / sizeof(kSets[0]);
}  // namespace
}  // namespace select
}  // namespace tw

#define TW_SELECT_API extern "C" __attribute__((visibility("default")))

TW_SELECT_API int64_t tw_select_abi_version() { return tw::select::kVersion; }
TW_SELECT_API int64_t tw_select_question_bytes() { return sizeof(tw::select::Question); }

// Of set `set`: 0 its name, 1 the problem, 2 rules, 3 arch, 4 rates; then, for each family, its name and its fields.
// A null pointer beyond the last.
TW_SELECT_API const char *tw_select_names(int64_t set, int64_t what) {
  using namespace tw::select;
  if (set < 0 || set >= kSetCount) return nullptr;
  const Names &names = kSets[set];
  if (what == 0) return names.set;
  if (what == 1) return names.problem();
  if (what == 2) return names.rules();
  if (what == 3) return names.arch();
  if (what == 4) return names.rates();
  const int64_t family = (what - 5) / 2;
  if (family >= names.families) return nullptr;
  return (what - 5) % 2 ? names.fields(family) : names.family(family);
}

TW_SELECT_API void tw_select_ask(int64_t set, tw::select::Question *question) {
  question->served = 0, question->best = -1;
  tw::select::kSets[set].ask(*question);
}

// What a learned model sees of a GEMM problem, and of it with each kernel (gemm_features.h).
TW_SELECT_API void tw_select_gemm_features(const tw::select::GemmProblem *problem,
                                           const tw::select::gemm_features::Terms *terms, int64_t count, int64_t units,
                                           float *of_problem, double *of_both) {
  const double moved = tw::select::bytes_moved(*problem);
  tw::select::gemm_features::of_problem(*problem, moved, of_problem);
  tw::select::gemm_features::of_both(*problem, moved, *terms, count, units, of_both);
}
