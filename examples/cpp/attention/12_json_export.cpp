// The registry as a JSON file: what it has of attention, by what the kernels compute, written and opened again.
#include "../example.hpp"

EXAMPLE(json_export) {
  // A key is what a kernel computes (signature), how (schedule), and for which arch; its digest stands for all of it.
  const tw::Registry &registry = example.dispatcher.registry();
  const auto kernels = registry.filter([](const tw::KernelKey &key) { return key.op == "attention"; });
  for (const tw::KernelKey &key : kernels) say(key.digest.substr(0, 8), " ", key.name);
  example.expect("kernels of attention", !kernels.empty());
  say("computes ", kernels[0].signature, "\nby       ", kernels[0].schedule, "\non       ", kernels[0].arch);

  const std::string path = example.folder + "/registry-from-cpp.json", text = registry.json();
  std::FILE *file = std::fopen(path.c_str(), "wb");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file) std::fclose(file);
  example.expect("the folder can be written to", written);

  // A file like any other; libraries are named by their full paths.
  const tw::Registry again = tw::Registry::open(path);
  std::remove(path.c_str());
  example.expect("as many kernels", again.size() == registry.size() && again.json() == text);
  const auto problem = tw::AttentionProblem(1, 4, 16, 16, 64);
  const tw::Dispatcher dispatcher(again);
  const std::string digest = dispatcher.select(problem).kernel.digest;
  example.expect("the same choice", digest == example.dispatcher.select(problem).kernel.digest);
  example.expect("by its first digits", again.find(digest.substr(0, 10)).digest == digest);

  Heads qkv(problem);
  const auto operands = [&](auto at) { return qkv.operands(at); };
  example.run(dispatcher.plan(problem), operands);
  example.check("o", qkv.o, tw::reference::attention(problem, operands(on_host)));
}
