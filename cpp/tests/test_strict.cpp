// What strict selection says where only a fallback kernel serves a problem.  Argument: a registry's JSON with the fallback
// kernel alone for GEMM (fp32, rrr), and kernels of attention that decode (fp32, heads of 32) beside theirs.
#include "check.hpp"

template <class Problem> static std::string refusal(const tw::Dispatcher &strict, const Problem &problem) {
  try {
    strict.select(problem);
  } catch (const tw::Error &error) {
    CHECK(error.rule() == "no-kernel" && !error.owner().empty() && !error.remedy().empty());
    CHECK(error.value() == problem.described().text);
    return error.message();
  }
  return "";
}

static bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_strict REGISTRY"), 2;
  const tw::Registry registry = tw::Registry::open(arguments[1]);
  tw::SelectOptions options;
  options.strict = true;
  const tw::Dispatcher plain(registry), strict(registry, options);

  const tw::GemmProblem alone(33, 20, 17);
  CHECK(plain.select(alone).tier == "fallback");
  const std::string none = refusal(strict, alone);
  CHECK(has(none, "strict mode refuses fallback kernels; no other kernel has its signature"));

  const tw::AttentionProblem long_one = tw::AttentionProblem(2, 9, 27, 109, 32).heads_kv(3);
  CHECK(plain.select(long_one).tier == "fallback" && plain.select(long_one).kernel.fallback);
  const std::string said = refusal(strict, long_one);
  CHECK(has(said, "strict mode refuses fallback kernels; 1 kernel of its signature refuses:"));
  CHECK(has(said, "decode") && has(said, "[cpu-rows]") && has(said, "(use tiled)"));

  const tw::AttentionProblem short_one = tw::AttentionProblem(2, 9, 1, 109, 32).heads_kv(3);
  CHECK(strict.select(short_one).tier == "heuristic");

  // Of what the registry has no kernel at all: in what the nearest signature differs, whichever op others are of.
  try {
    plain.select(tw::GemmProblem(3, 4, 5).layout("rcr").dtype_c(tw::Dtype::fp16));
    CHECK(false);
  } catch (const tw::Error &error) {
    CHECK(error.rule() == "no-kernel" &&
          has(error.message(), "no kernel of gemm in the registry (1) has its signature {"));
    CHECK(has(error.message(), "; the nearest has dtype_c \"fp32\" in place of \"fp16\", dtype_d"));
  }
  try {  // one of decoding stands first, and the fallback kernel differs as much
    plain.select(tw::AttentionProblem(2, 9, 27, 109, 32).heads_kv(3).softcap());
    CHECK(false);
  } catch (const tw::Error &error) { CHECK(has(error.message(), "; the nearest has softcap false in place of true")); }
  return done("strict", 5);
}
