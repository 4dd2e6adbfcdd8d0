// The result of a kernel's check of its arguments: a code of abi.h, and a sentence for it.
#pragma once
#include <tilewright/abi.h>

namespace tw {

struct Answer {
  int code = TW_OK;
  const char *why = "";
};

// The sentence into a C buffer, cut to fit; the C library's printf is not needed for it.
inline int say(const Answer &answer, char *why, size_t bytes) {
  size_t i = 0;
  for (; bytes && i + 1 < bytes && answer.why[i]; ++i) why[i] = answer.why[i];
  if (bytes) why[i] = 0;
  return answer.code;
}

}  // namespace tw
