// A heuristic of one's own: by the number of rows, among the kernels that serve the problem.
#include "../example.hpp"

EXAMPLE(heuristics) {
  // Up to 16 rows the kernel with the smallest tile, by its schedule; for others no opinion.
  const auto rows_of_tile = [](const tw::KernelKey &key) {
    const size_t at = key.schedule.find("\"tile\":[");
    return at == std::string::npos ? int64_t(0) : std::strtoll(key.schedule.c_str() + at + 8, nullptr, 10);
  };
  tw::Dispatcher mine(example.dispatcher.registry());
  int asked = 0;
  mine.heuristic([&](const tw::Described &problem, const std::vector<tw::Candidate> &serving) -> int64_t {
    ++asked;
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
    std::printf("%lld rows: %s, %s\n", static_cast<long long>(rows), plan.selection().kernel.name.c_str(),
                plan.selection().reason.c_str());
    example.check("  o", heads.o, tw::reference::attention(problem, operands(on_host)));
    example.expect("who decided", plan.selection().tier == (rows > 16 ? "heuristic" : "named"));
  }
  mine.plan(tw::AttentionProblem(1, 4, 4, 80, 64));  // a plan that is kept asks nobody
  example.expect("asked once a problem", asked == 2);
}
