// New keys and values go behind those of a paged cache, under rotary embedding; then the new queries attend to all.
#include "../example.hpp"

EXAMPLE(append_kv) {
  const int64_t batch = 2, heads = 4, head = 64, rows = 3, page = 16, pages = 8;
  Array<float> k = drawn(batch * rows * heads * head, 1), v = drawn(batch * rows * heads * head, 2),
               q = drawn(batch * rows * heads * head, 3), rotated = blank(batch * rows * heads * head);
  Array<float> cache_k = drawn(pages * page * heads * head, 4), cache_v = drawn(pages * page * heads * head, 5);
  Array<int32_t> lengths = table({20, 37}), blocks = table({3, 1, 7, 2, 6, 0}), longer = table({23, 40});
  // Pair i of the key at place p is rotated by p / 10000^(2 i / head).
  Array<float> cosines = blank(48 * head / 2), sines = blank(48 * head / 2);
  for (int64_t at = 0; at < 48 * head / 2; ++at) {
    const double angle = double(at / (head / 2)) * std::pow(10000.0, -2.0 * double(at % (head / 2)) / double(head));
    cosines.host[size_t(at)] = float(std::cos(angle)), sines.host[size_t(at)] = float(std::sin(angle));
  }

  const auto append =
      tw::AttentionAppendProblem(batch, heads, rows, 48, head).pages(page, pages).rotary(tw::Rotary::half).rotary_q();
  const auto fresh = [&](auto at) {
    return tw::AttentionAppendOperands()
        .k(at(k))
        .v(at(v))
        .q(at(q), at(rotated))
        .cache_k(at(cache_k))
        .cache_v(at(cache_v))
        .cache_seqlens(at(lengths))
        .block_table(at(blocks))
        .rotary(at(cosines), at(sines));
  };
  example.plan_and_run(append, fresh);
  const auto expected = tw::reference::append(append, fresh(on_host)),
             held = tw::reference::appended(append, fresh(on_host));
  double most = 0;
  for (size_t i = 0; i < expected.k.size(); ++i) most = std::fmax(most, std::fabs(expected.k[i] - held.k[i]));
  for (size_t i = 0; i < expected.v.size(); ++i) most = std::fmax(most, std::fabs(expected.v[i] - held.v[i]));
  example.expect("the cache holds the new rows", most < 1e-5 && expected.k.size() == held.k.size());
  example.check("q under rotary embedding", rotated, expected.q);

  Array<float> o = blank(batch * rows * heads * head);
  const auto attend = tw::AttentionProblem(batch, heads, rows, 48, head).seqlens_k().pages(page, pages).causal(true);
  const auto all = [&](auto at) {
    return tw::AttentionOperands()
        .q(at(rotated))
        .k(at(cache_k))
        .v(at(cache_v))
        .o(at(o))
        .seqlens_k(at(longer))
        .block_table(at(blocks));
  };
  example.plan_and_run(attend, all);
  example.check("attention over the cache", o, tw::reference::attention(attend, all(on_host)));
}
