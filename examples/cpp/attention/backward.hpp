// What the examples of backward passes share.
#pragma once
#include "../example.hpp"

// out and lse of the forward pass, from the reference; then gradients of dout.
struct Backward {
  Array<float> q, k, v, out, lse, dout, dq, dk, dv;

  Backward(const tw::AttentionProblem &p, const std::function<void(tw::AttentionOperands &)> &more = {})
      : q(drawn(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim(), 1)),
        k(drawn(p.batch() * p.seqlen_k() * p.heads_kv() * p.head_dim(), 2)),
        v(drawn(p.batch() * p.seqlen_k() * p.heads_kv() * p.head_dim_v(), 3)),
        out(blank(p.batch() * p.seqlen_q() * p.heads_q() * p.head_dim_v())),
        lse(blank(p.batch() * p.seqlen_q() * p.heads_q())),
        dout(drawn(int64_t(out.size()), 4)),
        dq(blank(int64_t(q.size()))),
        dk(blank(int64_t(k.size()))),
        dv(blank(int64_t(v.size()))) {
    tw::AttentionOperands operands = tw::AttentionOperands().q(q.data()).k(k.data()).v(v.data()).o(out.data());
    if (more) more(operands);
    std::vector<double> accum;
    const std::vector<double> exact = tw::reference::attention(p, operands, &accum);
    for (size_t i = 0; i < exact.size(); ++i) out.host[i] = float(exact[i]);
    for (size_t i = 0; i < accum.size(); ++i) lse.host[i] = float(accum[i]);
  }
  template <class At> tw::AttentionBackwardOperands operands(At at) {
    return tw::AttentionBackwardOperands()
        .q(at(q))
        .k(at(k))
        .v(at(v))
        .out(at(out))
        .lse(at(lse))
        .dout(at(dout))
        .dq(at(dq))
        .dk(at(dk))
        .dv(at(dv));
  }
  void check(Example &example, const tw::reference::Gradients &expected) {
    example.check("dq", dq, expected.dq);
    example.check("dk", dk, expected.dk);
    example.check("dv", dv, expected.dv);
  }
};
