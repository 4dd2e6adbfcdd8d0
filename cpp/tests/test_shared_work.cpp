// Kernels of CPUs on sixteen threads, the same bits as on one: GEMM, convolution and attention, every kernel that serves.
// Arguments: folders of Registry.export() with kernels of the three.  ThreadSanitizer runs it with kernels that are
// compiled for it too (tests/cpp/test_sanitizers.py), so that what threads of a kernel share is looked at.
#include <cmath>
#include <thread>

#include "check.hpp"

static constexpr int64_t kThreads = 16;
static int checked = 0;

// By every kernel: alone, on a team, and on the same team by several threads at once.
template <class Problem, class Operands>
static void same_bits(const tw::Dispatcher &dispatcher, const Problem &problem, int64_t results, Operands operands) {
  static const tw::Team team(kThreads);
  const auto blank = [&] { return std::vector<float>(size_t(results), NAN); };
  for (const tw::Candidate &candidate : dispatcher.candidates(problem)) {
    if (!candidate.serves()) continue;
    const auto plan = dispatcher.plan_with(problem, candidate.kernel.digest);
    std::vector<float> alone = blank(), shared = blank();
    plan.run(operands(alone.data()));
    plan.run(operands(shared.data()), team);
    int64_t unwritten = 0;
    for (float number : alone) unwritten += std::isnan(number);
    CHECK(unwritten == 0);
    CHECK(alone == shared);
    std::vector<std::vector<float>> several(3, blank());
    std::vector<std::thread> callers;
    for (std::vector<float> &result : several) callers.emplace_back([&] { plan.run(operands(result.data()), team); });
    for (std::thread &caller : callers) caller.join();
    for (const std::vector<float> &result : several) CHECK(result == alone);
    ++checked;
  }
}

static void gemms(const tw::Dispatcher &dispatcher) {
  const int64_t m = 200, n = 150, k = 90;
  const std::vector<float> a = drawn(m * k, 1), b = drawn(m * k, 2);  // enough for both problems
  const auto operands = [&](float *e) { return tw::GemmOperands().a(a.data()).b(b.data()).e(e); };
  same_bits(dispatcher, tw::GemmProblem(m, n, k).layout("rcr"), m * n, operands);
  same_bits(dispatcher, tw::GemmProblem(1, n, m * k / n).layout("rcr"), n, operands);
}

static void convolutions(const tw::Dispatcher &dispatcher) {
  const std::vector<float> x = drawn(2 * 20 * 18 * 32, 1), w = drawn(32 * 9 * 32, 2), y = drawn(2 * 20 * 18 * 32, 3);
  const auto problem = tw::ConvProblem(2, 32, 32, {20, 18}, {3, 3}).padding({1, 1}).deterministic();
  using D = tw::ConvDirection;
  same_bits(dispatcher, problem, int64_t(y.size()),
            [&](float *to) { return tw::ConvOperands().x(x.data()).w(w.data()).y(to); });
  same_bits(dispatcher, tw::ConvProblem(problem).direction(D::backward_data), int64_t(x.size()),
            [&](float *to) { return tw::ConvOperands().x(to).w(w.data()).y(y.data()); });
  same_bits(dispatcher, tw::ConvProblem(problem).direction(D::backward_weight), int64_t(w.size()),
            [&](float *to) { return tw::ConvOperands().x(x.data()).w(to).y(y.data()); });
}

static void attentions(const tw::Dispatcher &dispatcher) {
  const int64_t heads = 4, keys = 130, size = 32;
  const std::vector<float> q = drawn(2 * keys * heads * size, 1), k = drawn(2 * keys * heads * size, 2),
                           v = drawn(2 * keys * heads * size, 3);
  const auto operands = [&](float *o) { return tw::AttentionOperands().q(q.data()).k(k.data()).v(v.data()).o(o); };
  for (int64_t rows : {int64_t(1), keys})
    same_bits(dispatcher, tw::AttentionProblem(2, heads, rows, keys, size), 2 * rows * heads * size, operands);
}

int main(int count, char **arguments) {
  if (count < 4) return std::puts("usage: test_shared_work GEMM_FOLDER CONV_FOLDER ATTENTION_FOLDER"), 2;
  gemms(tw::Dispatcher(tw::Registry::open(arguments[1])));
  convolutions(tw::Dispatcher(tw::Registry::open(arguments[2])));
  attentions(tw::Dispatcher(tw::Registry::open(arguments[3])));
  return done("shared work", checked);
}
