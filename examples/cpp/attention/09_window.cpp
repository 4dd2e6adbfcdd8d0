// Sliding windows: how many keys a row sees before and after its own position, and how the window is aligned.
#include "../example.hpp"

EXAMPLE(window) {
  // Row i stands at key i (top left), or at key i + keys - rows (bottom right: the last row at the last key).  It sees
  // `left` keys before its place and `right` behind it; -1 is no bound.  Keys outside of the window are not computed.
  struct Window {
    int64_t left, right;
    bool bottom_right;
    const char *what;
  };
  const Window windows[] = {{-1, 0, false, "causal, top left"},
                            {-1, 0, true, "causal, bottom right"},
                            {8, 0, true, "the last nine keys (Mistral)"},
                            {5, 5, false, "five to each side"},
                            {0, 0, true, "its own key only"}};
  for (const Window &window : windows) {
    const auto problem = tw::AttentionProblem(1, 4, 24, 40, 64).window(window.left, window.right, window.bottom_right);
    Heads qkv(problem);
    const auto operands = [&](auto at) { return qkv.operands(at); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    say(window.what, ": ", plan.selection().kernel.name);
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));
  }

  // With one key a row, the softmax is 1 and its value comes out as it is.
  const auto diagonal = tw::AttentionProblem(1, 4, 24, 24, 64).window(0, 0);
  Heads qkv(diagonal);
  example.run(example.dispatcher.plan(diagonal), [&](auto at) { return qkv.operands(at); });
  example.expect("one key is its value", qkv.o.host == qkv.v.host);
  example.refused("window", [&] { tw::AttentionProblem(1, 4, 24, 24, 64).window(-2, 0).check(); });
}
