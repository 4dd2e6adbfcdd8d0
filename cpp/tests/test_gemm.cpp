// GEMM from end to end on the CPU: all layouts, fused work, batches, beside a float64 reference.  Argument: a folder that
// Registry.export() wrote.
#include <tilewright/reference.hpp>

#include "check.hpp"

static int checked = 0;

static void run(const tw::Dispatcher &dispatcher, tw::GemmProblem problem, const tw::Team &team) {
  const int64_t m = problem.m(), n = problem.n(), k = problem.k(), batch = problem.batch();
  const auto a = drawn(batch * m * k, 1), b = drawn(batch * k * n, 2), c = drawn(batch * m * n, 3), bias = drawn(n, 4);
  const auto residual = drawn(batch * m * n, 5), up = drawn(batch * k * n, 6);
  std::vector<float> e(size_t(batch * m * n), NAN);
  tw::GemmOperands operands;
  operands.a(a.data()).b(b.data()).e(e.data()).alpha(0.75);
  if (problem.uses_c()) operands.c(c.data()).beta(0.5);
  if (problem.num_d() > 0)
    tw::is_gate(problem.epilogue()) ? operands.residual(residual.data()) : operands.bias(bias.data());
  if (problem.num_d() > 1) operands.residual(residual.data());
  if (problem.dual()) operands.b_up(up.data());
  const auto plan = dispatcher.plan(problem);
  CHECK(plan.workspace_bytes(operands, team.threads()) >= 0);
  plan.run(operands, team);
  const double error = tw::reference::error(e.data(), tw::Dtype::fp32, tw::reference::gemm(problem, operands));
  CHECK(error < 1e-5);
  if (!(error < 1e-5))
    std::printf("  %s: %g with %s\n", problem.described().text.c_str(), error, plan.selection().kernel.name.c_str());
  const std::vector<float> before = e;
  plan.run(operands);  // on one thread: the same bits
  CHECK(before == e);
  ++checked;
}

// B packed once, used with several numbers of rows.
static void packed(const tw::Dispatcher &dispatcher) {
  const tw::Team team(2);
  const int64_t n = 37, k = 29, batch = 2;
  const auto problem = [&](int64_t m) { return tw::GemmProblem(m, n, k).layout("rcr").batch(batch).preshuffled(); };
  const std::vector<float> a = drawn(batch * 50 * k, 1), b = drawn(batch * n * (k + 3), 2);
  const auto first = dispatcher.plan(problem(50).b_stride(k + 3));
  const tw::PackedB once = tw::pack(first, b.data(), team);
  CHECK(once.bytes() >= batch * n * k * 4 && once.kernel() == first.selection().kernel.digest);
  for (int64_t m : {int64_t(50), int64_t(7), int64_t(0)}) {
    std::vector<float> e(size_t(batch * m * n), NAN);
    tw::GemmOperands operands = tw::GemmOperands().a(a.data()).e(e.data());
    const tw::GemmProblem plain = tw::GemmProblem(m, n, k).layout("rcr").batch(batch).b_stride(k + 3);
    const std::vector<double> expected = tw::reference::gemm(plain, operands.b(b.data()));
    dispatcher.plan_with(problem(m), once.kernel()).run(operands.b(once), team);
    CHECK(m == 0 || tw::reference::error(e.data(), tw::Dtype::fp32, expected) < 1e-5);
    ++checked;
  }
  std::vector<float> e(size_t(50 * n), NAN);
  const auto unpacked = dispatcher.plan(tw::GemmProblem(50, n, k).layout("rcr"));
  CHECK(rule_of([&] { unpacked.run(tw::GemmOperands().a(a.data()).b(once).e(e.data())); }) == "packed-format");
  CHECK(rule_of([&] { tw::pack(unpacked, b.data(), team); }) == "packed-kernel");
  CHECK(rule_of([&] { tw::pack(first, nullptr, team); }) == "operand-missing");
  CHECK(rule_of([&] { tw::pack(first, b.data(), team, INT64_MAX); }) == "size-huge");
  CHECK(rule_of([&] { tw::pack(first, b.data(), team, -7); }) == "stride-range");
  // The bytes are of one n, one k and so many matrices.
  for (const tw::GemmProblem &other :
       {tw::GemmProblem(7, n + 64, k).batch(batch), tw::GemmProblem(7, n - 1, k).batch(batch),
        tw::GemmProblem(7, n, k + 64).batch(batch), tw::GemmProblem(7, n, k).batch(5), tw::GemmProblem(7, n, k)}) {
    const auto plan = dispatcher.plan_with(tw::GemmProblem(other).layout("rcr").preshuffled(), once.kernel());
    CHECK(rule_of([&] { plan.run(tw::GemmOperands().a(a.data()).b(once).e(e.data())); }) == "packed-format");
  }
  const auto nothing = dispatcher.plan(tw::GemmProblem(7, n, 0).layout("rcr").preshuffled());
  const tw::PackedB empty = tw::pack(nothing, nullptr, team);
  nothing.run(tw::GemmOperands().b(empty).e(e.data()));
  CHECK(e[0] == 0 && e[size_t(7 * n - 1)] == 0);
}

static void numbers(const tw::Dispatcher &dispatcher, const tw::Team &team) {
  const int64_t sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {33, 20, 17}, {64, 96, 80}, {130, 50, 200}, {3, 4, 0}};
  for (const char *layout : {"rcr", "rrr", "crr", "ccr"})
    for (const auto &s : sizes) {
      tw::GemmProblem problem(s[0], s[1], s[2]);
      problem.layout(layout);
      run(dispatcher, problem, team);
      run(dispatcher, tw::GemmProblem(problem).with_c(), team);
      run(dispatcher, tw::GemmProblem(problem).batch(3), team);
    }
  run(dispatcher, tw::GemmProblem(33, 20, 17).layout("rcr").epilogue(tw::Epilogue::relu, 1), team);
  run(dispatcher, tw::GemmProblem(33, 20, 17).layout("rcr").epilogue(tw::Epilogue::gelu), team);
  run(dispatcher, tw::GemmProblem(33, 20, 17).layout("rcr").epilogue(tw::Epilogue::add, 2).with_c(), team);
}

// A kernel by its digest, by first fit, and by a heuristic of one's own.
static void choices(const tw::Dispatcher &dispatcher) {
  const auto a = drawn(33 * 17, 1);
  std::vector<float> e(33 * 20);
  tw::GemmProblem problem(33, 20, 17);
  problem.layout("rcr");
  const auto kernels = dispatcher.registry().matching(problem);
  CHECK(kernels.size() > 1);
  tw::GemmOperands operands;
  operands.a(a.data()).b(a.data()).e(e.data());
  for (const tw::KernelKey &key : kernels) {
    const auto plan = dispatcher.plan_with(problem, key.digest.substr(0, 12));
    CHECK(plan.selection().kernel.digest == key.digest && plan.selection().tier == "named");
  }
  CHECK(dispatcher.first_fit(problem, operands).selection().tier == "first_fit");
  tw::Dispatcher mine(dispatcher.registry());
  mine.heuristic(
      [](const tw::Described &, const std::vector<tw::Candidate> &serving) { return int64_t(serving.size()) - 1; });
  CHECK(mine.select(problem).tier == "named");
  mine.heuristic([](const tw::Described &, const std::vector<tw::Candidate> &) { return int64_t(-1); });
  CHECK(mine.select(problem).kernel.digest == dispatcher.select(problem).kernel.digest);
  mine.heuristic(
      [](const tw::Described &, const std::vector<tw::Candidate> &serving) { return int64_t(serving.size()); });
  CHECK(rule_of([&] { mine.select(problem); }) == "heuristic-index");
  mine.heuristic([](const tw::Described &, const std::vector<tw::Candidate> &) { return int64_t(-7); });
  CHECK(rule_of([&] { mine.select(problem); }) == "heuristic-index");
  CHECK(rule_of([&] { dispatcher.plan(problem).kernel(1); }) == "stage-index");
  CHECK(rule_of([&] { dispatcher.select(problem).stage(1); }) == "stage-index");
  for (const tw::Candidate &candidate : dispatcher.candidates(problem))
    CHECK(candidate.serves() == candidate.why.empty());
}

// Errors name the rule.
static void errors(const tw::Dispatcher &dispatcher) {
  const std::vector<float> a(33 * 17);
  const tw::GemmProblem problem = tw::GemmProblem(33, 20, 17).layout("rcr");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(-1, 1, 1)); }) == "size-negative");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(1, 1, 1).layout("rcc")); }) == "layout-name");
  for (const char *letters : {"", "r", "rcrr"}) {  // also where it is asked about before it is checked
    const auto odd = tw::GemmProblem(4, 5, 6).layout(letters);
    CHECK(odd.b_stride() >= 5 && odd.bytes() > 0 && rule_of([&] { dispatcher.plan(odd); }) == "layout-name");
    CHECK(rule_of([&] { odd.described(); }) == "layout-name");
    CHECK(rule_of([&] { dispatcher.registry().matching(odd); }) == "layout-name");
  }
  CHECK(tw::GemmProblem(INT64_MAX, INT64_MAX, INT64_MAX).batch(INT64_MAX).bytes() > 0);
  CHECK(rule_of([&] { dispatcher.plan(problem).workspace_bytes({}, 0); }) == "threads");
  CHECK(rule_of([&] { dispatcher.plan(problem).workspace_bytes({}, INT64_MAX); }) == "threads");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(4, 4, 4).a_stride(2)); }) == "stride-short");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(4, 4, 4).epilogue(tw::Epilogue::add, 0)); }) ==
        "epilogue-d-count");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(4, 4, 4).dtype(tw::Dtype::fp8_e5m2)); }) == "no-kernel");
  CHECK(rule_of([&] { dispatcher.plan(problem).run(tw::GemmOperands().a(a.data())); }) == "operand-missing");
  CHECK(rule_of([&] { dispatcher.plan_with(problem, "0123456789"); }) == "kernel-digest");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(4, 4, 4).dtype(tw::Dtype(99))); }) == "dtype-input");
  CHECK(rule_of([&] { dispatcher.plan(tw::GemmProblem(4, 4, 4).epilogue(tw::Epilogue(-1))); }) == "epilogue-name");
  CHECK(rule_of([&] { dispatcher.candidates(problem, 1); }) == "stage-index");
}

static void memory(const tw::Dispatcher &dispatcher) {
  // C is added once unless beta says otherwise, and never left out in silence.
  const std::vector<float> ones(3 * 16, 1.0f);
  std::vector<float> accum(3 * 16);
  tw::GemmOperands small;
  small.a(ones.data()).b(ones.data()).e(accum.data());
  const auto with_c = dispatcher.plan(tw::GemmProblem(4, 4, 4).layout("rcr").with_c());
  with_c.run(tw::GemmOperands(small).c(ones.data()));
  CHECK(accum[0] == 5);
  with_c.run(tw::GemmOperands(small).beta(0));
  CHECK(accum[0] == 4);
  CHECK(rule_of([&] { with_c.run(small); }) == "operand-missing");
  const auto without = dispatcher.plan(tw::GemmProblem(4, 4, 4).layout("rcr"));
  CHECK(rule_of([&] { without.run(tw::GemmOperands(small).beta(2)); }) == "operand-unused");
  CHECK(rule_of([&] { without.run(tw::GemmOperands(small).beta(0)); }) == "");
  CHECK(rule_of([&] { without.run(tw::GemmOperands(small).a(accum.data())); }) == "out-overlaps");
  CHECK(value_of([&] { without.run(tw::GemmOperands(small).b(accum.data())); }) == "b");
  const auto batched = dispatcher.plan(tw::GemmProblem(4, 4, 4).layout("rcr").batch(3));
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).c(ones.data())); }) == "operand-unused");
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).b_up(ones.data())); }) == "operand-unused");
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).a(ones.data() + 32, -16)); }) == "stride-range");
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).b(ones.data(), INT64_MAX)); }) == "stride-range");
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).e(accum.data(), 5)); }) == "stride-overlap");
  // Strides that are numbers of 60 bits each, and offsets that are not.
  constexpr int64_t kFar = (int64_t(1) << 60) - 1;
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).a(ones.data(), kFar)); }) == "size-huge");
  const tw::GemmProblem added = tw::GemmProblem(4, 4, 4).epilogue(tw::Epilogue::add, 1);
  CHECK(rule_of([&] { added.args(tw::GemmOperands(small).d(ones.data(), kFar)); }) == "size-huge");
  // Columns of a D tensor lie side by side, or one number is for the row: others are refused before there is a problem.
  for (int64_t columns : {int64_t(2), int64_t(-1), int64_t(-7), kFar}) {
    CHECK(rule_of([&] { tw::GemmOperands().d(ones.data(), 4, columns); }) == "d-column-stride");
    CHECK(value_of([&] { tw::GemmOperands().d(ones.data(), 4, columns); }) == std::to_string(columns));
    tw::GemmOperands directly = tw::GemmOperands(small).d(ones.data());
    directly.d_col[0] = columns;
    CHECK(rule_of([&] { added.args(directly); }) == "d-column-stride");
  }
  // Of every D tensor, also the last: a row or batch stride of -7 would be taken for dense memory.
  const tw::GemmProblem many = tw::GemmProblem(4, 4, 4).epilogue(tw::Epilogue::add, TW_MAX_D);
  for (int64_t wrong = 0; wrong < 2 * TW_MAX_D; ++wrong) {
    tw::GemmOperands o(small);
    for (int64_t i = 0; i < TW_MAX_D; ++i) {
      const auto step = [&](int64_t which, int64_t right) { return wrong == 2 * i + which ? -7 : right; };
      o.d(ones.data(), step(0, 4), 1, step(1, 0));
    }
    CHECK(rule_of([&] { many.args(o); }) == "stride-range");
  }
  CHECK(rule_of([&] { batched.run(tw::GemmOperands(small).e(accum.data(), 16)); }) == "");
  const auto woven = dispatcher.plan(tw::GemmProblem(4, 4, 4).layout("rcr").batch(3).c_stride(12));
  CHECK(rule_of([&] { woven.run(tw::GemmOperands(small).e(accum.data(), 4)); }) == "");
}

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_gemm FOLDER"), 2;
  const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
  CHECK(tw::Registry::open(arguments[1], "cpu").target() == dispatcher.registry().target());
  numbers(dispatcher, tw::Team(2)), choices(dispatcher), errors(dispatcher), memory(dispatcher), packed(dispatcher);
  return done("gemm", checked);
}
