#include "selection.hpp"

#include <cmath>
#include <cstring>

#include "failure.hpp"
#include "host.hpp"

namespace tw {
namespace runtime {
namespace {

// A thread's scratch memory, kept so that a query allocates nothing.
struct Desk {
  std::vector<selection::Candidate> candidates;
  std::vector<int64_t> some, order, rules;
  std::vector<double> seconds;
  std::vector<double> measured;      // estimates of the measured form, of all kernels of a signature
  const int64_t *kernels = nullptr;  // places among the entries of those in the query
  size_t count = 0;
};

Desk &desk() {
  static thread_local Desk mine;
  return mine;
}

void demand_numbers(const Group &group, const tw_problem &problem) {
  const std::vector<std::string> &names = group.library->problem;
  bool same = problem.count == int64_t(names.size());
  for (size_t at = 0; same && at < names.size(); ++at) same = !std::strcmp(names[at].c_str(), problem.names[at]);
  if (same) return;
  throw bad_request(
      "selection-names", problem.op,
      "the selection library takes problems of " + std::string(problem.op) + " otherwise than this client tells them",
      "build the program with the headers of the release that exported the registry");
}

// The kernels that are allowed, from the first to the last of a group's: evaluated, with the results in the scratch memory.
selection::Question ask(const Group &group, size_t first, size_t last, const tw_problem &problem,
                        const tw_select_options &options, bool estimates_only = false) {
  Desk &d = desk();
  selection::Question question{};
  if (options.allowed) {
    d.candidates.clear(), d.some.clear(), d.order.clear();
    for (size_t at = first; at < last; ++at) {
      if (!options.allowed[group.every[at]]) continue;
      d.candidates.push_back(group.candidates[at]), d.order.push_back(group.order[at]);
      d.some.push_back(group.every[at]);
    }
    d.kernels = d.some.data(), d.count = d.some.size();
    question.candidates = d.candidates.data(), question.order = d.order.data();
  } else {
    d.kernels = group.every.data() + first, d.count = last - first;
    question.candidates = group.candidates.data() + first, question.order = group.order.data() + first;
  }
  d.rules.assign(d.count, -1), d.seconds.assign(d.count, HUGE_VAL);
  question.problem = problem.values, question.count = int64_t(d.count);
  question.rules = d.rules.data(), question.seconds = d.seconds.data();
  question.host = {options.threads > 0 ? options.threads : tw_threads(),
                   options.l2_bytes > 0 ? options.l2_bytes : tw_l2_bytes(), dual_fma()};
  question.best = -1, question.estimates_only = estimates_only;
  if (group.library && question.count) group.library->ask(&question);
  return question;
}

// A sentence with the numbers of the problem and the schedule filled in.
void say(const char *sentence, const selection::Rule &rule, const Group &group, const tw_problem &problem,
         const Entry &entry, char *into, size_t bytes) {
  std::string problem_names, schedule_names;
  for (const std::string &name : group.library->problem) problem_names += name + ' ';
  for (const auto &family : group.library->families)
    if (family.second.number == entry.candidate.family)
      for (const std::string &name : family.second.fields) schedule_names += name + ' ';
  const selection::Named named[] = {{problem_names.c_str(), problem.values},
                                    {schedule_names.c_str(), static_cast<const int64_t *>(entry.candidate.schedule)}};
  const selection::Rule predicted{rule.name, rule.code, sentence, ""};
  selection::say(predicted, named, 2, into, bytes);
}

tw_candidate judged(const Registry &registry, const Group &group, const tw_problem &problem, size_t at) {
  const Desk &d = desk();
  tw_candidate candidate{};
  candidate.size = sizeof candidate, candidate.kernel = d.kernels[at], candidate.seconds = d.seconds[at];
  if (d.rules[at] == 0) return candidate;
  candidate.seconds = HUGE_VAL;
  if (d.rules[at] == -1) {
    candidate.rule = "undecided";
    std::strncpy(candidate.why, "no selection library knows this kernel", sizeof candidate.why - 1);
    std::strncpy(candidate.remedy, "let first fit ask the kernel itself", sizeof candidate.remedy - 1);
    return candidate;
  }
  const auto &rule = *reinterpret_cast<const selection::Rule *>(intptr_t(d.rules[at]));
  const Entry &entry = registry.entry(candidate.kernel);
  candidate.rule = rule.name;
  say(rule.why, rule, group, problem, entry, candidate.why, sizeof candidate.why);
  say(rule.remedy, rule, group, problem, entry, candidate.remedy, sizeof candidate.remedy);
  return candidate;
}

[[noreturn]] void refuse(const Registry &registry, const Group &group, const tw_problem &problem,
                         const tw_select_options &options, const std::string &why) {
  ask(group, 0, group.kernels.size(), problem, options);
  const size_t count = desk().count;
  std::string text = "no kernel for " + std::string(problem.text) + ": " + why + "; ";
  if (!count)
    throw bad_request("no-kernel", problem.text, text + "no other kernel has its signature",
                      "add kernels of its signature, or choose without strict");
  text +=
      std::to_string(count) + (count == 1 ? " kernel of its signature refuses:" : " kernels of its signature refuse:");
  for (size_t at = 0; at < count && at < 8; ++at) {
    const tw_candidate candidate = judged(registry, group, problem, at);
    text += "\n  " + registry.entry(candidate.kernel).name + ": [" + candidate.rule + "] " + candidate.why;
    if (candidate.remedy[0]) text += std::string(" (") + candidate.remedy + ")";
  }
  if (count > 8) text += "\n  and " + std::to_string(count - 8) + " more";
  throw bad_request("no-kernel", problem.text, text,
                    "change the problem as one of these kernels says in its brackets, or add kernels");
}

// The kernel that was pinned for the problem or won its measurement: a pin that cannot be kept is an error, a winner that
// refuses is passed over.
bool by_choice(const Registry &registry, const Group &group, const tw_problem &problem, tw_select_options options,
               tw_choice &choice) {
  const int64_t *numbers = problem.measured ? problem.measured : problem.values;
  const int64_t count = options.threads > 0 ? options.threads : tw_threads();
  const bool host = cpu_level(registry.target()) >= 0;
  for (int64_t threads : {int64_t(-1), host ? count : int64_t(0)}) {
    const auto known = group.choices.find(choice_key(numbers, size_t(problem.count), threads));
    if (known == group.choices.end()) continue;
    if (options.allowed && !options.allowed[known->second.kernel]) continue;
    std::vector<uint8_t> alone(size_t(registry.count()), 0);
    alone[size_t(known->second.kernel)] = 1;
    options.allowed = alone.data();
    const selection::Question question = ask(group, 0, group.every.size(), problem, options);
    if (question.served) {
      choice.kernel = known->second.kernel, choice.served = 1, choice.tier = known->second.tier;
      choice.seconds = choice.tier == TW_TIER_MEASURED ? known->second.seconds : desk().seconds[0];
      return true;
    }
    if (known->second.tier == TW_TIER_LOCKED)
      throw bad_request("lock-stale", registry.entry(known->second.kernel).name,
                        std::string(problem.text) + " is pinned to " + registry.entry(known->second.kernel).name +
                            ", which cannot serve it: " + judged(registry, group, problem, 0).why,
                        "lock it anew with `tilewright lock`, and export again");
    options.allowed = nullptr;
  }
  return false;
}

// One of the kernels that are pinned for problems of its family, where the problem is not pinned itself: that with the
// lowest estimate.
bool by_family(const Registry &registry, const Group &group, const tw_problem &problem, tw_select_options options,
               tw_choice &choice) {
  const auto pinned = group.families.find(problem.family ? problem.family : "");
  if (pinned == group.families.end() ||
      group.choices.count(choice_key(problem.measured ? problem.measured : problem.values, size_t(problem.count), -1)))
    return false;
  std::vector<uint8_t> some(size_t(registry.count()), 0);
  for (int64_t kernel : pinned->second) some[size_t(kernel)] = !options.allowed || options.allowed[kernel];
  options.allowed = some.data();
  const selection::Question question = ask(group, 0, group.every.size(), problem, options);
  if (!question.served) return false;
  choice.kernel = desk().kernels[size_t(question.best)], choice.served = question.served;
  choice.seconds = desk().seconds[size_t(question.best)], choice.tier = TW_TIER_LOCKED;
  return true;
}

// What the first model says that knows such problems; false where none does.  The answer of the question lies on the desk.
bool by_model(const Registry &registry, const Group &group, const tw_problem &problem, const tw_select_options &options,
              tw_choice &choice) {
  Desk &d = desk();
  const size_t count = group.kernels.size();
  std::vector<double> &estimates = d.measured;
  estimates.assign(count, HUGE_VAL);
  for (size_t at = 0, place = 0; at < d.count; ++at, ++place) {
    while (group.every[place] != d.kernels[at]) ++place;  // those that are not allowed lie between
    if (d.rules[at]) continue;
    if (!(d.seconds[at] < HUGE_VAL)) return false;  // an estimate is no number
    estimates[place] = d.seconds[at];
  }
  const int64_t *numbers = problem.measured ? problem.measured : problem.values;
  if (problem.measured && std::memcmp(numbers, problem.values, size_t(problem.count) * sizeof *numbers) != 0) {
    // Models learned from problems as they are measured, and are evaluated for such.
    tw_problem dense = problem;
    dense.values = problem.measured;
    tw_select_options all = options;
    all.allowed = nullptr;
    ask(group, 0, count, dense, all, true);
    for (size_t at = 0; at < count; ++at) {
      if (estimates[at] < HUGE_VAL && !(d.seconds[at] < HUGE_VAL)) return false;
      if (estimates[at] < HUGE_VAL) estimates[at] = d.seconds[at];
    }
  }
  const int64_t threads = options.threads > 0 ? options.threads : tw_threads();
  const Query query{numbers,          problem.bytes,  problem.flops,
                    estimates.data(), int64_t(count), registry.units() ? registry.units() : threads};
  for (const Voice &voice : group.voices) {
    Predicted predicted;
    if (!predict(voice, *group.library, query, predicted)) continue;
    choice.kernel = group.kernels[size_t(predicted.best)], choice.seconds = predicted.seconds;
    choice.tier = predicted.seen ? TW_TIER_MODEL : TW_TIER_HEURISTIC, choice.model = voice.model->name.c_str();
    return true;
  }
  return false;
}

}  // namespace

void select(const Registry &registry, const tw_problem &problem, const tw_select_options &options, tw_choice &choice) {
  const Group &group = registry.group(problem);
  if (!group.library)
    throw bad_request("no-estimate", problem.op,
                      "no selection library knows the kernels of " + std::string(problem.text),
                      "export the registry with its selection library, or choose by first fit");
  demand_numbers(group, problem);
  if (!group.families.empty() && by_family(registry, group, problem, options, choice)) return;
  if (!group.choices.empty() && by_choice(registry, group, problem, options, choice)) return;
  const size_t registered = group.kernels.size(), every = registered + group.fallbacks.size();
  selection::Question question = ask(group, 0, registered, problem, options);
  choice.tier = TW_TIER_HEURISTIC;
  if (!question.served) {
    if (options.strict) refuse(registry, group, problem, options, "strict mode refuses fallback kernels");
    question = ask(group, registered, every, problem, options);
    choice.tier = TW_TIER_FALLBACK;
    if (!question.served)
      refuse(registry, group, problem, options, "the registry has no fallback kernel that serves it");
  }
  const Desk &d = desk();
  choice.kernel = d.kernels[size_t(question.best)], choice.served = question.served;
  choice.seconds = d.seconds[size_t(question.best)];
  if (choice.tier == TW_TIER_HEURISTIC && question.served > 1 && !group.voices.empty())
    by_model(registry, group, problem, options, choice);
}

std::vector<int64_t> pinned(const Registry &registry, const tw_problem &problem) {
  const Group &group = registry.group(problem);
  if (group.choices.empty()) return {};  // a pin is one of these, whatever its family
  const int64_t *numbers = problem.measured ? problem.measured : problem.values;
  const auto own = group.choices.find(choice_key(numbers, size_t(problem.count), -1));
  if (own != group.choices.end()) return {own->second.kernel};
  const auto family = group.families.find(problem.family ? problem.family : "");
  return family == group.families.end() ? std::vector<int64_t>() : family->second;
}

void visit_candidates(const Registry &registry, const tw_problem &problem, const tw_select_options &options,
                      void (*visit)(void *context, const tw_candidate *), void *context) {
  const Group &group = registry.group(problem);
  if (group.library) demand_numbers(group, problem);
  ask(group, 0, group.candidates.size(), problem, options);
  std::vector<tw_candidate> candidates;  // `visit` may make another query
  for (size_t at = 0; at < desk().count; ++at) candidates.push_back(judged(registry, group, problem, at));
  for (const tw_candidate &candidate : candidates) visit(context, &candidate);
}

}  // namespace runtime
}  // namespace tw
