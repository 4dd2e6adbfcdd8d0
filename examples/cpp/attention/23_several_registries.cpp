// Registries for different purposes beside each other: one that is strict, one with a fallback only.
#include "../example.hpp"

EXAMPLE(several_registries) {
  const tw::Registry &all = example.dispatcher.registry();
  const auto problem = tw::AttentionProblem(1, 4, 30, 40, 64);
  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  const std::vector<double> expected = tw::reference::attention(problem, operands(on_host));

  // Strict: a kernel made for the problem, or an error.
  tw::SelectOptions options;
  options.strict = true;
  const tw::Dispatcher strict(all, options);
  std::printf("strict: %s\n", strict.select(problem).kernel.name.c_str());
  example.expect("a kernel made for it", strict.select(problem).tier == "heuristic");

  // Only the plain loops: slow, short, easy to trust.
  tw::Registry plain;
  for (const tw::KernelKey &key : all.matching(problem))
    if (key.fallback) plain.add(key.library);
  const tw::Dispatcher trusted(plain);
  const auto loops = trusted.first_fit(problem, operands(on_host));
  std::printf("trusted: %s\n", loops.selection().kernel.name.c_str());
  example.run(loops, operands);
  example.check("by plain loops", heads.o, expected);
  std::fill(heads.o.host.begin(), heads.o.host.end(), std::nanf(""));
  example.run(strict.plan(problem), operands);
  example.check("by the chosen kernel", heads.o, expected);
}
