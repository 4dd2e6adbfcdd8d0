// Registries beside each other: one of all kernels, one of some, and a dispatcher of each.
#include "../example.hpp"

EXAMPLE(multi_registry) {
  const tw::Registry &all = example.dispatcher.registry();
  const auto problem = tw::GemmProblem(40, 50, 60).layout("rcr");

  // The part: libraries of single kernels, adopted one by one.  They bring no estimates, so that first fit chooses.
  tw::Registry part;
  for (const tw::KernelKey &key : all.matching(problem))
    if (key.fallback) part.add(key.library);
  say(all.size(), " kernels in one, ", part.size(), " in the other");
  example.expect("the part is smaller", part.size() > 0 && part.size() < all.size());

  Array<float> a = drawn(40 * 60, 1), b = drawn(50 * 60, 2), first = blank(40 * 50), second = blank(40 * 50);
  const auto into = [&](Array<float> &e) {
    return [&](auto at) { return tw::GemmOperands().a(at(a)).b(at(b)).e(at(e)); };
  };
  const tw::Dispatcher few(part);
  example.refused("no-estimate", [&] { few.select(problem); });

  // In the registry's order, the first kernel whose own check takes the operands.
  const auto fitting = few.first_fit(problem, into(first)(on_host));
  say(fitting.selection().kernel.name, ": ", fitting.selection().reason);
  example.run(fitting, into(first));
  example.plan_and_run(problem, into(second));

  const std::vector<double> expected = tw::reference::gemm(problem, into(second)(on_host));
  example.check("by first fit", first, expected);
  example.check("by estimate", second, expected);
}
