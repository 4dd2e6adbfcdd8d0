// B of a GEMM packed once, for kernels that read it so (`GemmProblem::preshuffled()`), and used any number of times.
#pragma once
#include <tilewright/gemm.hpp>
#include <tilewright/plan.hpp>

#include <cstdlib>
#include <memory>
#include <string>

namespace tw {

// A packed B, in memory of its own: that of the host, or of a device.  Copies share it, and it is there as long as one of
// them.  Its bytes are for the kernel of the plan that packed it; for other numbers of rows plan with the same one:
// `dispatcher.plan_with(problem, packed.kernel())`.
class PackedB {
 public:
  PackedB(std::shared_ptr<void> memory, int64_t bytes, std::string kernel, const GemmProblem &problem)
      : memory_(std::move(memory)),
        bytes_(bytes),
        n_(problem.n()),
        k_(problem.k()),
        matrices_(problem.b_matrices()),
        kernel_(std::move(kernel)) {}
  const void *get() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t matrices() const { return matrices_; }         // of a batch; 1 where all of it shares one
  const std::string &kernel() const { return kernel_; }  // the digest of the kernel that reads it

 private:
  std::shared_ptr<void> memory_;
  int64_t bytes_, n_, k_, matrices_;
  std::string kernel_;
};

inline GemmOperands &GemmOperands::b(const PackedB &packed) {
  b_at = packed.get(), b_batch = -1, b_kernel = packed.kernel();
  return b_packed[0] = packed.n(), b_packed[1] = packed.k(), b_packed[2] = packed.matrices(), *this;
}

namespace detail {

// The kernel of a plan that packs, and the arguments it does so with.
struct Packing {
  const tw_kernel &kernel;
  tw_gemm_args args;
  int64_t bytes;

  Packing(const Plan<GemmProblem> &plan, const void *b, int64_t batch_stride)
      : kernel(plan.kernel(0)), args(plan.problem().packing_args(b, batch_stride)), bytes(0) {
    const std::string &name = plan.selection().kernel.name;
    if (args.k == 0 && plan.problem().preshuffled()) return;  // any kernel serves it, and none reads B
    if (!kernel.packed_bytes || !kernel.pack)
      throw request_error("packed-kernel", name, name + " takes no packed B",
                          "describe the problem with GemmProblem::preshuffled(), and have such kernels exported");
    bytes = kernel.packed_bytes(&args);
  }
  bool empty() const { return args.n == 0 || args.k == 0 || args.batch == 0; }  // of nothing there is nothing to pack
  void demand(int status, const std::string &name) const {
    if (status == 0) return;
    throw Error("machine", "launch", std::to_string(status),
                name + " could not pack B: status " + std::to_string(status & 0xff),
                "check that B and its memory are where the plan runs");
  }
};

}  // namespace detail

// `b` is as the plan's problem says: its layout, `b_stride()`, and matrices of a batch so many elements apart (-1: one
// after the other).
inline PackedB pack(const Plan<GemmProblem> &plan, const void *b, const Team &team, int64_t batch_stride = -1) {
  if (detail::is_gpu(plan.selection().kernel.arch))
    throw detail::request_error("plan-stream", plan.selection().kernel.arch, "the plan's kernel is one of GPUs",
                                "pack with a tw::Device, and B in its memory");
  const detail::Packing packing(plan, b, batch_stride);
  const size_t rounded = size_t(packing.bytes + 63) / 64 * 64 + 64;
  const std::shared_ptr<void> memory(std::aligned_alloc(64, rounded), std::free);
  if (!memory)
    throw Error("machine", "memory", std::to_string(packing.bytes),
                "no memory for a packed B of " + std::to_string(packing.bytes) + " bytes", "free some");
  const int status = packing.empty() ? 0 : packing.kernel.pack(&packing.args, memory.get(), team.get());
  packing.demand(status, plan.selection().kernel.name);
  return {memory, packing.bytes, plan.selection().kernel.digest, plan.problem()};
}
// On a GPU, queued on one of its streams.
inline PackedB pack(const Plan<GemmProblem> &plan, const void *b, const Device &device, void *stream = nullptr,
                    int64_t batch_stride = -1) {
  if (!tw_device_runs(device.get(), plan.selection().kernel.arch.c_str()))
    throw detail::request_error("plan-stream", plan.selection().kernel.arch,
                                "the device runs no kernels of " + plan.selection().kernel.arch,
                                "pack with a plan of a registry of the device's arch");
  const detail::Packing packing(plan, b, batch_stride);
  const auto held = std::make_shared<DeviceMemory>(device.allocate(packing.bytes));
  const int status = packing.empty() ? 0 : packing.kernel.pack(&packing.args, held->get(), stream);
  packing.demand(status, plan.selection().kernel.name);
  return {std::shared_ptr<void>(held, held->get()), packing.bytes, plan.selection().kernel.digest, plan.problem()};
}

}  // namespace tw
