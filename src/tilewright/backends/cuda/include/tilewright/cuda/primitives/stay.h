// What is known early is found early and stays in its register: the compiler would find it, again and again, where it is
// used, and a short problem waits for every instruction to come from memory.
#pragma once
#include <tilewright/gpu/device.h>

namespace tw {

TW_GPU void stay(int &x) { asm volatile("" : "+r"(x)); }
TW_GPU void stay(long long &x) { asm volatile("" : "+l"(x)); }
template <class T> TW_GPU void stay(T *&x) { asm volatile("" : "+l"(x)); }

}  // namespace tw
