// The kernels of a prepared call: what each is given, and how it is launched.  Of fast_path.cpp and torch_ops.cpp, in front of
// which `fast_path.py` writes the limits that Python must know too.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

constexpr int most_loops = TW_MOST_LOOPS;
constexpr int64_t most_bytes = TW_MOST_ARGUMENT_BYTES;  // of one kernel's arguments

// Where an address goes in the arguments: that of a slot, or (slot -1) of the workspace between stages.
struct Pointer {
  int64_t offset, slot, shift, step[most_loops];
};
struct Scalar {
  int64_t offset, index;
};
struct Stage {
  int (*launch)(const void *args, void *workspace, void *stream);
  const void *args;
  const Pointer *pointer;
  const Scalar *scalar;
  int64_t bytes, pointers, scalars, scratch, clear_bytes, loops, loop[most_loops];
};
// The bytes around an operand's address that are touched, what the address is a multiple of, and the slot that a
// written one may be identical with (-1: none).
struct Span {
  int64_t low, high, grain, twin;
};
// Whether every address is a multiple of what it must be and what is written overlaps nothing else; `given` and `written`
// have a bit for each slot.
bool sound(const Span *span, int64_t slots, uint64_t given, uint64_t written, const uintptr_t *at) {
  for (int64_t i = 0; i < slots; ++i)
    if (given >> i & 1 && at[i] & uintptr_t(span[i].grain - 1)) return false;
  for (int64_t w = 0; w < slots; ++w) {
    if (!(written >> w & given >> w & 1)) continue;
    const int64_t low = int64_t(at[w]) + span[w].low, high = int64_t(at[w]) + span[w].high;
    for (int64_t i = 0; i < slots; ++i) {
      if (i == w || !(given >> i & 1) || (i == span[w].twin && at[i] == at[w])) continue;
      if (int64_t(at[i]) + span[i].low < high && low < int64_t(at[i]) + span[i].high) return false;
    }
  }
  return true;
}
// Launch one stage once for each index of its loops.
int launch(const Stage &stage, const uintptr_t *at, const double *scalars, uintptr_t between, void *workspace,
           void *stream) {
  alignas(16) char args[most_bytes];
  memcpy(args, stage.args, size_t(stage.bytes));
  for (int64_t i = 0; i < stage.scalars; ++i)
    memcpy(args + stage.scalar[i].offset, scalars + stage.scalar[i].index, sizeof(double));
  int64_t index[most_loops] = {};
  for (;;) {
    for (int64_t i = 0; i < stage.pointers; ++i) {
      const Pointer &one = stage.pointer[i];
      uintptr_t address = (one.slot < 0 ? between : at[one.slot]) + uintptr_t(one.shift);
      for (int64_t d = 0; d < stage.loops; ++d) address += uintptr_t(index[d] * one.step[d]);
      memcpy(args + one.offset, &address, sizeof address);
    }
    if (int status = stage.launch(args, workspace, stream)) return status;
    int64_t d = stage.loops - 1;
    while (d >= 0 && ++index[d] == stage.loop[d]) index[d--] = 0;
    if (d < 0) return 0;
  }
}

uint64_t hash_of(const char *bytes, ptrdiff_t size) {
  uint64_t mixed = 0x9e3779b97f4a7c15 ^ uint64_t(size), word = 0;
  // Four words at a time, none of which waits for another: a key of some hundred bytes is hashed in every call.
  uint64_t lane[4] = {mixed, 0x2545f4914f6cdd1d, 0xd6e8feb86659fd93, 0xa0761d6478bd642f}, words[4];
  if (size >= 32) {
    for (; size >= 32; bytes += 32, size -= 32) {
      memcpy(words, bytes, 32);
      for (int i = 0; i < 4; ++i) lane[i] = (lane[i] ^ words[i]) * 0xff51afd7ed558ccd, lane[i] ^= lane[i] >> 32;
    }
    mixed =
        lane[0] ^ (lane[1] << 16 | lane[1] >> 48) ^ (lane[2] << 32 | lane[2] >> 32) ^ (lane[3] << 48 | lane[3] >> 16);
  }
  for (; size >= 8; bytes += 8, size -= 8) {
    memcpy(&word, bytes, 8);
    mixed = (mixed ^ word) * 0xff51afd7ed558ccd, mixed ^= mixed >> 32;
  }
  word = 0;
  memcpy(&word, bytes, size_t(size));
  mixed = (mixed ^ word) * 0xc4ceb9fe1a85ec53;
  return mixed ^ mixed >> 29;
}

}  // namespace
