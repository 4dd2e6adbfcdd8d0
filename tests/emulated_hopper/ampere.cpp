// cp.async, ldmatrix and mma.sync as PTX documents them.  A copy poisons its place when it is issued and lands
// when its thread waits for it (or at once, or by chance: see hopper.cpp).  Every byte of shared memory knows
// who touched it since which barrier, so that a missing one is a fault and not luck.
#include "ampere.h"

#include <string.h>

#include <deque>
#include <vector>

#include "hopper.h"
#include "products.h"

namespace emulated {
namespace {

struct Pending {
  char *to;
  const char *from;
  int bytes, valid;
};
struct Copies {
  std::vector<Pending> open;
  std::deque<std::vector<Pending>> groups;
};
constexpr int nobody = -1, several = -2;
struct Seen {
  int writer = nobody, reader = nobody;
  uint64_t written = 0, read = 0;  // after how many barriers
  bool in_flight = false;
};
struct Memory {
  std::vector<Seen> bytes;
  std::vector<Copies> threads;
};

uint64_t wave = 0;
std::vector<Memory> blocks;

Memory &mine(const Where &here) {
  if (wave != here.wave) wave = here.wave, blocks.clear();
  if (blocks.size() <= size_t(here.block)) blocks.resize(size_t(here.block) + 1);
  Memory &memory = blocks[size_t(here.block)];
  if (memory.bytes.empty()) memory.bytes.resize(shared_size()), memory.threads.resize(1024);
  return memory;
}

void watch(Memory &memory, const Where &here, uint32_t at, int bytes, bool writes) {
  for (uint32_t i = at; i < at + uint32_t(bytes); ++i) {
    Seen &seen = memory.bytes[i];
    if (seen.in_flight)
      stop(writes ? "a write into a copy that has not landed" : "a read of a copy that has not landed");
    if (seen.writer != nobody && seen.writer != here.thread && seen.written == here.barriers)
      stop(writes ? "two threads wrote a place with no barrier between"
                  : "a read of what another thread wrote, with no barrier between");
    if (writes) {
      if (seen.reader != nobody && seen.reader != here.thread && seen.read == here.barriers)
        stop("a write over what another thread read, with no barrier between");
      seen.writer = here.thread, seen.written = here.barriers;
    } else {
      seen.reader =
          seen.reader == nobody || seen.read != here.barriers || seen.reader == here.thread ? here.thread : several;
      seen.read = here.barriers;
    }
  }
}

void land(Memory &memory, const Where &here, const Pending &one) {
  const uint32_t at = shared_offset(one.to, uint32_t(one.bytes), "a copy");
  for (int i = 0; i < one.bytes; ++i) {
    Seen &seen = memory.bytes[at + uint32_t(i)];
    seen.in_flight = false;
    seen.writer = here.thread, seen.written = here.barriers;
  }
  memcpy(one.to, one.from, size_t(one.valid));
  memset(one.to + one.valid, 0, size_t(one.bytes - one.valid));
}

float value(Kind kind, uint32_t word, int at) {
  switch (kind) {
    case Kind::bf16:
      return from_bits(word >> 16 * at << 16);
    case Kind::fp16:
      return from_half(uint16_t(word >> 16 * at));
    case Kind::e5m2:
      return from_half(uint16_t((word >> 8 * at & 0xff) << 8));
    case Kind::e4m3:
      return from_e4m3(uint8_t(word >> 8 * at));
    case Kind::int8:
      return float(int8_t(word >> 8 * at));
    default:
      return from_bits(word & 0xffffe000);  // the low 13 bits are not read
  }
}

}  // namespace

void copy_async(char *to, const char *from, int bytes, int valid) {
  const Where here = where();
  Memory &memory = mine(here);
  const uint32_t at = shared_offset(to, uint32_t(bytes), "cp.async");
  if (bytes != 4 && bytes != 8 && bytes != 16) stop("cp.async of other than 4, 8 or 16 bytes");
  if (valid < 0 || valid > bytes) stop("cp.async reads more than it writes");
  if (at % uint32_t(bytes) || (valid && uintptr_t(from) % uintptr_t(bytes)))
    stop("cp.async with an address that is not aligned");
  watch(memory, here, at, bytes, true);
  for (int i = 0; i < bytes; ++i) memory.bytes[at + uint32_t(i)].in_flight = true;
  memset(to, 0xfb, size_t(bytes));
  Pending one{to, from, bytes, valid};
  if (lands_at_once()) land(memory, here, one);
  else memory.threads[size_t(here.thread)].open.push_back(one);
}
void commit_copies() {
  const Where here = where();
  Copies &c = mine(here).threads[size_t(here.thread)];
  c.groups.push_back(std::move(c.open));
  c.open.clear();
}
void wait_copies(int left) {
  const Where here = where();
  Memory &memory = mine(here);
  Copies &c = memory.threads[size_t(here.thread)];
  while (c.groups.size() > size_t(left)) {
    for (const Pending &one : c.groups.front()) land(memory, here, one);
    c.groups.pop_front();
  }
}
void touch(const void *p, int bytes, bool writes) {
  const Where here = where();
  const uint32_t at = shared_offset(p, uint32_t(bytes), writes ? "a store" : "a load");
  if (at % uint32_t(bytes)) stop("an access of shared memory that is not aligned");
  watch(mine(here), here, at, bytes, writes);
}

void load_matrices(uint32_t *to, const char *row, bool transposed) {
  const uint32_t at = shared_offset(row, 16, "ldmatrix");
  if (at % 16) stop("ldmatrix from a row that is not aligned to 16 bytes");
  touch(row, 16, false);
  char rows[16];
  memcpy(rows, row, 16);
  char all[32][48];
  warp_all(rows, 16, all);
  const int lane = where().thread % 32;
  for (int i = 0; i < 4; ++i) {
    if (transposed) {
      uint16_t low, high;
      memcpy(&low, all[i * 8 + lane % 4 * 2] + lane / 4 * 2, 2);
      memcpy(&high, all[i * 8 + lane % 4 * 2 + 1] + lane / 4 * 2, 2);
      to[i] = uint32_t(low) | uint32_t(high) << 16;
    } else {
      memcpy(&to[i], all[i * 8 + lane / 4] + lane % 4 * 4, 4);
    }
  }
}

void mma(void *accum, const uint32_t *a, const uint32_t *b, Kind kind_a, Kind kind_b) {
  struct Lane {
    uint32_t a[4], b[2];
  } lane, all[32];
  memcpy(lane.a, a, sizeof lane.a);
  memcpy(lane.b, b, sizeof lane.b);
  char slots[32][48];
  warp_all(&lane, sizeof lane, slots);
  for (int i = 0; i < 32; ++i) memcpy(&all[i], slots[i], sizeof(Lane));
  const int number = where().thread % 32,
            size = kind_a == Kind::tf32                           ? 4
                   : kind_a == Kind::bf16 || kind_a == Kind::fp16 ? 2
                                                                  : 1,
            each = 4 / size;
  for (int i = 0; i < 4; ++i) {
    const int row = number / 4 + i / 2 * 8, column = number % 4 * 2 + i % 2;
    double total = 0;
    for (int k = 0; k < 8 * each; ++k) {
      // Words: rows 0-7 and 8-15 of the first 16 bytes of k, then of the second; four lanes hold a row's 16 bytes.
      const int half = k / (4 * each), word = k % (4 * each) / each, inside = k % each;
      total += double(value(kind_a, all[row % 8 * 4 + word].a[row / 8 + half * 2], inside)) *
               double(value(kind_b, all[column * 4 + word].b[half], inside));
    }
    if (kind_a == Kind::int8) static_cast<int32_t *>(accum)[i] += int32_t(total);
    else static_cast<float *>(accum)[i] = float(double(static_cast<float *>(accum)[i]) + total);
  }
}

}  // namespace emulated
