// Sliding windows: how many keys a row sees before and after its own place, and where the window is laid.
#include "../example.hpp"

EXAMPLE(window) {
  struct Window {
    int64_t left, right;
    bool bottom_right;
  };
  const Window windows[] = {{-1, 0, false}, {-1, 0, true}, {8, 0, true}, {5, 5, false}, {0, 0, true}};
  for (const Window &window : windows) {
    const auto problem = tw::AttentionProblem(1, 4, 24, 40, 64).window(window.left, window.right, window.bottom_right);
    Heads heads(problem);
    const auto operands = [&](auto at) { return heads.operands(at); };
    example.run(example.dispatcher.plan(problem), operands);
    std::printf("window %lld, %lld, %s\n", static_cast<long long>(window.left), static_cast<long long>(window.right),
                window.bottom_right ? "bottom right" : "top left");
    example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));
  }
  // The last one sees one key a row: its value comes out as it is.
  const auto diagonal = tw::AttentionProblem(1, 4, 24, 24, 64).window(0, 0);
  Heads heads(diagonal);
  example.plan_and_run(diagonal, [&](auto at) { return heads.operands(at); });
  example.expect("one key is its value", heads.o.host == heads.v.host);
}
