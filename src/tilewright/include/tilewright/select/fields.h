// Plain structs that C++ and Python fill in alike: the names of their fields are written once, and exported as text.
#pragma once
#include <stdint.h>

#define TW_SELECT_FIELD_int(name) int64_t name;
#define TW_SELECT_FIELD_real(name) double name;
#define TW_SELECT_NAME(name) #name " "

// struct Type { int64_t a; int64_t b; ... } and Type_names(), "a b ... ".
#define TW_SELECT_STRUCT(Type, kind, LIST) \
  struct Type { \
    LIST(TW_SELECT_FIELD_##kind) \
  }; \
  inline const char *Type##_names() { return LIST(TW_SELECT_NAME) ""; }

namespace tw {
namespace selection {

inline int64_t ceil_div(int64_t x, int64_t y) { return x / y + (x % y > 0); }   // of x from 0 on
inline int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y < 0); }  // of y from 1 on
inline int64_t round_up(int64_t x, int64_t multiple) { return ceil_div(x, multiple) * multiple; }
inline int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }
inline int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
inline double slower(double x, double y) { return x > y ? x : y; }
inline double faster(double x, double y) { return x < y ? x : y; }

// Products of three sizes may need more than 63 bits.
__extension__ typedef __int128 Wide;

// Inputs of a kernel's limits and cost beside the problem, and their results.
struct Host {
  int64_t threads;
  int64_t l2_bytes;  // a core's own second-level cache
  int64_t dual_fma;  // 1: it starts two vector multiply-adds in a cycle, where others of its level start one
};

}  // namespace selection
}  // namespace tw
