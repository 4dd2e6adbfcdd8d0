// A heuristic of one's own: it sees the kernels that serve a problem, and names one or leaves it to selection.
#include "../example.hpp"

EXAMPLE(heuristics) {
  const auto problem = [](int64_t m) { return tw::GemmProblem(m, 64, 64).layout("rcr"); };
  const std::string usual = example.dispatcher.select(problem(100)).kernel.digest;

  // Takes the last by name for small problems, and has no opinion on others.
  tw::Dispatcher mine(example.dispatcher.registry());
  mine.heuristic([](const tw::Described &described, const std::vector<tw::Candidate> &serving) -> int64_t {
    const int64_t m = described.values[0];
    if (m > 32) return -1;
    int64_t last = 0;
    for (size_t at = 1; at < serving.size(); ++at)
      if (serving[at].kernel.name > serving[size_t(last)].kernel.name) last = int64_t(at);
    return last;
  });
  const tw::Selection small = mine.select(problem(8)), large = mine.select(problem(100));
  say("8 rows:   ", small.kernel.name, ", ", small.reason);
  say("100 rows: ", large.kernel.name, ", ", large.reason);
  example.expect("the heuristic chose", small.tier == "named");
  example.expect("selection chose", large.tier != "named" && large.kernel.digest == usual);

  // A place that is none is an error, not a guess.
  tw::Dispatcher wrong(example.dispatcher.registry());
  wrong.heuristic(
      [](const tw::Described &, const std::vector<tw::Candidate> &serving) { return int64_t(serving.size()) + 5; });
  example.refused("heuristic-index", [&] { wrong.select(problem(8)); });

  Array<float> a = drawn(8 * 64, 1), b = drawn(64 * 64, 2), e = blank(8 * 64);
  const auto operands = [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };
  example.run(mine.plan(problem(8)), operands);
  example.check("e", e, tw::reference::gemm(problem(8), operands(on_host)));
}
