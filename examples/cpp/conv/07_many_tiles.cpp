// Networks' layers, each with the kernel that selection takes, and how far its estimate is from the clock.
#include "../example.hpp"

EXAMPLE(many_tiles) {
  struct Layer {
    const char *name;
    int64_t channels, filters, size, window, stride;
  };
  const Layer layers[] = {{"first", 8, 32, 28, 3, 1}, {"pointwise", 32, 64, 14, 1, 1}, {"strided", 32, 32, 14, 3, 2}};
  for (const Layer &layer : layers) {
    const int64_t pad = layer.window / 2;
    const auto problem =
        tw::ConvProblem(1, layer.channels, layer.filters, {layer.size, layer.size}, {layer.window, layer.window})
            .padding({pad, pad})
            .stride({layer.stride, layer.stride});
    const std::vector<int64_t> out = problem.out();
    Array<float> x = drawn(layer.size * layer.size * layer.channels, 1),
                 w = drawn(layer.filters * layer.window * layer.window * layer.channels, 2),
                 y = blank(out[0] * out[1] * layer.filters);
    const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
    const auto plan = example.plan_and_run(problem, operands);
    const double took = example.microseconds(plan, operands, 5);
    std::printf("  %s: %.0f us, estimated %.0f us\n", layer.name, took, plan.selection().seconds * 1e6);
    example.check("  y", y, tw::reference::conv(problem, operands(on_host)), 1e-4);
  }
}
