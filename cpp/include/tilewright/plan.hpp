// A problem with its kernels, ready to run any number of times, by any number of threads.
#pragma once
#include <tilewright/copies.hpp>
#include <tilewright/device.hpp>
#include <tilewright/registry.hpp>
#include <tilewright/team.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tw {

namespace detail {
inline const char *tier_name(int64_t tier) {
  static const char *const names[] = {"locked", "measured", "model", "heuristic", "built", "padded", "fallback"};
  return tier >= 0 && tier < 7 ? names[tier] : "named";
}
inline int64_t rank_of(const std::string &tier) {
  for (int64_t at = 0; at < 7; ++at)
    if (tier == tier_name(at)) return at;
  return -1;
}
inline void demand_stage(size_t at, size_t count) {
  if (at >= count)
    throw request_error("stage-index", std::to_string(at),
                        "stage " + std::to_string(at) + " of a problem of " + std::to_string(count),
                        "use 0 to " + std::to_string(count - 1));
}
}  // namespace detail

// What was chosen for a problem, or for one of its stages.
struct Selection {
  KernelKey kernel;
  std::string tier;  // one of Python's, or "named" and "first_fit" where the caller decided
  std::string reason;
  double seconds = 0;             // estimated, predicted or measured; of all stages together
  std::vector<Selection> stages;  // of a problem of several; else empty
  bool in_copies = false;         // it runs in padded copies of its operands: of the tier `padded`, or pinned so

  size_t stage_count() const { return stages.empty() ? 1 : stages.size(); }
  const Selection &stage(size_t at) const {
    detail::demand_stage(at, stage_count());
    return stages.empty() ? *this : stages[at];
  }
};

namespace detail {
// The digest of the kernel that an operand was packed for, of operands that have such a one.
template <class Operands> auto packed_for(const Operands &operands, int) -> decltype(&operands.b_kernel) {
  return &operands.b_kernel;
}
template <class Operands> const std::string *packed_for(const Operands &, ...) { return nullptr; }
}  // namespace detail

// `Problem` says how operands become the arguments of each stage's kernel.  A plan is a handle: copies share it, and what
// would move it copies it, so that none is empty.
template <class Problem> class Plan {
 public:
  using Operands = typename Problem::Operands;

  Plan(const Plan &) = default;
  Plan &operator=(const Plan &) = default;

  Plan(Registry registry, Problem problem, Selection selection)
      : state_(std::make_shared<const State>(std::move(registry), std::move(problem), std::move(selection))) {}

  const Selection &selection() const { return state_->selection; }
  const Problem &problem() const { return state_->problem; }
  size_t stage_count() const { return state_->kernels.size(); }
  const tw_kernel &kernel(size_t stage) const {
    detail::demand_stage(stage, stage_count());
    return *state_->kernels[stage];
  }

  // Bytes of scratch memory a run needs, aligned to 64: what its kernels need, and what one stage leaves for the next.
  int64_t workspace_bytes(const Operands &operands, int64_t threads) const {
    constexpr int64_t kMostThreads = 4096;  // of a team
    if (threads < 1 || threads > kMostThreads)
      throw detail::request_error("threads", std::to_string(threads),
                                  "a workspace for " + std::to_string(threads) + " threads",
                                  "use those of the team that runs it, Team::threads(); 1 on a GPU");
    int64_t most = 0;
    for (size_t stage = 0; stage < stage_count(); ++stage)
      with_args(stage, operands, nowhere(), [&](const void *args) {
        const tw_kernel &kernel = *state_->kernels[stage];
        most = std::max(most, kernel.workspace(args, threads) - kernel.clear_bytes);
      });
    return clear_bytes() + rounded(most) + between_bytes(operands);
  }
  // At the start of a GPU's workspace: zero before the first run, and zero again after each.
  int64_t clear_bytes() const {
    int64_t most = 0;
    for (const tw_kernel *kernel : state_->kernels) most = std::max(most, kernel->clear_bytes);
    return most;
  }

  // On the CPU, on the calling thread or a team's; scratch memory is the thread's own.
  void run(const Operands &operands) const { demand_cpu(), launch(operands, nullptr, 1); }
  void run(const Operands &operands, const Team &team) const {
    demand_cpu(), launch(operands, team.get(), team.threads());
  }
  // On a stream of a GPU, with memory of the device for `workspace_bytes`; asynchronous.  The current context is the
  // one that operands, workspace and stream are of.
  void run_on_stream(const Operands &operands, void *stream, void *workspace) const {
    demand_gpu();
    demand_fits(operands);
    const int64_t bytes = workspace_bytes(operands, 1);
    if (bytes && !workspace)
      throw detail::request_error("workspace-missing", std::to_string(bytes),
                                  "the plan needs a workspace of " + std::to_string(bytes) + " bytes, and it is null",
                                  "give memory of the device, whose first clear_bytes() are zero");
    if (!state_->larger) return launch_stages(operands, stream, static_cast<char *>(workspace), bytes);
    const Device device(detail::backend_of(selection().kernel.arch));  // that of the current context
    launch_stages(operands, stream, static_cast<char *>(workspace), bytes, &device);
  }
  // On a device's stream, with a workspace that the device keeps for each of its streams.
  void run(const Operands &operands, const Device &device, void *stream = nullptr) const {
    demand_gpu();
    demand_fits(operands);
    const int64_t bytes = workspace_bytes(operands, 1);
    char *const workspace = static_cast<char *>(device.workspace(stream, bytes, clear_bytes()));
    launch_stages(operands, stream, workspace, bytes, &device);
  }

 private:
  struct State {
    State(Registry from, Problem what, Selection chosen)
        : registry(std::move(from)), problem(std::move(what)), selection(std::move(chosen)) {
      for (size_t stage = 0; stage < selection.stage_count(); ++stage)
        kernels.push_back(&registry.load(selection.stage(stage).kernel.index));
      if constexpr (detail::HasCopies<Problem>::value)
        if (selection.in_copies) larger = problem.in_copies(selection.kernel.grains);
    }
    Registry registry;
    Problem problem;
    Selection selection;
    std::vector<const tw_kernel *> kernels;
    std::optional<Problem> larger;  // that runs instead of the problem, in copies
  };

  // What follows the kernels' workspace: what one stage leaves for the next, or copies of operands.
  int64_t between_bytes(const Operands &operands) const {
    int64_t bytes = problem().between_bytes();
    for (const detail::Copied &copy : copies(operands)) bytes += copy.room();
    return bytes;
  }
  std::vector<detail::Copied> copies(const Operands &operands) const {
    if constexpr (detail::HasCopies<Problem>::value)
      if (state_->larger) return problem().copies(*state_->larger, operands);
    return static_cast<void>(operands), std::vector<detail::Copied>();
  }
  // The arguments of a stage's kernel; `between` is the address of those bytes.
  template <class Use> void with_args(size_t stage, const Operands &operands, char *between, Use use) const {
    if constexpr (detail::HasCopies<Problem>::value)
      if (state_->larger) {
        Operands inside = operands;
        for (const detail::Copied &copy : copies(operands))
          Problem::put_copy(inside, copy.operand, between), between += copy.room();
        return state_->larger->with_args(stage, inside, nullptr, use);
      }
    problem().with_args(stage, operands, between, use);
  }
  // Operands into their copies, or results out of theirs; on a device behind each other on the stream.
  void carry(const Operands &operands, char *between, bool out, const Device *device, void *stream) const {
    for (const detail::Copied &copy : copies(operands)) {
      if (out && copy.written) device ? copy.carry_out(between, *device, stream) : copy.carry_out(between);
      else if (!out && !copy.written) device ? copy.carry_in(between, *device, stream) : copy.carry_in(between);
      between += copy.room();
    }
  }

  static int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  bool on_gpu() const { return detail::is_gpu(selection().stage(0).kernel.arch); }
  void demand_cpu() const {
    if (!on_gpu()) return;
    const KernelKey &kernel = selection().stage(0).kernel;
    throw detail::request_error("plan-stream", kernel.arch, kernel.name + " is a kernel of GPUs",
                                "run it on a tw::Device, or use run_on_stream(), with memory of the device");
  }
  void demand_gpu() const {
    if (on_gpu()) return;
    const KernelKey &kernel = selection().stage(0).kernel;
    throw detail::request_error("plan-stream", kernel.arch, kernel.name + " is a kernel of CPUs, without streams",
                                "use run(operands) or run(operands, team)");
  }

  // What every stage says of the operands, before the first writes anything.
  void demand_fits(const Operands &operands) const {
    const std::string *packed = detail::packed_for(operands, 0);
    if (packed && !packed->empty() && *packed != selection().kernel.digest)
      throw detail::request_error(
          "packed-format", selection().kernel.name, "B was packed for another kernel than " + selection().kernel.name,
          "plan with the one it was packed for: Dispatcher::plan_with(problem, packed.kernel())");
    for (size_t stage = 0; stage < stage_count(); ++stage)
      with_args(stage, operands, nowhere(), [&](const void *args) {
        char why[512] = "";
        const std::string &name = selection().stage(stage).kernel.name;
        if (state_->kernels[stage]->check(args, why, sizeof why))
          throw detail::request_error("kernel-check", name, name + " refuses: " + why,
                                      "change what it names, or let another kernel be chosen");
      });
  }
  // Stands for the memory between stages, as well aligned as that is, where only checks are made.
  static char *nowhere() { return reinterpret_cast<char *>(uintptr_t(1) << 20); }

  void launch(const Operands &operands, void *stream, int64_t threads) const {
    demand_fits(operands);
    const int64_t bytes = workspace_bytes(operands, threads);
    launch_stages(operands, stream, static_cast<char *>(scratch(bytes)), bytes);
  }

  // Kernels want different numbers of zeros: each gets those next to the scratch, so that nobody fills another's.
  void launch_stages(const Operands &operands, void *stream, char *workspace, int64_t bytes,
                     const Device *device = nullptr) const {
    const int64_t clear = clear_bytes(), ahead = bytes - between_bytes(operands);
    char *const between = workspace ? workspace + ahead : nullptr;
    carry(operands, between, false, device, stream);
    for (size_t stage = 0; stage < stage_count(); ++stage)
      with_args(stage, operands, between, [&](const void *args) {
        const tw_kernel &kernel = *state_->kernels[stage];
        char *mine = workspace ? workspace + (clear - kernel.clear_bytes) : nullptr;
        demand_launched(stage, kernel.launch(args, mine, stream));
      });
    carry(operands, between, true, device, stream);
  }

  void demand_launched(size_t stage, int status) const {
    if (status == 0) return;
    const std::string &name = selection().stage(stage).kernel.name;
    if ((status & 0xff) == TW_DATA) {
      const std::string table = problem().table_at(stage, size_t(status >> 8));
      throw detail::request_error("operand-values", table, table + " holds a number that is out of range",
                                  "hold lengths to the problem's sizes, and pages to its page count");
    }
    if ((status & 0xff) == TW_DEVICE)
      throw Error("machine", "device", std::to_string(status >> 8),
                  name + " was not launched: the device's driver answers with error " + std::to_string(status >> 8),
                  "check that a device of this arch and its driver are here, and that stream and memory are its own");
    throw Error("machine", "launch", std::to_string(status),
                name + " failed at launch with status " + std::to_string(status & 0xff),
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
      memory.bytes = rounded(bytes);
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

  std::shared_ptr<const State> state_;
};

}  // namespace tw
