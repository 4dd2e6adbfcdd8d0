// Kernels declared in C++: constexpr data that the compiler checks; CMake's tilewright_add_kernels builds them.
#include "../example.hpp"

// What is not said is any; auto_correct() takes the nearest where an arch has no such kernel.
DECL_FMHA_KERNEL_SET(
    plain_attention,
    .add(FmhaSignature().dtype("fp32").hdim(64), FmhaAlgorithm().auto_fill())
        .add(FmhaSignature().dtype("fp32").hdim(64).mask("causal"), FmhaAlgorithm().tile(128, 64).auto_correct())
        .add(FmhaSignature().dtype("fp16").hdim(128).mask("causal").lse(),
             FmhaAlgorithm().tile(128, 128, 32, 128, 32, 128).wave(4, 1, 1).warp(32, 32, 16).pipeline("qr_async"),
             "gfx942"));

// Data, not text: it can be read at compile time.
static_assert(plain_attention.size() == 3, "three declarations");
static_assert(plain_attention[2].algorithm_size == 4, "tile, wave, warp and pipeline");

EXAMPLE(declared_sets) {
  for (const tw::decl::Kernel &kernel : plain_attention) {
    std::string words;
    for (size_t at = 0; at < kernel.signature_size; ++at)
      words += std::string(" ") + kernel.signature[at].name + "=" +
               (kernel.signature[at].word ? kernel.signature[at].word : "...");
    say(kernel.op, " for ", kernel.arch, ":", words);
  }
  // The folder has kernels of the first declaration.
  const auto problem = tw::AttentionProblem(1, 4, 30, 40, 64);
  Heads heads(problem);
  const auto operands = [&](auto at) { return heads.operands(at); };
  example.plan_and_run(problem, operands);
  example.check("o", heads.o, tw::reference::attention(problem, operands(on_host)));
}
