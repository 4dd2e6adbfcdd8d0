// Scores under a soft cap: cap * tanh(score / cap), the cap a number of the call.
#include "../example.hpp"

EXAMPLE(softcap) {
  const auto problem = tw::AttentionProblem(1, 4, 40, 50, 64).softcap();
  Heads heads(problem);
  std::vector<float> before;
  const auto plan = example.dispatcher.plan(problem);
  for (double cap : {30.0, 0.5}) {  // one plan, any cap
    const auto operands = [&](auto at) { return heads.operands(at).softcap(cap); };
    example.run(plan, operands);
    std::printf("cap %g\n", cap);
    example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));
    example.expect("another cap, other numbers", heads.o.host != before);
    before = heads.o.host;
  }
  // A problem with a cap needs one, and one without takes none.
  for (bool with : {true, false}) {
    const auto other = tw::AttentionProblem(1, 4, 40, 50, 64).softcap(with);
    try {
      other.args(with ? heads.operands(on_host) : heads.operands(on_host).softcap(30));
      example.expect("refused", false);
    } catch (const tw::Error &error) { std::printf("refused: [%s]\n", error.rule().c_str()); }
  }
}
