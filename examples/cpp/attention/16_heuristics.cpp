// A heuristic of one's own: by the number of rows, among the kernels that serve the problem.
#include "../example.hpp"

EXAMPLE(heuristics) {
  // Up to 16 rows the kernel with the smallest tile, by its schedule; for others no opinion.
  const auto rows_of_tile = [](const tw::KernelKey &key) {
    const std::vector<int64_t> tile = key.numbers("tile");
    return tile.empty() ? int64_t(0) : tile[0];
  };
  tw::Dispatcher mine(example.dispatcher.registry());
  int query = 0;
  mine.heuristic([&](const tw::Described &problem, const std::vector<tw::Candidate> &serving) -> int64_t {
    ++query;
    const int64_t rows = problem.values[4];  // seqlen_q, by its place among the names
    if (rows > 16) return -1;
    int64_t best = 0;
    for (size_t at = 1; at < serving.size(); ++at)
      if (rows_of_tile(serving[at].kernel) < rows_of_tile(serving[size_t(best)].kernel)) best = int64_t(at);
    return best;
  });
  for (int64_t rows : {4, 100}) {
    const auto problem = tw::AttentionProblem(1, 4, rows, 80, 64);
    Heads heads(problem);
    const auto operands = [&](auto at) { return heads.operands(at); };
    const auto plan = mine.plan(problem);
    example.run(plan, operands);
    say(rows, " rows: ", plan.selection().kernel.name, ", ", plan.selection().reason);
    example.check("  o", heads.o, tw::reference::attention(problem, operands(on_host)));
    // A heuristic chooses among kernels that were made for such problems; a fallback kernel is no choice of its.
    const char *const tier = !example.has_kernels(problem) ? "fallback" : rows > 16 ? "heuristic" : "named";
    example.expect("who decided", plan.selection().tier == tier);
  }
  mine.plan(tw::AttentionProblem(1, 4, 4, 80, 64));  // a plan that is kept asks nobody
  example.expect("asked once a problem", query == (example.has_kernels(tw::AttentionProblem(1, 4, 4, 80, 64)) ? 2 : 0));
}
