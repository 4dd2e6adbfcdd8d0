// Heads before rows (bhsd), padded sequences with lengths, and results into a slice of a larger array.
#include "../example.hpp"

EXAMPLE(layouts) {
  const int64_t batch = 2, heads = 4, rows = 20, keys = 30, size = 64;
  {
    // (batch, head, row, element): strides of sequence, row and head.
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, size)
                             .q_strides({heads * rows * size, size, rows * size})
                             .k_strides({heads * keys * size, size, keys * size})
                             .v_strides({heads * keys * size, size, keys * size});
    Heads qkv(problem);  // as many numbers, in another order
    const auto operands = [&](auto at) { return qkv.operands(at); };
    example.plan_and_run(problem, operands);
    example.check("heads before rows", qkv.o, tw::reference::attention(problem, operands(on_host)));
  }
  {
    // Sequences of 20 and 7 rows over 30 and 11 keys; what lies behind them is not read.
    const auto problem = tw::AttentionProblem(batch, heads, rows, keys, size).seqlens_q().seqlens_k();
    Heads qkv(problem);
    Array<int32_t> lengths_q = table({20, 7}), lengths_k = table({30, 11});
    for (size_t i = size_t((keys + 11) * heads * size); i < qkv.k.size(); ++i) qkv.k.host[i] = std::nanf("");
    std::fill(qkv.o.host.begin(), qkv.o.host.end(), 0.0f);  // rows behind the last are not written
    const auto operands = [&](auto at) { return qkv.operands(at).seqlens_q(at(lengths_q)).seqlens_k(at(lengths_k)); };
    example.plan_and_run(problem, operands);
    example.check("padded sequences", qkv.o, tw::reference::attention(problem, operands(on_host)));
  }
  // Results that overlap are refused: both sequences would be written to the same place.
  const auto problem = tw::AttentionProblem(batch, heads, rows, keys, size);
  example.refused("stride-overlap", [&] { tw::AttentionProblem(problem).o_strides({0, heads * size, size}).check(); });
}
