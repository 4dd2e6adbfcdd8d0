// Layers of a network, each with the kernel that selection takes, and how far its estimate is from the clock.
#include "../example.hpp"

struct Layer {
  const char *name;
  int64_t channels, filters, size, window, stride, groups;
};

EXAMPLE(many_tiles) {
  const Layer layers[] = {{"first", 8, 32, 28, 3, 1, 1},
                          {"pointwise", 32, 64, 14, 1, 1, 1},
                          {"strided", 32, 32, 14, 3, 2, 1},
                          {"grouped", 32, 32, 14, 3, 1, 4},
                          {"depthwise", 32, 32, 14, 3, 1, 32}};
  for (const Layer &layer : layers) {
    const int64_t pad = layer.window / 2;  // as many pixels out as in, divided by the stride
    const auto problem =
        tw::ConvProblem(1, layer.channels, layer.filters, {layer.size, layer.size}, {layer.window, layer.window})
            .padding({pad, pad})
            .stride({layer.stride, layer.stride})
            .groups(layer.groups);
    const std::vector<int64_t> out = problem.out();
    // A filter sees the channels of its group only.
    Array<float> x = drawn(layer.size * layer.size * layer.channels, 1),
                 w = drawn(layer.filters * layer.window * layer.window * problem.group_channels(), 2),
                 y = blank(out[0] * out[1] * layer.filters);
    const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };

    const auto plan = example.plan_and_run(problem, operands);
    example.check("  y", y, tw::reference::conv(problem, operands(on_host)), 1e-4);
    const double took = example.microseconds(plan, operands, 5), estimate = plan.selection().seconds * 1e6;
    say("  ", layer.name, ": ", problem.flops() / 1e6, " MFLOP, took ", took, " us, estimated ", estimate, " us");
  }
  example.expect("a plan a layer", example.dispatcher.kept_plans() == int64_t(std::size(layers)));
}
