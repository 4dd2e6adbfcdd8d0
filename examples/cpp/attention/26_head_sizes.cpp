// Heads of 16 to 128 elements, and values of another size: kernels are compiled for classes of sizes.
#include "../example.hpp"

EXAMPLE(head_sizes) {
  // Heads of 33 to 64 elements are of the class 64, those of 97 to 128 of 128: a kernel takes all sizes of its class.
  struct Size {
    int64_t of_keys, of_values;
    const char *what;
  };
  const Size sizes[] = {{64, 64, "a whole class"},   {50, 50, "odd"},
                        {64, 40, "shorter values"},  {128, 128, "the next class but one"},
                        {100, 128, "longer values"}, {16, 16, "short"}};
  size_t kernels = 0;
  for (const Size &size : sizes) {
    const auto problem = tw::AttentionProblem(1, 2, 20, 30, size.of_keys).head_dim_v(size.of_values);
    Heads qkv(problem);  // o has the size of the values
    const auto operands = [&](auto at) { return qkv.operands(at); };
    const auto plan = example.dispatcher.plan(problem);
    example.run(plan, operands);
    say("heads of ", size.of_keys, " and ", size.of_values, " elements, ", size.what, ": ",
        plan.selection().kernel.name);
    kernels += example.dispatcher.registry().matching(problem).size();
    example.check("  o", qkv.o, tw::reference::attention(problem, operands(on_host)));
  }

  example.expect("kernels of every class", kernels >= std::size(sizes));

  // A class that no kernel was exported for is an error that names the nearest one; heads over 576 have no kernels.
  example.refused("no-kernel", [&] { example.dispatcher.plan(tw::AttentionProblem(1, 2, 20, 30, 192)); });
  example.refused("head-size", [&] { tw::AttentionProblem(1, 2, 20, 30, 600).check(); });
}
