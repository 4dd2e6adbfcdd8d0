// Registries for different purposes beside each other: one that is strict, one of plain loops only.
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
  const bool served = example.has_kernels(problem);  // in fp32 not on NVIDIA GPUs
  if (served) say("strict: ", strict.select(problem).kernel.name, " (", strict.select(problem).tier, ")");
  else example.refused("no-kernel", [&] { strict.select(problem); });

  // Only the plain loops: slow, short, easy to trust.
  tw::Registry plain;
  for (const tw::KernelKey &key : all.matching(problem))
    if (key.field("pipeline") == "loops") plain.add(key.library);
  const tw::Dispatcher trusted(plain);
  const auto loops = trusted.first_fit(problem, operands(on_host));
  say("trusted: ", loops.selection().kernel.name, " (", loops.selection().tier, ")");
  example.run(loops, operands);
  example.check("by plain loops", heads.o, expected);
  make_blank(heads.o);
  example.run((served ? strict : example.dispatcher).plan(problem), operands);
  example.check("by the chosen kernel", heads.o, expected);
}
