// A tensor map as this emulator writes it: what the driver was told, as it is.
#pragma once
#include <stdint.h>
#include <string.h>

namespace emulated {

struct Map {
  uint64_t address, sizes[5], strides[4];
  uint32_t mark;
  uint16_t box[3];     // im2col: channels and pixels
  int16_t corners[6];  // im2col: of the pixels traversed, first ones then last ones, each from its end
  uint8_t steps[3], rank, bytes, swizzle, type;
  bool pixels;
};
static_assert(sizeof(Map) <= 128);
constexpr uint32_t map_mark = 0x54a90e01;

// Swizzles move 16-byte pieces by address bits: 128 bytes (3) by bits 7 to 9, 64 by 7 and 8, 32 by 7.
inline uint32_t swizzled(uint32_t address, int kind) { return address ^ ((address >> 7 & ((1u << kind) - 1)) << 4); }

// A float on its way through a map of TF32: to the nearest of 11 bits.
inline void round_tf32(char *at) {
  uint32_t bits;
  memcpy(&bits, at, 4);
  if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x1000) & 0xffffe000;
  memcpy(at, &bits, 4);
}

// Every element of the box at `at`: where it lies in a window of shared memory that starts at `start`, and
// in memory; null outside the tensor.  Of lines of 16-byte pieces (`whole`) a piece counts if its start does.
template <class Move> void each_element(const Map &m, const int *at, uint32_t start, bool whole, Move move) {
  const uint32_t row = m.box[0] * uint32_t(m.bytes);
  const long long piece = whole ? 16 / m.bytes : 1, length = ((long long)m.sizes[0] + piece - 1) / piece * piece;
  for (uint32_t line = 0; line < m.box[1] * m.box[2]; ++line)
    for (uint32_t x = 0; x < m.box[0]; ++x) {
      const long long gx = at[0] + (long long)x, gy = at[1] + (long long)(line % m.box[1]),
                      gz = at[2] + (long long)(line / m.box[1]), gw = m.rank == 4 ? at[3] : 0;
      const bool inside = gx >= 0 && gy >= 0 && gz >= 0 && gw >= 0 && gx < length && gy < (long long)m.sizes[1] &&
                          gz < (long long)m.sizes[2] && (m.rank < 4 || gw < (long long)m.sizes[3]);
      char *global = inside ? reinterpret_cast<char *>(m.address) + gx * m.bytes + gy * (long long)m.strides[0] +
                                  gz * (long long)m.strides[1] + gw * (long long)m.strides[2]
                            : nullptr;
      move(swizzled(start + line * row + x * uint32_t(m.bytes), m.swizzle) - start, global);
    }
}

// The same of a traversal of pixels.  `at`: channel, w, h, (d,) image; every pixel is moved by `tap`.  Pixels outside are
// traversed like others, and the traversal goes on past the last image.
template <class Move> void each_pixel(const Map &m, const int *at, const int *tap, uint32_t start, Move move) {
  const int spatial = m.rank - 2;
  long long here[3], image = at[m.rank - 1];
  for (int i = 0; i < spatial; ++i) here[i] = at[1 + i];
  for (uint32_t pixel = 0; pixel < m.box[1]; ++pixel) {
    for (uint32_t c = 0; c < m.box[0]; ++c) {
      const long long channel = at[0] + (long long)c;
      bool inside =
          channel >= 0 && channel < (long long)m.sizes[0] && image >= 0 && image < (long long)m.sizes[m.rank - 1];
      long long from = channel * m.bytes + image * (long long)m.strides[m.rank - 2];
      for (int i = 0; i < spatial; ++i) {
        const long long moved = here[i] + tap[i];
        inside = inside && moved >= 0 && moved < (long long)m.sizes[1 + i];
        from += moved * (long long)m.strides[i];
      }
      char *global = inside ? reinterpret_cast<char *>(m.address) + from : nullptr;
      move(swizzled(start + (pixel * m.box[0] + c) * m.bytes, m.swizzle) - start, global);
    }
    int i = 0;
    for (; i < spatial; ++i) {
      here[i] += m.steps[i];
      if (here[i] <= (long long)m.sizes[1 + i] - 1 + m.corners[3 + i]) break;
      here[i] = m.corners[i];
    }
    if (i == spatial) ++image;
  }
}

}  // namespace emulated
