// What one wgmma computes: 64 x N products of operands in shared memory, found through descriptors.
#pragma once
#include <stdint.h>
#include <string.h>

#include <string>

#include "hopper.h"

namespace emulated {

inline float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
inline float from_half(uint16_t h) {
  _Float16 x;
  memcpy(&x, &h, 2);
  return float(x);
}
inline float from_e4m3(uint8_t b) {
  if ((b & 0x7f) == 0x7f) return from_bits(0x7fc00000);
  float x = from_bits(uint32_t(b & 0x7f) << 20) * 0x1p120f;
  return b & 0x80 ? -x : x;
}

// Elements of an operand.  The descriptor: bits 0 to 13 the address over 16, 16 to 29 the leading offset,
// 32 to 45 the stride, 49 to 51 the base offset, 62 and 63 the swizzle (1: 128 bytes; 0: none, where the stride goes
// along m or n and the leading offset along k).  The swizzle goes by addresses, so
// that operands may begin at any row of an atom, rows along k and rows of k alike (seen on an H200).
struct OperandReader {
  const char *memory;
  uint32_t window, bytes;
  void (*fault)(const std::string &);

  // `line` along m or n, `k` along k, in elements.
  const char *at(uint64_t descriptor, int major, int line, int k, int size) const {
    uint32_t start = uint32_t(descriptor & 0x3fff) << 4, leading = uint32_t(descriptor >> 16 & 0x3fff) << 4,
             stride = uint32_t(descriptor >> 32 & 0x3fff) << 4;
    const bool plain = descriptor >> 62 == 0;
    if ((descriptor >> 62 != 1 && !(plain && major == 1)) || (descriptor >> 49 & 7))
      fault("a descriptor other than of the 128-byte swizzle, or of none across k");
    uint32_t address = start;
    if (plain)
      address +=
          uint32_t(line / 8) * stride + uint32_t(line % 8 * size) + uint32_t(k / 8) * leading + uint32_t(k % 8) * 16;
    else if (major == 0) address += uint32_t(line / 8) * stride + uint32_t(line % 8) * 128 + uint32_t(k * size);
    else
      address +=
          uint32_t(line / 64) * leading + uint32_t(line % 64 * size) + uint32_t(k / 8) * stride + uint32_t(k % 8) * 128;
    if (!plain) address ^= (address >> 7 & 7) << 4;
    if (address < window || address + uint32_t(size) > window + bytes) fault("wgmma reads outside shared memory");
    return memory + (address - window);
  }
};

inline float element(Element kind, const char *p) {
  if (kind == tf32_element) {  // the lowest 13 bits are not read
    uint32_t four;
    memcpy(&four, p, 4);
    return from_bits(four & 0xffffe000);
  }
  uint16_t two = 0;
  memcpy(&two, p, kind == bf16_element || kind == fp16_element ? 2 : 1);
  if (kind == bf16_element) return from_bits(uint32_t(two) << 16);
  if (kind == fp16_element) return from_half(two);
  if (kind == e5m2_element) return from_half(uint16_t(two << 8));
  return from_e4m3(uint8_t(two));
}

// Row i, column k of A as fragments hold it: a thread has two rows, 8 apart, and four bytes of each 16 along k.
inline const char *in_registers(const uint32_t (*words)[4], int i, int k, int size) {
  const int byte = k * size, thread = i / 16 * 32 + i % 8 * 4 + byte % 16 / 4;
  return reinterpret_cast<const char *>(&words[thread][i % 16 / 8 + byte / 16 * 2]) + byte % 4;
}

// `words`: A from the registers of 128 threads, two elements of two bytes in each; null: from shared memory.
inline void multiply_floats(const OperandReader &read, Element kind, int columns, int major_a, int major_b, uint64_t a,
                            uint64_t b, const uint32_t (*words)[4], float *accum) {
  const int size = kind == tf32_element ? 4 : kind == bf16_element || kind == fp16_element ? 2 : 1, deep = 32 / size;
  static float left[64][32], right[32][256];
  for (int k = 0; k < deep; ++k) {
    for (int i = 0; i < 64; ++i)
      left[i][k] =
          words ? element(kind, in_registers(words, i, k, size)) : element(kind, read.at(a, major_a, i, k, size));
    for (int j = 0; j < columns; ++j) right[k][j] = element(kind, read.at(b, major_b, j, k, size));
  }
  for (int i = 0; i < 64; ++i) {
    float *to = accum + i * columns;
    for (int j = 0; j < columns; ++j) to[j] = 0;
    for (int k = 0; k < deep; ++k)
      for (int j = 0; j < columns; ++j) to[j] += left[i][k] * right[k][j];
  }
}

inline void multiply_integers(const OperandReader &read, int columns, uint64_t a, uint64_t b, int32_t *accum) {
  static int32_t left[64][32], right[32][256];
  for (int k = 0; k < 32; ++k) {
    for (int i = 0; i < 64; ++i) left[i][k] = int8_t(*read.at(a, 0, i, k, 1));
    for (int j = 0; j < columns; ++j) right[k][j] = int8_t(*read.at(b, 0, j, k, 1));
  }
  for (int i = 0; i < 64; ++i) {
    int32_t *to = accum + i * columns;
    for (int j = 0; j < columns; ++j) to[j] = 0;
    for (int k = 0; k < 32; ++k)
      for (int j = 0; j < columns; ++j) to[j] += left[i][k] * right[k][j];
  }
}

}  // namespace emulated
