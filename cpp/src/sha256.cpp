#include "sha256.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tw {
namespace runtime {
namespace {

uint32_t rotated(uint32_t word, int by) { return word >> by | word << (32 - by); }

// The constants are the first bits of roots of primes, worked out once.
struct Constants {
  std::array<uint32_t, 64> round;
  std::array<uint32_t, 8> start;
  Constants() {
    int place = 0;
    for (uint64_t number = 2; place < 64; ++number) {
      bool prime = true;
      for (uint64_t by = 2; by * by <= number; ++by) prime = prime && number % by;
      if (!prime) continue;
      round[size_t(place)] = bits(std::cbrt(static_cast<long double>(number)));
      if (place < 8) start[size_t(place)] = bits(std::sqrt(static_cast<long double>(number)));
      ++place;
    }
  }
  static uint32_t bits(long double root) { return uint32_t(uint64_t((root - std::floor(root)) * 4294967296.0L)); }
};

}  // namespace

std::string sha256_hex(const std::string &bytes) {
  static const Constants constants;
  std::array<uint32_t, 8> state = constants.start;
  std::string padded = bytes;
  padded += char(0x80);
  while (padded.size() % 64 != 56) padded += char(0);
  for (int shift = 56; shift >= 0; shift -= 8) padded += char(uint64_t(bytes.size()) * 8 >> shift);
  for (size_t at = 0; at < padded.size(); at += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      const auto *p = reinterpret_cast<const unsigned char *>(padded.data()) + at + 4 * i;
      w[i] = uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3];
    }
    for (int i = 16; i < 64; ++i) {
      const uint32_t low = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t high = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
      const uint32_t one = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) +
                           constants.round[size_t(i)] + w[i];
      const uint32_t two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const uint32_t after[] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += after[i];
  }
  std::string text;
  for (uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

}  // namespace runtime
}  // namespace tw
