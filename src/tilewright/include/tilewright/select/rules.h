// Why a kernel refuses a problem: written once, for the kernel's own check, for selection, and for people.
#pragma once
#include <stddef.h>
#include <tilewright/abi.h>

namespace tw {
namespace selection {

// In the sentences, {name} stands for the number of that name in the problem or the schedule.
struct Rule {
  const char *name;
  int64_t code;  // what `check` answers (enum tw_status)
  const char *why, *remedy;
};

// The answer of limits that the selection library cannot decide: Python does.
inline constexpr Rule undecided{"undecided", TW_OK, "", ""};

// Numbers by name: `names` as TW_SELECT_STRUCT lists them, each followed by one space.
struct Named {
  const char *names;
  const int64_t *values;
};

// The number that the text up to '}' names; false where nothing is called that.
inline bool number_named(const char *text, const Named &among, int64_t &value) {
  const char *name = among.names;
  for (int64_t place = 0; *name; ++place) {
    const char *t = text;
    for (; *t == *name && *name != ' '; ++t) ++name;
    const bool same = *t == '}' && *name == ' ';
    if (same) return value = among.values[place], true;
    while (*name != ' ') ++name;
    ++name;
  }
  return false;
}

// A rule's sentence with its numbers filled in, each of the first that has it, cut to fit; the C library's printf is not
// needed for it.
inline int say(const Rule &rule, const Named *among, int sources, char *why, size_t bytes) {
  size_t end = 0;
  const auto put = [&](char c) {
    if (end + 1 < bytes) why[end++] = c;
  };
  for (const char *text = rule.why; *text; ++text) {
    int64_t value = 0;
    bool known = false;
    for (int i = 0; *text == '{' && !known && i < sources; ++i) known = number_named(text + 1, among[i], value);
    if (!known) {
      put(*text);
      continue;
    }
    char digits[20];
    int count = 0;
    uint64_t left = value < 0 ? uint64_t(0) - uint64_t(value) : uint64_t(value);
    do digits[count++] = char('0' + left % 10);
    while (left /= 10);
    if (value < 0) put('-');
    while (count) put(digits[--count]);
    while (*text != '}') ++text;
  }
  if (bytes) why[end] = 0;
  return int(rule.code);
}

}  // namespace selection
}  // namespace tw
