// What the tests check with: a failed check names its line, and the program's exit status says that one failed.
#pragma once
#include <tilewright/tilewright.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

inline int &failures() {
  static int count = 0;
  return count;
}

#define CHECK(condition) \
  do { \
    if (!(condition)) std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), ++failures(); \
  } while (false)

// The rule of the error that something throws; empty where it throws none.
template <class Body> std::string rule_of(Body body) {
  try {
    body();
  } catch (const tw::Error &error) {
    if (error.owner().empty() || error.message().empty() || error.remedy().empty())
      std::printf("[%s] has no owner, message or remedy\n", error.rule().c_str()), ++failures();
    return error.rule();
  }
  return "";
}

// The value that its error names.
template <class Body> std::string value_of(Body body) {
  try {
    body();
  } catch (const tw::Error &error) { return error.value(); }
  return "";
}

// Numbers between -1 and 1, the same on every machine.
inline std::vector<float> drawn(int64_t count, uint64_t seed) {
  std::vector<float> numbers;
  uint64_t state = seed * 2862933555777941757ull + 3037000493ull;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    numbers.push_back(float(double(state >> 40) / double(1 << 23) - 1.0));
  }
  return numbers;
}

inline int done(const char *what, int checked) {
  std::printf("%s: %d checked, %d failed\n", what, checked, failures());
  return failures() ? 1 : 0;
}
