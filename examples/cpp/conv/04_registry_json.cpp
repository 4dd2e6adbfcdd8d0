// The kernels of convolution in a registry: listed by direction, as JSON, and read again.
#include "../example.hpp"

EXAMPLE(registry_json) {
  const tw::Registry &registry = example.dispatcher.registry();
  for (const char *direction : {"forward", "backward_data", "backward_weight"}) {
    const auto kernels = registry.filter([&](const tw::KernelKey &key) {
      return key.op == "conv" && key.field("variant") == direction;  // of its signature or schedule, by name
    });
    say(direction, ": ", kernels.size(), " kernels");
    for (const tw::KernelKey &key : kernels)
      say("  ", key.digest.substr(0, 8), " ", key.name, key.fallback ? " (fallback)" : "");
    example.expect("kernels of each direction", !kernels.empty());
    if (!kernels.empty()) say("  of the first: pipeline ", kernels[0].field("pipeline"), " of ", kernels[0].schedule);
  }

  // As JSON, and back: the same text as Python's Registry.to_json(), with the paths of the libraries.
  const std::string text = registry.json();
  tw::Registry again;
  again.add_json(text);
  say(text.size(), " bytes of JSON for ", registry.size(), " kernels");
  example.expect("the same registry again", again.json() == text && again.size() == registry.size());

  // It selects and runs as the first does.
  const auto problem = tw::ConvProblem(1, 8, 16, {10, 10}, {3, 3});
  const tw::Dispatcher other(again);
  example.expect("the same choice",
                 other.select(problem).kernel.digest == example.dispatcher.select(problem).kernel.digest);
  Array<float> x = drawn(10 * 10 * 8, 1), w = drawn(16 * 9 * 8, 2), y = blank(8 * 8 * 16);
  const auto operands = [&](auto at) { return tw::ConvOperands().x(at(x)).w(at(w)).y(at(y)); };
  example.run(other.plan(problem), operands);
  example.check("y", y, tw::reference::conv(problem, operands(on_host)));
}
