// Operands of fp8 with scales: one number a head of q, one for each 16 rows of k and v.
#include "../example.hpp"

// The nearest numbers of fp8, and what they were divided by: the largest of each group becomes the largest of fp8.
static Array<uint8_t> quantised(const Array<float> &numbers, Array<float> &scales, const std::vector<size_t> &group) {
  constexpr float kLargest = 448;
  std::fill(scales.host.begin(), scales.host.end(), 0.0f);
  for (size_t i = 0; i < numbers.size(); ++i)
    scales.host[group[i]] = std::max(scales.host[group[i]], std::fabs(numbers.host[i]) / kLargest);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double wanted = double(numbers.host[i]) / double(scales.host[group[i]]);
    int best = 0;
    for (int bits = 0; bits < 256; ++bits) {
      const double value = tw::reference::fp8(tw::Dtype::fp8_e4m3, bits);
      if (std::fabs(value - wanted) < std::fabs(tw::reference::fp8(tw::Dtype::fp8_e4m3, best) - wanted)) best = bits;
    }
    bytes.push_back(uint8_t(best));
  }
  return Array<uint8_t>(std::move(bytes));
}

EXAMPLE(fp8_scales) {
  const int64_t batch = 2, heads = 4, rows = 24, head = 64, block = 16, blocks = (rows + block - 1) / block;
  const int64_t count = batch * rows * heads * head;
  std::vector<size_t> by_head, by_block;
  for (int64_t i = 0; i < count; ++i) {  // (batch, row, head, element)
    const int64_t h = i / head % heads, row = i / (head * heads) % rows, b = i / (head * heads * rows);
    by_head.push_back(size_t(h)), by_block.push_back(size_t((b * heads + h) * blocks + row / block));
  }
  const Array<float> q = drawn(count, 1), k = drawn(count, 2), v = drawn(count, 3);
  Array<float> of_q = blank(heads), of_k = blank(batch * heads * blocks), of_v = blank(batch * heads * blocks);
  Array<uint8_t> q8 = quantised(q, of_q, by_head), k8 = quantised(k, of_k, by_block), v8 = quantised(v, of_v, by_block);

  Array<float> o = blank(count);
  const auto problem = tw::AttentionProblem(batch, heads, rows, rows, head)
                           .dtype(tw::Dtype::fp8_e4m3)
                           .dtype_out(tw::Dtype::fp32)
                           .q_scale(tw::Scales::head)
                           .kv_scales(tw::Scales::block)
                           .scale_block(block);
  const auto operands = [&](auto at) {
    return tw::AttentionOperands().q(at(q8)).k(at(k8)).v(at(v8)).o(at(o)).q_scale(at(of_q)).kv_scales(at(of_k),
                                                                                                      at(of_v));
  };
  example.plan_and_run(problem, operands);
  // Beside the numbers that fp8 holds; kernels of GPUs may hold weights of the softmax in fp8 too.
  example.check("o", o, tw::reference::attention(problem, operands(on_host)), 2e-2);
}
