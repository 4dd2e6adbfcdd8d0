// relu(conv(image, filters) + bias) of images in NHWC: forward convolution, checked beside float64.
//   02_conv FOLDER        (FOLDER: what export_kernels.py wrote)
#include <tilewright/reference.hpp>

#include <cstdio>
#include <vector>

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: 02_conv FOLDER"), 2;
  try {
    const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
    const int64_t batch = 2, channels = 16, filters = 24;
    tw::ConvProblem problem(batch, channels, filters, {19, 20}, {3, 3});
    problem.padding({1, 1}).stride({2, 1}).epilogue(tw::Epilogue::relu, 1);
    const std::vector<int64_t> out = problem.out();
    std::vector<float> x(batch * 19 * 20 * channels), w(filters * 3 * 3 * channels), bias(filters),
        y(batch * out[0] * out[1] * filters);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 13) / 13 - 0.5f;
    for (size_t i = 0; i < w.size(); ++i) w[i] = float(i % 7) / 7 - 0.5f;
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = float(i % 3) - 1;

    const auto plan = dispatcher.plan(problem);
    std::printf("%s\n%s: %s\n", plan.selection().kernel.name.c_str(), plan.selection().tier.c_str(),
                plan.selection().reason.c_str());
    const tw::Team team;
    tw::ConvOperands operands;
    operands.x(x.data()).w(w.data()).bias(bias.data()).y(y.data());
    plan.run(operands, team);

    const double error = tw::reference::error(y.data(), tw::Dtype::fp32, tw::reference::conv(problem, operands));
    std::printf("%lld x %lld pixels, largest error beside float64: %.1e\n", static_cast<long long>(out[0]),
                static_cast<long long>(out[1]), error);
    return error < 1e-5 ? 0 : 1;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
