// Batch prefill: packed rows over keys in pages that page indices find (indptr, indices, last page lengths).
#include "../example.hpp"

EXAMPLE(batch_prefill) {
  const int64_t heads = 4, heads_kv = 2, size = 64, page = 16, pages = 8, total = 30;
  const auto problem = tw::AttentionProblem(2, heads, 20, 48, size)
                           .heads_kv(heads_kv)
                           .varlen(total, 0)
                           .pages(page, pages, /*indices=*/true);
  Array<float> q = drawn(total * heads * size, 1), k = drawn(pages * page * heads_kv * size, 2),
               v = drawn(pages * page * heads_kv * size, 3), o = blank(total * heads * size);
  // 20 rows over pages 5, 1 and 6 (37 keys), 10 rows over pages 0 and 3 (26 keys).
  Array<int32_t> rows = table({0, 20, 30}), indptr = table({0, 3, 5}), indices = table({5, 1, 6, 0, 3}),
                 last = table({5, 10});
  const auto operands = [&](auto at) {
    return tw::AttentionOperands()
        .q(at(q))
        .k(at(k))
        .v(at(v))
        .o(at(o))
        .cu_seqlens_q(at(rows))
        .block_table(at(indices), 5)
        .page_indptr(at(indptr))
        .page_last(at(last));
  };
  example.plan_and_run(problem, operands);
  example.check("o", o, tw::reference::attention(problem, operands(on_host)));

  // An operand that is missing has a name.
  example.refused("operand-missing", [&] { problem.args(operands(on_host).page_last(nullptr)); });
}
