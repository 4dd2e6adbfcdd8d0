// Decoding over a cache in pages: a block table lists the pages of each sequence.
#include "../example.hpp"

EXAMPLE(paged_cache) {
  const int64_t batch = 2, heads = 4, heads_kv = 2, size = 64, page = 16, pages = 10;
  const auto problem =
      tw::AttentionProblem(batch, heads, 1, 64, size).heads_kv(heads_kv).seqlens_k().pages(page, pages);
  Array<float> q = drawn(batch * heads * size, 1), k = drawn(pages * page * heads_kv * size, 2),
               v = drawn(pages * page * heads_kv * size, 3), o = blank(batch * heads * size);
  // Four entries a sequence; those behind its last key are not read.
  Array<int32_t> blocks = table({7, 2, 9, 0, 1, 8, 0, 0}), lengths = table({41, 20});
  const auto operands = [&](auto at) {
    return tw::AttentionOperands()
        .q(at(q))
        .k(at(k))
        .v(at(v))
        .o(at(o))
        .block_table(at(blocks), 4)
        .seqlens_k(at(lengths));
  };
  const auto plan = example.plan_and_run(problem, operands);
  example.check("o", o, tw::reference::attention(problem, operands(on_host)));

  // The cache grew: the same plan, another table.
  lengths.host = {42, 33}, blocks.host[6] = 3;
  example.run(plan, operands);
  example.check("a step later", o, tw::reference::attention(problem, operands(on_host)));

  // On the CPU a page that is none is an error before anything is read.
  if (example.device) return;
  blocks.host[0] = 99;
  example.refused("operand-values", [&] { example.run(plan, operands); });
}
