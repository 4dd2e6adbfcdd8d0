// y = x w', a linear layer: describe the problem, see which kernel was chosen and why, run it, check it.
#include "../example.hpp"

EXAMPLE(basic) {
  // 100 rows of 55 inputs; w lies as a linear layer stores it, one row of 55 weights for each of 70 outputs.
  const int64_t m = 100, n = 70, k = 55;
  Array<float> x = drawn(m * k, 1), w = drawn(n * k, 2), y = blank(m * n);

  // A problem is sizes, types and layouts, without addresses: letters for A, B and the result, r by rows and c by
  // columns.  B is w', whose columns are the rows of w.
  const auto problem = tw::GemmProblem(m, n, k).layout("rcr");
  const tw::Selection chosen = example.dispatcher.select(problem);
  say("kernel    ", chosen.kernel.name);
  say("tier      ", chosen.tier, ": ", chosen.reason);
  say("estimate  ", chosen.seconds * 1e6, " us");

  // A plan is a problem with its kernel loaded; addresses come with each run.
  const auto operands = [&](auto at) { return tw::GemmOperands().a(at(x)).b(at(w)).e(at(y)); };
  const auto plan = example.dispatcher.plan(problem);
  say("workspace ", plan.workspace_bytes(operands(on_host), example.team.threads()), " bytes");
  example.run(plan, operands);
  example.check("y = x w'", y, tw::reference::gemm(problem, operands(on_host)));

  // The same plan again, with other numbers and a scalar: nothing is selected anew.
  x.host = drawn(m * k, 3).host, make_blank(y);
  const auto doubled = [&](auto at) { return operands(at).alpha(2); };
  example.run(plan, doubled);
  example.check("y = 2 x w'", y, tw::reference::gemm(problem, doubled(on_host)));

  // A mistake names its rule, the value and what would work.
  example.refused("size-negative", [&] { example.dispatcher.plan(tw::GemmProblem(m, n, -1)); });
  example.refused("operand-missing", [&] { problem.args(tw::GemmOperands().a(x.data()).e(y.data())); });
}
