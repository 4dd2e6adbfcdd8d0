// Runs a GEMM, a convolution and attentions from a bundle on a GPU, and writes what they give: tests/gpu/bundle_from_cpp.py
// runs the same from Python and compares the bits.
//   gpu_bundle BUNDLE FOLDER [TARGET]      (FOLDER: operands as NAME.bin; results go to NAME.cpp.bin)
#include <tilewright/tilewright.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

struct Session {
  const tw::Device &device;
  const tw::Dispatcher &dispatcher;
  std::string folder;

  tw::DeviceMemory operand(const std::string &name) const {
    std::ifstream file(folder + "/" + name + ".bin", std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (bytes.empty()) throw tw::Error("request", "operand-file", name, "no operand " + name, "write it first");
    tw::DeviceMemory memory = device.allocate(int64_t(bytes.size()));
    device.copy(memory.get(), bytes.data(), memory.bytes());
    device.synchronize();
    return memory;
  }

  // Two calls: the first loads kernels and their code, the second shows that the workspace is as it should be.
  template <class Problem, class Operands>
  void run(const std::string &name, const Problem &problem, const Operands &operands, const tw::DeviceMemory &result) {
    const auto start = Clock::now();
    const auto plan = dispatcher.plan(problem);
    plan.run(operands, device);
    device.synchronize();
    const double first = milliseconds(start);
    plan.run(operands, device);
    std::vector<char> bytes(size_t(result.bytes()));
    device.copy(bytes.data(), result.get(), result.bytes());
    device.synchronize();
    std::ofstream(folder + "/" + name + ".cpp.bin", std::ios::binary)
        .write(bytes.data(), std::streamsize(bytes.size()));
    std::string digests;
    for (size_t stage = 0; stage < plan.stage_count(); ++stage)
      digests += (stage ? "+" : "") + plan.selection().stage(stage).kernel.digest;
    std::printf("%s %s %s %.3f\n", name.c_str(), digests.c_str(), plan.selection().tier.c_str(), first);
  }
};

void run_all(Session &session) {
  const tw::Device &device = session.device;
  {
    const tw::DeviceMemory a = session.operand("gemm_a"), b = session.operand("gemm_b"),
                           e = device.allocate(512 * 1024 * 2);
    session.run("gemm", tw::GemmProblem(512, 1024, 768).dtype(tw::Dtype::fp16),
                tw::GemmOperands().a(a.get()).b(b.get()).e(e.get()), e);
  }
  {
    const tw::DeviceMemory x = session.operand("conv_x"), w = session.operand("conv_w"),
                           y = device.allocate(4 * 28 * 28 * 128 * 2);
    session.run("conv", tw::ConvProblem(4, 64, 128, {28, 28}, {3, 3}).padding({1, 1}).dtype(tw::Dtype::fp16),
                tw::ConvOperands().x(x.get()).w(w.get()).y(y.get()), y);
  }
  {
    const tw::DeviceMemory q = session.operand("attention_q"), k = session.operand("attention_k"),
                           v = session.operand("attention_v"), o = device.allocate(q.bytes());
    session.run("attention", tw::AttentionProblem(2, 8, 512, 512, 64).heads_kv(2).causal().dtype(tw::Dtype::fp16),
                tw::AttentionOperands().q(q.get()).k(k.get()).v(v.get()).o(o.get()), o);
  }
  {
    const tw::DeviceMemory q = session.operand("decode_q"), k = session.operand("decode_k"),
                           v = session.operand("decode_v"), o = device.allocate(q.bytes());
    session.run("decode", tw::AttentionProblem(2, 8, 1, 4096, 64).heads_kv(2).num_splits(4).dtype(tw::Dtype::fp16),
                tw::AttentionOperands().q(q.get()).k(k.get()).v(v.get()).o(o.get()), o);
  }
}

}  // namespace

int main(int count, char **arguments) {
  if (count < 3) return std::puts("usage: gpu_bundle BUNDLE FOLDER [TARGET]"), 2;
  try {
    const int64_t files = tw::check_bundle(arguments[1]);
    const auto start = Clock::now();
    const tw::Device device("cuda");
    const double opened = milliseconds(start);
    const auto again = Clock::now();
    const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1], count > 3 ? arguments[3] : "cuda"));
    std::printf("# %lld files checked; %s, %s; device opened in %.1f ms, bundle in %.1f ms\n",
                static_cast<long long>(files), device.name().c_str(), dispatcher.registry().target().c_str(), opened,
                milliseconds(again));
    Session session{device, dispatcher, arguments[2]};
    run_all(session);
    return 0;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
