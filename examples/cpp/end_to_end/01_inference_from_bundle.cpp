// A vision transformer's first layer from a bundle: patches by convolution, attention over them, an MLP.  Where it runs
// there is neither Python nor a compiler; the bundle was made elsewhere, of the problems that this program has:
//   tilewright bundle build --problems examples/cpp/end_to_end/problems.json --targets x86_64_v3 -o model.twb
//   end_to_end_01_inference_from_bundle model.twb
#include "../example.hpp"

static constexpr int64_t kTokens = 64, kWidth = 64, kHidden = 128;

// y = x w' with what is fused behind it, checked beside float64; weights are drawn in place of a trained model's.
static Array<float> linear(Example &example, const char *what, Array<float> &x, int64_t in, int64_t out, uint64_t seed,
                           Array<float> *bias, Array<float> *residual) {
  Array<float> w = drawn(out * in, seed), y = blank(kTokens * out);
  for (float &weight : w.host) weight *= 0.1f;
  auto problem = tw::GemmProblem(kTokens, out, in).layout("rcr");
  if (bias) problem.epilogue(tw::Epilogue::gelu, 1);
  if (residual) problem.epilogue(tw::Epilogue::add, 1);
  const auto operands = [&](auto at) {
    tw::GemmOperands o;
    o.a(at(x)).b(at(w)).e(at(y));
    if (bias) o.bias(at(*bias));
    if (residual) o.residual(at(*residual));
    return o;
  };
  example.plan_and_run(problem, operands);
  example.check(what, y, tw::reference::gemm(problem, operands(on_host)));
  return y;
}

EXAMPLE(inference) {
  const bool bundled = example.folder.size() > 4 && example.folder.compare(example.folder.size() - 4, 4, ".twb") == 0;
  if (bundled) say(tw::check_bundle(example.folder), " files are as they were built");
  // Patches of 4x4 pixels become tokens: rows of an image in NHWC are the rows of a matrix.
  Array<float> image = drawn(32 * 32 * 3, 1), filters = drawn(kWidth * 4 * 4 * 3, 2), x = blank(kTokens * kWidth);
  const auto patches = tw::ConvProblem(1, 3, kWidth, {32, 32}, {4, 4}).stride({4, 4});
  const auto pixels = [&](auto at) { return tw::ConvOperands().x(at(image)).w(at(filters)).y(at(x)); };
  example.plan_and_run(patches, pixels);
  example.check("patches", x, tw::reference::conv(patches, pixels(on_host)));

  Array<float> q = linear(example, "q", x, kWidth, kWidth, 3, nullptr, nullptr),
               k = linear(example, "k", x, kWidth, kWidth, 4, nullptr, nullptr),
               v = linear(example, "v", x, kWidth, kWidth, 5, nullptr, nullptr), o = blank(kTokens * kWidth);
  const auto attention = tw::AttentionProblem(1, 4, kTokens, kTokens, kWidth / 4);
  const auto heads = [&](auto at) { return tw::AttentionOperands().q(at(q)).k(at(k)).v(at(v)).o(at(o)); };
  example.plan_and_run(attention, heads);
  example.check("attention", o, tw::reference::attention(attention, heads(on_host)));

  Array<float> bias = drawn(kHidden, 6), mixed = linear(example, "out", o, kWidth, kWidth, 7, nullptr, &x);
  Array<float> hidden = linear(example, "mlp up", mixed, kWidth, kHidden, 8, &bias, nullptr);
  Array<float> y = linear(example, "mlp down", hidden, kHidden, kWidth, 9, nullptr, &mixed);

  // What the bundle covers has kernels of its own: `strict` refuses fallback kernels.
  tw::SelectOptions strict;
  strict.strict = true;
  const tw::Dispatcher dispatcher(example.dispatcher.registry(), strict);
  example.expect("a kernel made for the patches", dispatcher.select(patches).tier != "fallback");
  if (example.has_kernels(attention)) dispatcher.select(attention);
  else example.refused("no-kernel", [&] { dispatcher.select(attention); });  // of fp32 on NVIDIA GPUs
  // A problem that the bundle has no kernels for is refused.
  const auto of_bf16 = tw::GemmProblem(kTokens, kWidth, kWidth).layout("rcr").dtype(tw::Dtype::bf16);
  example.refused("no-kernel", [&] { dispatcher.plan(of_bf16); });
}
