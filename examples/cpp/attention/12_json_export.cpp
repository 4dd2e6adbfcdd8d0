// The registry as JSON: what it has of attention, by what the kernels compute.
#include "../example.hpp"

EXAMPLE(json_export) {
  const tw::Registry &registry = example.dispatcher.registry();
  const auto kernels = registry.filter([](const tw::KernelKey &key) { return key.op == "attention"; });
  for (const tw::KernelKey &key : kernels) std::printf("%.8s %s\n", key.digest.c_str(), key.name.c_str());
  const std::string path = example.folder + "/registry-from-cpp.json";
  const std::string text = registry.json();
  if (std::FILE *file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  } else {
    example.expect("the folder can be written to", false);
  }
  // A file like any other; libraries are named by their full paths.
  const tw::Registry again = tw::Registry::open(path);
  std::remove(path.c_str());
  example.expect("as many kernels", again.size() == registry.size() && again.json() == text);
  const auto problem = tw::AttentionProblem(1, 4, 16, 16, 64);
  const tw::Dispatcher dispatcher(again);
  example.expect("the same choice",
                 dispatcher.select(problem).kernel.digest == example.dispatcher.select(problem).kernel.digest);
  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  example.run(dispatcher.plan(problem), operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));
}
