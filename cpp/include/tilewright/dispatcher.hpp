// Problem in, kernel out, run.
#pragma once
#include <tilewright/plan.hpp>
#include <tilewright/plan_key.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tw {

// A kernel of a problem's signature: what it is estimated to take, or which rule the problem breaks.
struct Candidate {
  KernelKey kernel;
  double seconds = 0;  // infinite where it does not serve the problem
  std::string rule, why, remedy;
  bool serves() const { return rule.empty(); }
};

struct SelectOptions {
  int64_t threads = 0, l2_bytes = 0;  // 0: of this machine
  bool strict = false;                // padded copies and fallback kernels are errors
  int64_t plans = 1024;               // that a dispatcher keeps; 0: none
};

namespace detail {

// Plans by problem.  When the newer half is full, the older half is given up: what is used stays.
class PlanCache {
 public:
  std::shared_ptr<const void> find(const PlanKey &key, int64_t generation, int64_t most) {
    {
      std::shared_lock<std::shared_mutex> held(lock_);
      if (generation != generation_) return nullptr;
      const auto known = newer_.find(key);
      if (known != newer_.end()) return known->second;
      if (older_.find(key) == older_.end()) return nullptr;
    }
    std::unique_lock<std::shared_mutex> held(lock_);
    const auto known = older_.find(key);
    if (known == older_.end()) return nullptr;
    const std::shared_ptr<const void> plan = known->second;
    put(key, plan, most);
    return plan;
  }
  void keep(const PlanKey &key, std::shared_ptr<const void> plan, int64_t generation, int64_t most) {
    if (most <= 0 || !key.whole()) return;
    std::unique_lock<std::shared_mutex> held(lock_);
    if (generation != generation_) newer_.clear(), older_.clear();
    generation_ = generation;
    put(key, std::move(plan), most);
  }
  void forget() {
    std::unique_lock<std::shared_mutex> held(lock_);
    newer_.clear(), older_.clear();
  }
  int64_t size() const {
    std::shared_lock<std::shared_mutex> held(lock_);
    return int64_t(newer_.size() + older_.size());
  }

 private:
  using Plans = std::unordered_map<PlanKey, std::shared_ptr<const void>, PlanKey::Hash>;
  // Plans that are found in the older half count too: else a half that is used over and over would only grow.
  void put(const PlanKey &key, std::shared_ptr<const void> plan, int64_t most) {
    const int64_t half = most > 1 ? most / 2 : 1;
    if (int64_t(newer_.size()) >= half) older_.swap(newer_), newer_.clear();
    if (most < 2) older_.clear();
    newer_[key] = std::move(plan);
  }

  mutable std::shared_mutex lock_;
  Plans newer_, older_;
  int64_t generation_ = -1;
};

}  // namespace detail

// Copies share the plans they keep; what would move a dispatcher copies it, so that none is empty.
class Dispatcher {
 public:
  Dispatcher(const Dispatcher &) = default;
  Dispatcher &operator=(const Dispatcher &) = default;
  // Of the kernels that serve a problem, each with its estimate, in the registry's order (they are not sorted by it): the
  // index of the one to take, or -1 to leave the choice to what decides without a heuristic.
  using Heuristic = std::function<int64_t(const Described &problem, const std::vector<Candidate> &serving)>;

  explicit Dispatcher(Registry registry, SelectOptions options = {})
      : registry_(std::move(registry)), options_(options), cache_(std::make_shared<detail::PlanCache>()) {
    const std::pair<const char *, int64_t> numbers[] = {
        {"threads", options.threads}, {"l2-bytes", options.l2_bytes}, {"plans", options.plans}};
    for (const auto &number : numbers)
      if (number.second < 0)
        throw detail::request_error(number.first, std::to_string(number.second),
                                    std::string("SelectOptions: ") + number.first + " is negative",
                                    "use 0 or more; 0 of threads and l2_bytes stands for this machine's");
  }

  const Registry &registry() const { return registry_; }
  Dispatcher &heuristic(Heuristic choose) {
    choose_ = std::move(choose);
    cache_ = std::make_shared<detail::PlanCache>();
    return *this;
  }

  // The kernel that Python's registry of the same kernels selects; of a problem of several stages, one for each.
  template <class Problem> Selection select(const Problem &problem) const {
    problem.check();
    std::vector<Described> stages = problem.stages();
    if (tw_registry_choices(registry_.get()))
      for (size_t at = 0; at < stages.size(); ++at) stages[at].measured = problem.measured(at);
    if (stages.size() == 1) return select_stage(problem, stages[0], 0);
    Selection whole;
    for (size_t at = 0; at < stages.size(); ++at) {
      whole.stages.push_back(select_stage(problem, stages[at], at));
      const Selection &one = whole.stages.back();
      whole.seconds += one.seconds;
      whole.reason += (at ? "; " : std::to_string(stages.size()) + " stages: ") + one.reason;
      if (at == 0 || detail::rank_of(one.tier) > detail::rank_of(whole.tier)) whole.tier = one.tier;
    }
    whole.kernel = whole.stages[0].kernel;
    return whole;
  }
  // Every kernel of the problem's signature, with its estimate or the rule that speaks against it; of a stage's.
  template <class Problem> std::vector<Candidate> candidates(const Problem &problem, size_t stage = 0) const {
    problem.check();
    const std::vector<Described> stages = problem.stages();
    detail::demand_stage(stage, stages.size());
    return candidates_of(stages[stage]);
  }

  // A problem with its kernels; one of a problem that was planned before is the same plan.
  template <class Problem> Plan<Problem> plan(const Problem &problem) const {
    const detail::PlanKey key = problem.key();
    const int64_t generation = tw_registry_generation(registry_.get());
    if (const std::shared_ptr<const void> known = cache_->find(key, generation, options_.plans))
      return *std::static_pointer_cast<const Plan<Problem>>(known);
    const auto made = std::make_shared<const Plan<Problem>>(registry_, problem, select(problem));
    cache_->keep(key, made, generation, options_.plans);
    return *made;
  }
  int64_t kept_plans() const { return cache_->size(); }
  void forget_plans() const { cache_->forget(); }

  // With a kernel by its digest; of a problem of several stages one digest each.  One that does not serve the problem, in
  // copies of the operands either, is refused.
  template <class Problem> Plan<Problem> plan_with(const Problem &problem, const std::string &digest) const {
    return plan_with(problem, std::vector<std::string>{digest});
  }
  template <class Problem>
  Plan<Problem> plan_with(const Problem &problem, const std::vector<std::string> &digests) const {
    problem.check();
    const std::vector<Described> stages = problem.stages();
    if (digests.size() != stages.size())
      throw detail::request_error("stage-count", std::to_string(digests.size()),
                                  std::to_string(digests.size()) + " kernels are named for a problem of " +
                                      std::to_string(stages.size()) + " stages",
                                  "name one for each stage");
    Selection whole = named(stages, digests);
    for (size_t at = 0; at < stages.size(); ++at) {
      Selection &one = whole.stages.empty() ? whole : whole.stages[at];
      const Candidate judged = judged_alone(stages[at], one.kernel);
      if (judged.serves() || judged.rule == "undecided") continue;
      const double seconds = one.kernel.copied ? seconds_in_copies(problem, one.kernel) : -1;
      if (seconds < 0)
        throw detail::request_error("no-kernel", one.kernel.name,
                                    "no kernel for " + problem.described().text + ": " + one.kernel.name +
                                        ", which was asked for, refuses: [" + judged.rule + "] " + judged.why,
                                    judged.remedy.empty() ? "ask for another kernel, or let one be chosen"
                                                          : judged.remedy + "; or let a kernel be chosen");
      one.tier = "padded", one.seconds = seconds, one.in_copies = true;
      one.reason = "asked for by its digest: in padded copies";
    }
    return {registry_, problem, std::move(whole)};
  }
  // With the first kernel, in the registry's order, whose own check takes the operands: needs no selection library.
  template <class Problem>
  Plan<Problem> first_fit(const Problem &problem, const typename Problem::Operands &operands) const {
    problem.check();
    const std::vector<Described> stages = problem.stages();
    std::vector<std::string> digests;
    for (size_t at = 0; at < stages.size(); ++at) digests.push_back(first_taker(problem, operands, stages[at], at));
    Selection said = named(stages, digests);
    said.tier = "first_fit", said.reason = "the first kernel that takes the operands";
    for (Selection &stage : said.stages) stage.tier = said.tier, stage.reason = said.reason;
    return {registry_, problem, std::move(said)};
  }

  // The same for a problem as the runtime takes it.
  Selection select_described(const Described &described) const {
    if (choose_) {
      const Selection chosen = by_heuristic(described);
      if (chosen.kernel.index >= 0) return chosen;
    }
    const tw_problem plain = described.plain();
    const tw_select_options options = plain_options();
    tw_choice choice{};
    choice.size = sizeof choice;
    detail::demand(tw_select(registry_.get(), &plain, &options, &choice));
    Selection selection;
    selection.kernel = registry_.kernel(choice.kernel), selection.tier = detail::tier_name(choice.tier);
    selection.seconds = choice.seconds;
    selection.reason = choice.model                      ? by_model(choice)
                       : choice.tier == TW_TIER_LOCKED   ? "pinned by the lock file that was exported"
                       : choice.tier == TW_TIER_MEASURED ? "the winner of a measurement on such a machine"
                       : choice.tier == TW_TIER_FALLBACK ? "no registered kernel serves it"
                       : choice.served == 1
                           ? "the only kernel"
                           : "lowest estimate of " + std::to_string(choice.served) + " kernels that serve the problem";
    return selection;
  }

 private:
  static std::string by_model(const tw_choice &choice) {
    std::string reason;
    reason.reserve(96);
    if (choice.tier != TW_TIER_MODEL)
      return reason.append("by its estimate, newer than the model ").append(choice.model);
    reason.append("the model ").append(choice.model).append(" predicts it the fastest of ");
    return reason.append(std::to_string(choice.served)).append(" kernels");
  }
  tw_select_options plain_options() const {
    tw_select_options options{};
    options.size = sizeof options, options.threads = options_.threads, options.l2_bytes = options_.l2_bytes;
    options.strict = options_.strict;
    return options;
  }

  // Words for people are made where they are needed: of a refusal.
  template <class Problem> Selection select_stage(const Problem &problem, const Described &described, size_t at) const {
    try {
      Selection chosen = select_described(described);
      if (chosen.tier != "locked" && chosen.tier != "named" && pinned_in_copies(problem, described, chosen))
        return chosen;
      if (chosen.tier == "fallback" && in_copies(problem, described, false, chosen)) return chosen;
      return chosen;
    } catch (const Error &error) {
      if (error.rule() != "no-kernel" && error.rule() != "lock-stale") throw;
      Selection chosen;
      if (pinned_in_copies(problem, described, chosen)) return chosen;
      if (error.rule() == "lock-stale") throw;
      if (!options_.strict && in_copies(problem, described, false, chosen)) return chosen;
      if (!options_.strict && in_copies(problem, described, true, chosen)) return chosen;
      Described said = described;
      said.text = problem.described().text + (at ? " (stage " + std::to_string(at + 1) + ")" : "");
      return select_described(said);
    }
  }

  // The kernel with the lowest estimate that serves the problem in padded copies of its operands.
  template <class Problem>
  bool in_copies(const Problem &problem, const Described &described, bool fallback, Selection &chosen) const {
    if constexpr (detail::HasCopies<Problem>::value) {
      double least = 0;
      const KernelKey *best = nullptr;
      const std::vector<KernelKey> kernels = registry_.matching(described);
      for (const KernelKey &kernel : kernels) {
        const double seconds = kernel.fallback == fallback ? seconds_in_copies(problem, kernel) : -1;
        if (seconds >= 0 && (!best || seconds < least)) best = &kernel, least = seconds;
      }
      if (!best) return false;
      chosen = {};
      chosen.kernel = *best, chosen.tier = "padded", chosen.seconds = least, chosen.in_copies = true;
      chosen.reason = "no kernel takes it as it is: it runs in padded copies of its operands";
      return true;
    } else {
      return static_cast<void>(problem), static_cast<void>(described), static_cast<void>(fallback), false;
    }
  }
  // The kernel that the lock file pins for a problem, or for such problems, and that serves it in padded copies only.
  template <class Problem>
  bool pinned_in_copies(const Problem &problem, const Described &described, Selection &chosen) const {
    if constexpr (detail::HasCopies<Problem>::value) {
      if (!tw_registry_choices(registry_.get())) return false;
      const tw_problem plain = described.plain();
      std::vector<int64_t> places;
      const auto keep = [](void *into, int64_t place) { static_cast<std::vector<int64_t> *>(into)->push_back(place); };
      detail::demand(tw_pinned(registry_.get(), &plain, keep, &places));
      std::optional<std::pair<double, std::string>>
          least;  // as Python compares them: times of six digits, then digests
      for (int64_t place : places) {
        const KernelKey kernel = registry_.kernel(place);
        const double seconds = seconds_in_copies(problem, kernel);
        std::pair<double, std::string> mine(six_digits(seconds), kernel.digest);
        if (seconds < 0 || (least && *least <= mine)) continue;
        least = std::move(mine), chosen = {};
        chosen.kernel = kernel, chosen.tier = "locked", chosen.seconds = seconds, chosen.in_copies = true;
        chosen.reason = "pinned by the lock file that was exported: in padded copies of its operands";
      }
      return least.has_value();
    } else {
      return static_cast<void>(problem), static_cast<void>(described), static_cast<void>(chosen), false;
    }
  }
  static double six_digits(double seconds) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.5e", seconds);
    return std::strtod(digits, nullptr);
  }
  // -1 where a kernel does not serve the problem in copies either.
  template <class Problem> double seconds_in_copies(const Problem &problem, const KernelKey &kernel) const {
    if constexpr (detail::HasCopies<Problem>::value) {
      const std::optional<Problem> larger = kernel.copied ? problem.in_copies(kernel.grains) : std::nullopt;
      if (!larger) return -1;
      try {
        larger->check();
      } catch (const Error &) { return -1; }
      const Candidate judged = judged_alone(larger->described(false), kernel);
      return judged.serves() ? judged.seconds : -1;
    } else {
      return static_cast<void>(problem), static_cast<void>(kernel), -1;
    }
  }
  // What one kernel takes, or which rule speaks against it.
  Candidate judged_alone(const Described &described, const KernelKey &kernel) const {
    std::vector<uint8_t> alone(size_t(registry_.size()), 0);
    alone[size_t(kernel.index)] = 1;
    std::vector<Candidate> judged = candidates_of(described, alone.data());
    if (!judged.empty()) return std::move(judged[0]);
    return {kernel, HUGE_VAL, "undecided", "it was not asked", ""};
  }

  // One kernel a stage, whether they serve it or not.
  Selection named(const std::vector<Described> &stages, const std::vector<std::string> &digests) const {
    if (stages.size() == 1) return named(stages[0], digests[0]);
    Selection whole;
    for (size_t at = 0; at < stages.size(); ++at) whole.stages.push_back(named(stages[at], digests[at]));
    whole.kernel = whole.stages[0].kernel, whole.tier = "named", whole.reason = "asked for by their digests";
    return whole;
  }
  Selection named(const Described &described, const std::string &digest) const {
    Selection selection;
    selection.kernel = registry_.find(digest), selection.tier = "named", selection.reason = "asked for by its digest";
    const KernelKey &kernel = selection.kernel;
    if (kernel.index < 0)
      throw detail::request_error("kernel-digest", digest, "no kernel of the registry has the digest " + digest,
                                  "list them with Registry::kernels()");
    if (kernel.op != described.op || kernel.signature != described.signature)
      throw detail::request_error(
          "kernel-signature", kernel.name,
          kernel.name + " computes " + kernel.signature + ", and the problem asks for " + described.signature,
          "describe a problem of its signature");
    return selection;
  }

  template <class Problem> std::string first_taker(const Problem &problem, const typename Problem::Operands &operands,
                                                   const Described &described, size_t stage) const {
    std::string refusals, taker;
    char *const between = reinterpret_cast<char *>(uintptr_t(1) << 20);  // only checks are made
    for (bool fallback : {false, true})
      for (const KernelKey &key : registry_.matching(described)) {
        if (key.fallback != fallback || !taker.empty()) continue;
        problem.with_args(stage, operands, between, [&](const void *args) {
          char why[512] = "";
          if (registry_.load(key.index).check(args, why, sizeof why) == 0) taker = key.digest;
          else refusals += "\n  " + key.name + ": " + why;
        });
      }
    if (taker.empty())
      throw detail::request_error(
          "no-kernel", problem.described().text,
          "no kernel for " + problem.described().text +
              (refusals.empty() ? ": none has its signature" : ":" + refusals),
          refusals.empty() ? "add kernels of its signature" : "change what they name, or add kernels that take it");
    return taker;
  }

  std::vector<Candidate> candidates_of(const Described &described, const uint8_t *allowed = nullptr) const {
    const tw_problem plain = described.plain();
    tw_select_options options = plain_options();
    options.allowed = allowed;
    struct Context {
      const Registry &registry;
      std::vector<Candidate> candidates;
    } context{registry_, {}};
    detail::demand(tw_candidates(
        registry_.get(), &plain, &options,
        [](void *into, const tw_candidate *c) {
          Context &to = *static_cast<Context *>(into);
          to.candidates.push_back(
              {to.registry.kernel(c->kernel), c->seconds, c->rule ? c->rule : "", c->why, c->remedy});
        },
        &context));
    return std::move(context.candidates);
  }

  Selection by_heuristic(const Described &described) const {
    std::vector<Candidate> serving;
    for (Candidate &candidate : candidates_of(described))
      if (candidate.serves() && !candidate.kernel.fallback) serving.push_back(std::move(candidate));
    const int64_t place = serving.empty() ? -1 : choose_(described, serving);
    if (place == -1) return {};
    if (place < 0 || place >= int64_t(serving.size()))
      throw detail::request_error(
          "heuristic-index", std::to_string(place),
          "the heuristic names kernel " + std::to_string(place) + " of " + std::to_string(serving.size()),
          "return an index into the list it is given, or -1");
    Selection selection;
    selection.kernel = serving[size_t(place)].kernel, selection.seconds = serving[size_t(place)].seconds;
    selection.tier = "named", selection.reason = "chosen by the caller's heuristic";
    return selection;
  }

  Registry registry_;
  SelectOptions options_;
  Heuristic choose_;
  std::shared_ptr<detail::PlanCache> cache_;
};

}  // namespace tw
