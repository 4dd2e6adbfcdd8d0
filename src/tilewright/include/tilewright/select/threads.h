// How much work a thread of a CPU kernel is woken for: kernels share it out so, and their costs count with it.
#pragma once
#include <stdint.h>

namespace tw {
namespace selection {

constexpr int64_t kSmallestShare = int64_t(1) << 19;        // multiply-adds
constexpr int64_t kSmallestVectorShare = int64_t(1) << 16;  // multiply-adds of vectors

}  // namespace selection
}  // namespace tw
