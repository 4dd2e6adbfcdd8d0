// gelu(x w' + bias) in one kernel, C with alpha and beta, and a batch: what GEMM has beyond a product.
#include "../example.hpp"

EXAMPLE(fused) {
  const int64_t m = 90, n = 70, k = 55, batch = 3;
  Array<float> x = drawn(m * k, 1), w = drawn(n * k, 2), bias = drawn(n, 3), y = blank(m * n);
  {
    const auto problem = tw::GemmProblem(m, n, k).layout("rcr").epilogue(tw::Epilogue::gelu, 1);
    const auto operands = [&](auto at) { return tw::GemmOperands().a(at(x)).b(at(w)).bias(at(bias)).e(at(y)); };
    example.plan_and_run(problem, operands);
    example.check("gelu(x w' + bias)", y, tw::reference::gemm(problem, operands(on_host)));
  }
  {
    Array<float> c = drawn(m * n, 4), e = blank(m * n);
    const auto problem = tw::GemmProblem(m, n, k).layout("rcr").with_c();
    const auto operands = [&](auto at) {
      return tw::GemmOperands().a(at(x)).b(at(w)).c(at(c)).e(at(e)).alpha(0.5).beta(-2);
    };
    example.plan_and_run(problem, operands);
    example.check("0.5 x w' - 2 c", e, tw::reference::gemm(problem, operands(on_host)));
  }
  {
    // One w for the whole batch.
    Array<float> xs = drawn(batch * m * k, 5), ys = blank(batch * m * n);
    const auto problem = tw::GemmProblem(m, n, k).layout("rcr").batch(batch).broadcast_b();
    const auto operands = [&](auto at) { return tw::GemmOperands().a(at(xs)).b(at(w)).e(at(ys)); };
    example.plan_and_run(problem, operands);
    example.check("a batch of 3", ys, tw::reference::gemm(problem, operands(on_host)));
  }
}
