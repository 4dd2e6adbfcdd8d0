// Scores under a soft cap, cap * tanh(score / cap), as Gemma 2 has them; the cap is a number of the call.
#include "../example.hpp"

EXAMPLE(softcap) {
  // A problem says that there is a cap, so that a kernel with tanh is chosen; which one comes with each run.
  const auto problem = tw::AttentionProblem(1, 4, 40, 50, 64).softcap();
  Heads qkv(problem);
  for (float &number : qkv.q.host) number *= 8;  // large scores, which a cap changes
  const auto plan = example.dispatcher.plan(problem);
  say(plan.selection().kernel.name);

  std::vector<float> before;
  for (double cap : {30.0, 0.5}) {
    const auto operands = [&](auto at) { return qkv.operands(at).softcap(cap); };
    make_blank(qkv.o);
    example.run(plan, operands);
    say("cap ", cap);
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));
    example.expect("another cap, other numbers", qkv.o.host != before);
    before = qkv.o.host;
  }

  // A tiny cap makes all scores nearly equal: every row is the mean of the values.
  const auto flat = [&](auto at) { return qkv.operands(at).softcap(1e-6); };
  example.run(plan, flat);
  std::vector<double> mean(40 * 4 * 64, 0.0);
  for (int64_t place = 0; place < 40 * 4 * 64; ++place)
    for (int64_t key = 0; key < 50; ++key) mean[size_t(place)] += qkv.v[key * 4 * 64 + place % (4 * 64)] / 50.0;
  example.check("cap 1e-6: the mean of v", qkv.o, mean, 1e-4);

  // A problem with a cap needs one, and one without takes none.
  const auto plain = tw::AttentionProblem(1, 4, 40, 50, 64);
  example.refused("softcap", [&] { problem.args(qkv.operands(on_host)); });
  example.refused("operand-unused", [&] { plain.args(qkv.operands(on_host).softcap(30)); });
}
