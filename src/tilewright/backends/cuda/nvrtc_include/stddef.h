// For NVRTC, which brings no C library.
#pragma once

typedef decltype(sizeof(0)) size_t;
typedef decltype(static_cast<char *>(0) - static_cast<char *>(0)) ptrdiff_t;
#define offsetof(type, member) reinterpret_cast<size_t>(&static_cast<type *>(nullptr)->member)
