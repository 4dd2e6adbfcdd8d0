// Reads every byte of a bundle: how many files it has, or which was changed.  Argument: the bundle.
#include "check.hpp"

int main(int count, char **arguments) {
  if (count < 2) return std::puts("usage: test_bundle BUNDLE"), 2;
  try {
    std::printf("%lld files\n", static_cast<long long>(tw::check_bundle(arguments[1])));
    return 0;
  } catch (const tw::Error &error) {
    return std::fprintf(stderr, "[%s] %s: %s\n", error.rule().c_str(), error.value().c_str(), error.what()), 1;
  }
}
