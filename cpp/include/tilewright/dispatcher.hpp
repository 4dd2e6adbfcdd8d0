// Problem in, kernel out, run.
#pragma once
#include <tilewright/registry.hpp>
#include <tilewright/team.hpp>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace tw {

// A kernel of a problem's signature: what it is estimated to take, or which rule the problem breaks.
struct Candidate {
  KernelKey kernel;
  double seconds = 0;  // infinite where it does not serve the problem
  std::string rule, why, remedy;
  bool serves() const { return rule.empty(); }
};

struct Selection {
  KernelKey kernel;
  std::string tier;  // "heuristic", "fallback", or "named" and "first_fit" where the caller decided
  std::string reason;
  double seconds = 0;  // estimated
};

struct SelectOptions {
  int64_t threads = 0, l2_bytes = 0;  // 0: of this machine
  bool strict = false;                // a fallback kernel is an error
};

// A problem with its kernel, ready to run any number of times, by any number of threads.  `Problem` says how operands
// become the arguments of its kernel.
template <class Problem> class Plan {
 public:
  using Operands = typename Problem::Operands;

  Plan(Registry registry, Problem problem, Selection selection)
      : registry_(std::move(registry)),
        problem_(std::move(problem)),
        selection_(std::move(selection)),
        kernel_(&registry_.load(selection_.kernel.index)) {}

  const Selection &selection() const { return selection_; }
  const Problem &problem() const { return problem_; }

  // Bytes of scratch memory a run needs, aligned to 64.
  int64_t workspace_bytes(const Operands &operands, int64_t threads) const {
    const auto args = problem_.args(operands);
    return kernel_->workspace(&args, threads);
  }
  // At the start of a GPU's workspace: zero before a launch and after it.
  int64_t clear_bytes() const { return kernel_->clear_bytes; }

  // On the CPU, on the calling thread or a team's; scratch memory is the thread's own.
  void run(const Operands &operands) const { demand_cpu(), launch(operands, nullptr, nullptr, 1); }
  void run(const Operands &operands, const Team &team) const {
    demand_cpu(), launch(operands, team.get(), nullptr, team.threads());
  }
  // On a stream of a GPU, with memory of the device for `workspace_bytes`; asynchronous.
  void run_on_stream(const Operands &operands, void *stream, void *workspace) const {
    const std::string &arch = selection_.kernel.arch;
    if (arch == "generic" || arch.rfind("x86_64", 0) == 0)
      throw detail::request_error("plan-stream", arch, selection_.kernel.name + " is a kernel of CPUs, without streams",
                                  "use run()");
    launch(operands, stream, workspace, 1);
  }

 private:
  void demand_cpu() const {
    const std::string &arch = selection_.kernel.arch;
    if (arch.rfind("sm_", 0) == 0 || arch.rfind("gfx", 0) == 0)
      throw detail::request_error("plan-stream", arch, selection_.kernel.name + " is a kernel of GPUs",
                                  "use run_on_stream() with memory of the device");
  }

  void launch(const Operands &operands, void *stream, void *workspace, int64_t threads) const {
    const auto args = problem_.args(operands);
    char why[512] = "";
    if (kernel_->check(&args, why, sizeof why))
      throw detail::request_error("kernel-check", selection_.kernel.name, selection_.kernel.name + " refuses: " + why,
                                  "change what it names, or let another kernel be chosen");
    if (!workspace) workspace = scratch(kernel_->workspace(&args, threads));
    const int status = kernel_->launch(&args, workspace, stream);
    if ((status & 0xff) == TW_DATA) {
      const std::string table = problem_.table_at(size_t(status >> 8));
      throw detail::request_error("operand-values", table, table + " holds a number that is out of range",
                                  "hold lengths to the problem's sizes, and pages to its page count");
    }
    if ((status & 0xff) == TW_DEVICE)
      throw Error("machine", "device", std::to_string(status >> 8),
                  selection_.kernel.name + " was not launched: the device's runtime answers with error " +
                      std::to_string(status >> 8),
                  "check that a device of this arch and its driver are here, and that stream and memory are its own");
    if (status)
      throw Error("machine", "launch", std::to_string(status),
                  selection_.kernel.name + " failed at launch with status " + std::to_string(status & 0xff),
                  "check the operands' memory; if it is well, this is a bug of the kernel");
  }

  static void *scratch(int64_t bytes) {
    struct Memory {
      void *at = nullptr;
      int64_t bytes = 0;
      ~Memory() { std::free(at); }
    };
    static thread_local Memory memory;
    if (bytes > memory.bytes) {
      std::free(memory.at);
      memory.bytes = (bytes + 63) / 64 * 64;
      memory.at = std::aligned_alloc(64, size_t(memory.bytes));
      if (!memory.at) {
        memory.bytes = 0;
        throw Error("machine", "memory", std::to_string(bytes),
                    "no memory for a workspace of " + std::to_string(bytes) + " bytes",
                    "free some, or use fewer threads");
      }
    }
    return memory.at;
  }

  Registry registry_;
  Problem problem_;
  Selection selection_;
  const tw_kernel *kernel_;
};

class Dispatcher {
 public:
  // Of the kernels that serve a problem, by estimate: the place of the one to take, or -1 to leave it to the estimate.
  using Heuristic = std::function<int64_t(const Described &problem, const std::vector<Candidate> &serving)>;

  explicit Dispatcher(Registry registry, SelectOptions options = {})
      : registry_(std::move(registry)), options_(options) {}

  const Registry &registry() const { return registry_; }
  Dispatcher &heuristic(Heuristic choose) { return choose_ = std::move(choose), *this; }

  // The kernel that Python's registry of the same kernels selects by its estimates.
  template <class Problem> Selection select(const Problem &problem) const {
    problem.check();
    return select_described(problem.described());
  }
  // Every kernel of the problem's signature, with its estimate or the rule that speaks against it.
  template <class Problem> std::vector<Candidate> candidates(const Problem &problem) const {
    problem.check();
    return told(problem.described());
  }

  template <class Problem> Plan<Problem> plan(const Problem &problem) const {
    return {registry_, problem, select(problem)};
  }
  // With a kernel by its digest.
  template <class Problem> Plan<Problem> plan_with(const Problem &problem, const std::string &digest) const {
    problem.check();
    Selection selection{registry_.find(digest), "named", "asked for by its digest", 0};
    if (selection.kernel.index < 0)
      throw detail::request_error("kernel-digest", digest, "no kernel of the registry has the digest " + digest,
                                  "list them with Registry::kernels()");
    const Described described = problem.described();
    if (selection.kernel.op != described.op || selection.kernel.signature != described.signature)
      throw detail::request_error("kernel-signature", selection.kernel.name,
                                  selection.kernel.name + " computes " + selection.kernel.signature +
                                      ", and the problem asks for " + described.signature,
                                  "describe a problem of its signature");
    return {registry_, problem, std::move(selection)};
  }
  // With the first kernel, in the registry's order, whose own check takes the operands: needs no selection library.
  template <class Problem>
  Plan<Problem> first_fit(const Problem &problem, const typename Problem::Operands &operands) const {
    problem.check();
    const auto args = problem.args(operands);
    std::string refusals;
    for (bool fallback : {false, true})
      for (KernelKey &key : registry_.matching(problem)) {
        if (key.fallback != fallback) continue;
        char why[512] = "";
        if (registry_.load(key.index).check(&args, why, sizeof why) == 0)
          return {registry_, problem, {key, "first_fit", "the first kernel that takes the operands", 0}};
        refusals += "\n  " + key.name + ": " + why;
      }
    throw detail::request_error(
        "no-kernel", problem.described().text,
        "no kernel for " + problem.described().text + (refusals.empty() ? ": none has its signature" : ":" + refusals),
        "add kernels of its signature");
  }

  // The same for a problem as the runtime takes it.
  Selection select_described(const Described &described) const {
    const tw_problem plain = described.plain();
    tw_select_options options{};
    options.size = sizeof options, options.threads = options_.threads, options.l2_bytes = options_.l2_bytes;
    options.strict = options_.strict;
    if (choose_) {
      const Selection chosen = by_heuristic(described);
      if (chosen.kernel.index >= 0) return chosen;
    }
    tw_choice choice{};
    choice.size = sizeof choice;
    detail::demand(tw_select(registry_.get(), &plain, &options, &choice));
    const bool fallback = choice.tier == TW_TIER_FALLBACK;
    return {registry_.kernel(choice.kernel), fallback ? "fallback" : "heuristic",
            fallback ? "no registered kernel serves it"
            : choice.served == 1
                ? "the only kernel"
                : "lowest estimate of " + std::to_string(choice.served) + " kernels that serve the problem",
            choice.seconds};
  }

 private:
  std::vector<Candidate> told(const Described &described) const {
    const tw_problem plain = described.plain();
    tw_select_options options{};
    options.size = sizeof options, options.threads = options_.threads, options.l2_bytes = options_.l2_bytes;
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
    for (Candidate &candidate : told(described))
      if (candidate.serves() && !candidate.kernel.fallback) serving.push_back(std::move(candidate));
    const int64_t place = serving.empty() ? -1 : choose_(described, serving);
    if (place < 0) return {};
    if (place >= int64_t(serving.size()))
      throw detail::request_error(
          "heuristic-place", std::to_string(place),
          "the heuristic names kernel " + std::to_string(place) + " of " + std::to_string(serving.size()),
          "return a place in the list it is given, or -1");
    Candidate &chosen = serving[size_t(place)];
    return {chosen.kernel, "named", "chosen by the caller's heuristic", chosen.seconds};
  }

  Registry registry_;
  SelectOptions options_;
  Heuristic choose_;
};

}  // namespace tw
