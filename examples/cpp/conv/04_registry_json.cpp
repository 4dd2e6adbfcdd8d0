// The kernels of convolution in a registry: by direction, as JSON, and read again.
#include "../example.hpp"

EXAMPLE(registry_json) {
  const tw::Registry &registry = example.dispatcher.registry();
  for (const char *direction : {"forward", "backward_data", "backward_weight"}) {
    const std::string wanted = std::string("\"variant\":\"") + direction + "\"";
    const auto kernels = registry.filter(
        [&](const tw::KernelKey &key) { return key.op == "conv" && key.signature.find(wanted) != std::string::npos; });
    std::printf("%s: %zu kernels\n", direction, kernels.size());
    for (const tw::KernelKey &key : kernels)
      std::printf("  %.8s %s%s\n", key.digest.c_str(), key.name.c_str(), key.fallback ? " (fallback)" : "");
    example.expect("kernels of each direction", !kernels.empty());
  }
  tw::Registry again;
  again.add_json(registry.json());
  const auto problem = tw::ConvProblem(1, 8, 16, {10, 10}, {3, 3});
  const tw::Dispatcher other(again);
  example.expect("the same choice",
                 other.select(problem).kernel.digest == example.dispatcher.select(problem).kernel.digest);
  Array<float> x = drawn(10 * 10 * 8, 1), w = drawn(16 * 9 * 8, 2), y = blank(8 * 8 * 16);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
  example.run(other.plan(problem), operands);
  example.check("y", y, tw::reference::conv(problem, operands(on_host)));
}
