// A program of version 1.1 of the C interface, as it was compiled then: chooses a GEMM, runs it and says what it got.
//   old_client FOLDER NAMES SIGNATURE NUMBERS...   (names of numbers with commas between)
#include "runtime_1_1.h"

#include <tilewright/gemm_args.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static int failed(const char *what) {
  const tw_error *error = tw_last_error();
  std::fprintf(stderr, "%s: [%s] %s\n  remedy: %s\n", what, error->rule, error->message, error->remedy);
  return 1;
}

int main(int count, char **arguments) {
  if (count < 5) return std::puts("usage: old_client FOLDER NAMES SIGNATURE NUMBERS..."), 2;
  tw_registry *registry = nullptr;
  if (tw_registry_new("", &registry) || tw_registry_add(registry, arguments[1])) return failed("the registry");
  std::vector<std::string> words(1);
  for (const char *letter = arguments[2]; *letter; ++letter)
    if (*letter == ',') words.emplace_back();
    else words.back() += *letter;
  std::vector<const char *> names;
  for (const std::string &word : words) names.push_back(word.c_str());
  std::vector<int64_t> numbers;
  for (int at = 4; at < count; ++at) numbers.push_back(std::strtoll(arguments[at], nullptr, 10));
  tw_problem problem{};
  problem.size = sizeof problem, problem.op = "gemm", problem.signature = arguments[3], problem.text = "a GEMM";
  problem.names = names.data(), problem.values = numbers.data(), problem.count = int64_t(numbers.size());
  struct {
    tw_choice choice;
    unsigned char behind[64];
  } answer{};
  std::memset(answer.behind, 0x55, sizeof answer.behind);
  answer.choice.size = sizeof answer.choice;
  tw_select_options options{};
  options.size = sizeof options, options.threads = 2;
  if (tw_select(registry, &problem, &options, &answer.choice)) return failed("the choice");
  for (unsigned char byte : answer.behind)
    if (byte != 0x55) return std::puts("a newer library wrote behind an older struct"), 1;
  tw_entry entry{};
  entry.size = sizeof entry;
  const tw_kernel *kernel = nullptr;
  if (tw_registry_entry(registry, answer.choice.kernel, &entry)) return failed("the entry");
  if (tw_registry_kernel(registry, answer.choice.kernel, &kernel)) return failed("the kernel");
  std::printf("%s %lld %.17g %d\n", entry.digest, static_cast<long long>(answer.choice.tier), answer.choice.seconds,
              kernel->launch != nullptr);
  tw_registry_free(registry);
  return 0;
}
