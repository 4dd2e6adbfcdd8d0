// A registry as JSON and back: the same JSON that Python's Registry.to_json() writes and reads.
#include "../example.hpp"

EXAMPLE(json_export) {
  const tw::Registry &registry = example.dispatcher.registry();
  const std::string text = registry.json();
  say(registry.size(), " kernels of ", registry.target(), ", ", text.size(), " bytes of JSON");

  tw::Registry again;
  again.add_json(text);
  example.expect("the same JSON again", again.json() == text && again.size() == registry.size());

  // Listed, filtered, found by digest (or the first digits of it).
  const auto gemms = again.filter([](const tw::KernelKey &key) { return key.op == "gemm" && !key.fallback; });
  example.expect("kernels of GEMM", !gemms.empty());
  for (const tw::KernelKey &key : gemms) say(key.digest.substr(0, 8), "  ", key.name);
  example.expect("found by eight digits", again.find(gemms[0].digest.substr(0, 8)).digest == gemms[0].digest);

  // What was read chooses and runs as the first did.
  const auto problem = tw::GemmProblem(50, 60, 70).layout("rcr");
  const tw::Dispatcher from_text(again);
  example.expect("the same choice",
                 from_text.select(problem).kernel.digest == example.dispatcher.select(problem).kernel.digest);
  Array<float> a = drawn(50 * 70, 1), b = drawn(60 * 70, 2), e = blank(50 * 60);
  const auto operands = [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };
  example.run(from_text.plan(problem), operands);
  example.check("e", e, tw::reference::gemm(problem, operands(on_host)));

  example.refused("json", [&] { tw::Registry().add_json(text.substr(0, text.size() / 2)); });
}
