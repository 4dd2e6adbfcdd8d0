// depthwise_mma: gradients of depthwise weights by matrix instructions, whole rows of images at a time.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/depthwise_limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace depthwise_mma {

#define TW_SELECT_CUDA_CONV_DEPTHWISE_MMA(X) X(stages) X(shared_bytes)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_DEPTHWISE_MMA)

// cuda/conv/depthwise_mma/shape.h: channels of a tile and their bytes, pixels of an instruction.
constexpr int64_t kChannels = 32, kPixel = 64, kDeep = 16, kMargin = 8, kLines = 32, kBeside = 2048;
constexpr int64_t kRows = 7, kColumns = 8, kLeastTaps = 16, kLatency = 4096, kMostBox = 256;

TW_CONV_RULE(taps_few, "nv-depthwise", "the filter has fewer than 16 taps per plane")  // tiles are faster
TW_CONV_RULE(taps_many, "nv-depthwise", "the filter has more than 7 rows of 8 taps")
TW_CONV_RULE(strided, "nv-depthwise", "a stride or a dilation is over 1")
TW_CONV_RULE(no_room, "nv-shared-memory", "the rows of an image do not fit into shared memory")

// Rows of results of a tile (0: none fits) and 16s of pixels of a row, its bytes, how many tiles, and who shares them.
struct Tiles {
  int64_t lines, segments, bytes, tiles, parts;
};

// conv/depthwise_mma/host.h; whether there are any does not depend on the number of multiprocessors.
inline Tiles tiles_of(const Schedule &s, const Conv &c, int64_t processors) {
  const int64_t share = processors / (ceil_div(c.p.channels, kChannels) * c.window[0]);
  const int64_t segments = ceil_div(c.out[2] + c.window[2] - 1, kDeep);
  Tiles best{};
  if (segments * kDeep + kMargin > kMostBox) return best;
  Wide least = 0;
  for (int64_t lines = 2; lines <= smaller(kLines, larger(2, c.out[1] + 1)); lines += 2) {
    int64_t stage = round_up((lines + c.window[1] - 1) * (segments * kDeep + 4) * kPixel, 1024);
    stage += round_up(lines * (segments * kDeep + kMargin) * kPixel, 1024);
    if (s.stages * stage + kBeside > s.shared_bytes) break;
    const int64_t tiles = ceil_div(c.out[1], lines) * c.out[0] * c.p.batch;
    const int64_t parts = larger(1, smaller(share, tiles));
    const Wide bytes = Wide(ceil_div(tiles, parts)) * (stage + kLatency) + stage;
    if (!best.lines || bytes < least) best = {lines, segments, stage, tiles, parts}, least = bytes;
  }
  return best;
}

// conv/depthwise_mma/host.h.
inline const Rule *limits(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  if (p.batch == 0) return &no_images;
  if (!depthwise_groups(c)) return &not_depthwise;
  if (const Rule *rule = broken_tiles(c)) return rule;
  if (c.window[1] * c.window[2] < kLeastTaps) return &taps_few;
  if (c.window[2] > kColumns || c.window[1] > kRows) return &taps_many;
  if (c.stride[1] * c.stride[2] * c.dilation[1] * c.dilation[2] != 1) return &strided;
  if (c.window[0] > kMostPlanes) return &window_deep;
  if (!readable(c, x_strides(c)) || !readable(c, y_strides(c))) return &unaligned;
  if (Wide(p.batch) * c.out.product() >= kMost / 2 || Wide(p.filters) * c.taps >= kMost / 2 || p.channels >= kMost / 2)
    return &pixels_many;
  return tiles_of(s, c, 1).lines ? nullptr : &no_room;
}

}  // namespace depthwise_mma
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
