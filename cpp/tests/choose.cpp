// Chooses for problems that come as lines of name=value through the typed builders, and answers a line each: digest, tier
// and estimate (of several stages their digests with a + between), or the rule of the error.  Arguments: a registry's JSON,
// threads, bytes of the L2; or `check` alone, where problems are only held to the rules, and "fine" is the answer.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "check.hpp"

namespace {

using Fields = std::map<std::string, std::string>;

int64_t number(const Fields &fields, const char *name) { return std::strtoll(fields.at(name).c_str(), nullptr, 10); }

std::vector<int64_t> numbers(const Fields &fields, const char *name) {
  std::istringstream text(fields.at(name));
  std::vector<int64_t> found;
  for (std::string one; std::getline(text, one, ',');) found.push_back(std::strtoll(one.c_str(), nullptr, 10));
  return found;
}

template <class Enum> Enum named(const Fields &fields, const char *name, int last) {
  for (int i = 0; i <= last; ++i)
    if (fields.at(name) == tw::name_of(Enum(i))) return Enum(i);
  throw std::runtime_error("unknown " + fields.at(name));
}
tw::Dtype type(const Fields &f, const char *name) { return named<tw::Dtype>(f, name, int(tw::Dtype::int32)); }
tw::Epilogue epilogue(const Fields &f) {
  return named<tw::Epilogue>(f, "epilogue", int(tw::Epilogue::fastgelu_and_mul));
}

tw::GemmProblem gemm(const Fields &f) {
  const std::string &odd = f.at("unaligned");  // letters; with none and `aligned` off, any operand may be
  const auto aligned = [&](char letter) {
    return number(f, "aligned") || (!odd.empty() && odd.find(letter) == std::string::npos);
  };
  return tw::GemmProblem(number(f, "m"), number(f, "n"), number(f, "k"))
      .dtype_a(type(f, "dtype_a"))
      .dtype_b(type(f, "dtype_b"))
      .dtype_c(type(f, "dtype_c"))
      .dtype_d(type(f, "dtype_d"))
      .layout(f.at("layout"))
      .batch(number(f, "batch"))
      .epilogue(epilogue(f), number(f, "num_d"))
      .with_c(number(f, "beta"))
      .preshuffled(number(f, "preshuffled"))
      .a_stride(number(f, "a_stride"))
      .b_stride(number(f, "b_stride"))
      .c_stride(number(f, "c_stride"))
      .broadcast_a(number(f, "broadcast_a"))
      .broadcast_b(number(f, "broadcast_b"))
      .aligned(aligned('a'), aligned('b'), aligned('c'));
}

tw::ConvProblem conv(const Fields &f) {
  tw::ConvProblem p(number(f, "batch"), number(f, "channels"), number(f, "filters"), numbers(f, "size"),
                    numbers(f, "window"));
  const std::string variant = f.at("variant");
  p.direction(variant == "forward"         ? tw::ConvDirection::forward
              : variant == "backward_data" ? tw::ConvDirection::backward_data
                                           : tw::ConvDirection::backward_weight);
  return p.groups(number(f, "groups"))
      .stride(numbers(f, "stride"))
      .dilation(numbers(f, "dilation"))
      .padding(numbers(f, "before"), numbers(f, "after"))
      .dtype(type(f, "dtype"))
      .dtype_out(type(f, "dtype_out"))
      .dtype_d(type(f, "dtype_d"))
      .epilogue(epilogue(f), number(f, "num_d"), number(f, "full_d"))
      .deterministic(number(f, "deterministic"))
      .x_strides(numbers(f, "x_strides"))
      .w_strides(numbers(f, "w_strides"))
      .y_strides(numbers(f, "y_strides"))
      .aligned(number(f, "aligned"));
}

tw::AttentionProblem::Strides strides(const Fields &f, const char *name) {
  const std::vector<int64_t> s = numbers(f, name);
  return {s.at(0), s.at(1), s.at(2)};
}

tw::AttentionProblem::Shape shape(const Fields &f, const char *name) {
  const std::vector<int64_t> s = numbers(f, name);
  return {s.at(0), s.at(1), s.at(2), s.at(3)};
}

// What attention and its gradients share.
template <class Problem> Problem terms(const Fields &f) {
  Problem p(number(f, "batch"), number(f, "heads_q"), number(f, "seqlen_q"), number(f, "seqlen_k"),
            number(f, "head_dim"));
  p.heads_kv(number(f, "heads_kv"))
      .head_dim_v(number(f, "head_dim_v"))
      .window(number(f, "window_left"), number(f, "window_right"), f.at("align") == "bottom_right")
      .sink_tokens(number(f, "sink_tokens"))
      .softcap(number(f, "softcap"))
      .dropout(number(f, "dropout"))
      .seqlens_q(number(f, "seqlens_q"))
      .seqlens_k(number(f, "seqlens_k"))
      .aligned(number(f, "aligned"));
  if (f.at("bias") == "alibi") p.alibi();
  if (f.at("bias") == "tensor") p.bias(shape(f, "bias_shape"), type(f, "dtype_aux"));
  if (!f.at("mask_shape").empty()) p.mask(shape(f, "mask_shape"));
  if (number(f, "varlen")) p.varlen(number(f, "total_q"), number(f, "total_k"));
  return p;
}

tw::AttentionProblem attention(const Fields &f) {
  tw::AttentionProblem p = terms<tw::AttentionProblem>(f);
  p.dtype(type(f, "dtype_q"))
      .dtype_kv(type(f, "dtype_kv"))
      .dtype_out(type(f, "dtype_out"))
      .return_lse(number(f, "return_lse"))
      .sink(number(f, "sink"))
      .q_scale(named<tw::Scales>(f, "q_scale", int(tw::Scales::block)))
      .kv_scales(named<tw::Scales>(f, "kv_scales", int(tw::Scales::block)))
      .scale_block(number(f, "scale_block"))
      .num_splits(number(f, "num_splits"));
  if (f.at("pages") != "none")
    p.pages(number(f, "page_size"), number(f, "page_count"), f.at("page_lookup") == "indices",
            f.at("pages") == "vectorised");
  return p.q_strides(strides(f, "q_strides"))
      .k_strides(strides(f, "k_strides"))
      .v_strides(strides(f, "v_strides"))
      .o_strides(strides(f, "o_strides"));
}

tw::AttentionAppendProblem append(const Fields &f) {
  tw::AttentionAppendProblem p(number(f, "batch"), number(f, "heads_kv"), number(f, "seqlen_q"), number(f, "seqlen_k"),
                               number(f, "head_dim"));
  p.heads_q(number(f, "heads_q")).dtype(type(f, "dtype_q")).dtype_cache(type(f, "dtype_kv"));
  p.head_dim_v(number(f, "head_dim_v")).seqlens_k(number(f, "seqlens_k")).seqlens_new(number(f, "seqlens_q"));
  p.rotary(named<tw::Rotary>(f, "rotary", int(tw::Rotary::half)), number(f, "rotary_dim"), 0, type(f, "dtype_aux"));
  p.rotary_q(number(f, "rotary_q"));
  p.kv_scales(named<tw::Scales>(f, "kv_scales", int(tw::Scales::block)), number(f, "scale_block"));
  if (f.at("pages") != "none") p.pages(number(f, "page_size"), number(f, "page_count"), f.at("pages") == "vectorised");
  p.aligned(number(f, "aligned"));
  return p.q_strides(strides(f, "q_strides"))
      .cache_k_strides(strides(f, "k_strides"))
      .cache_v_strides(strides(f, "v_strides"))
      .q_out_strides(strides(f, "o_strides"));
}

tw::AttentionBackwardProblem backward(const Fields &f) {
  using Problem = tw::AttentionBackwardProblem;
  Problem p = terms<Problem>(f);
  p.dtype(type(f, "dtype")).dlse(number(f, "dlse")).dsink(number(f, "dsink")).deterministic(number(f, "deterministic"));
  p.dbias(number(f, "dbias")).dalibi(number(f, "dalibi"));
  static const char *const accum[] = {"none", "dq", "dkv", "all"};
  for (int i = 0; i < 4; ++i)
    if (f.at("accumulate") == accum[i]) p.accum(tw::Accums(i), number(f, "dkv_splits"));
  static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
  for (int which = 0; which < 8; ++which)
    p.strides(Problem::Operand(which), strides(f, (std::string(names[which]) + "_strides").c_str()));
  return p;
}

}  // namespace

static void answer(const tw::Selection &chosen) {
  for (size_t at = 0; at < chosen.stage_count(); ++at)
    std::printf("%s%s", at ? "+" : "", chosen.stage(at).kernel.digest.c_str());
  std::printf(" %s %.17g\n", chosen.tier.c_str(), chosen.seconds);
}

int main(int count, char **arguments) {
  const bool only_rules = count == 2 && !std::strcmp(arguments[1], "check");
  if (count < 4 && !only_rules) return std::puts("usage: choose REGISTRY THREADS L2_BYTES, or choose check"), 2;
  tw::SelectOptions options;
  if (!only_rules) options.threads = std::atoll(arguments[2]), options.l2_bytes = std::atoll(arguments[3]);
  const tw::Dispatcher dispatcher(only_rules ? tw::Registry() : tw::Registry::open(arguments[1]), options);
  const auto ask = [&](const auto &problem) {
    problem.check();
    if (only_rules) std::puts("fine");
    else answer(dispatcher.select(problem));
  };
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string op;
    words >> op;
    Fields fields;
    for (std::string word; words >> word;) fields[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    try {
      if (op == "gemm") ask(gemm(fields));
      else if (op == "conv") ask(conv(fields));
      else if (op == "attention_backward") ask(backward(fields));
      else if (fields.at("family") == "append") ask(append(fields));
      else ask(attention(fields));
    } catch (const tw::Error &error) { std::printf("refused %s 0\n", error.rule().c_str()); }
  }
}
