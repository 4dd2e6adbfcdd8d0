// y = gelu(x w' + bias): describe the problem, see which kernel was chosen and why, run it, check it.
//   01_gemm FOLDER        (FOLDER: what export_kernels.py wrote)
#include <tilewright/reference.hpp>

#include <cstdio>
#include <vector>

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: 01_gemm FOLDER"), 2;
  try {
    const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
    const int64_t m = 100, n = 70, k = 55;
    std::vector<float> x(m * k), w(n * k), bias(n), y(m * n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 13) / 13 - 0.5f;
    for (size_t i = 0; i < w.size(); ++i) w[i] = float(i % 7) / 7 - 0.5f;
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = float(i % 3);

    // Layout: A by rows, B by columns (w is stored as out x in), the result by rows.  One D tensor: the bias.
    tw::GemmProblem problem(m, n, k);
    problem.layout("rcr").epilogue(tw::Epilogue::gelu, 1);
    const auto plan = dispatcher.plan(problem);
    std::printf("%s\n%s: %s\n", plan.selection().kernel.name.c_str(), plan.selection().tier.c_str(),
                plan.selection().reason.c_str());

    const tw::Team team;  // a thread a core
    tw::GemmOperands operands;
    operands.a(x.data()).b(w.data()).bias(bias.data()).e(y.data());
    plan.run(operands, team);

    const double error = tw::reference::error(y.data(), tw::Dtype::fp32, tw::reference::gemm(problem, operands));
    std::printf("largest error beside float64: %.1e\n", error);
    return error < 1e-5 ? 0 : 1;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
