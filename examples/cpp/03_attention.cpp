// Causal attention with fewer heads of keys than of queries (GQA), checked beside float64.
//   03_attention FOLDER   (FOLDER: what export_kernels.py wrote)
#include <tilewright/reference.hpp>

#include <cstdio>
#include <vector>

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: 03_attention FOLDER"), 2;
  try {
    const tw::Dispatcher dispatcher(tw::Registry::open(arguments[1]));
    const int64_t batch = 2, heads = 4, heads_kv = 2, rows = 50, keys = 60, size = 64;
    std::vector<float> q(batch * rows * heads * size), k(batch * keys * heads_kv * size), v(k.size()), o(q.size());
    for (size_t i = 0; i < q.size(); ++i) q[i] = float(i % 13) / 13 - 0.5f;
    for (size_t i = 0; i < k.size(); ++i) k[i] = float(i % 7) / 7 - 0.5f, v[i] = float(i % 11) / 11 - 0.5f;

    // Memory is (batch, row, head, element).  Bottom-right: the last row sees all keys, as where a cache holds the first.
    tw::AttentionProblem problem(batch, heads, rows, keys, size);
    problem.heads_kv(heads_kv).causal(/*bottom_right=*/true);
    const auto plan = dispatcher.plan(problem);
    std::printf("%s\n%s: %s\n", plan.selection().kernel.name.c_str(), plan.selection().tier.c_str(),
                plan.selection().reason.c_str());
    const tw::Team team;
    tw::AttentionOperands operands;
    operands.q(q.data()).k(k.data()).v(v.data()).o(o.data());
    plan.run(operands, team);

    const double error = tw::reference::error(o.data(), tw::Dtype::fp32, tw::reference::attention(problem, operands));
    std::printf("largest error beside float64: %.1e\n", error);

    // What cannot be done says why, and what would work.
    try {
      dispatcher.plan(tw::AttentionProblem(batch, heads, rows, keys, size).heads_kv(3));
    } catch (const tw::Error &refused) { std::printf("refused, as it should be: %s\n", refused.what()); }
    return error < 1e-5 ? 0 : 1;
  } catch (const tw::Error &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
}
