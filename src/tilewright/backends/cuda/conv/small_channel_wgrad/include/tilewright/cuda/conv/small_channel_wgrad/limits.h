// small_channel_wgrad: gradients of weights of few channels; lines of a row of x are operands as they lie.  What it refuses.
#pragma once
#include <tilewright/cuda/conv/limits.h>

namespace tw {
namespace selection {
namespace cuda_conv {
namespace small_channel_wgrad {

// `filter_rows`: of the filter; `lines`: of 16 bytes of a row of the window that a warpgroup accumulates; `shared_bytes`: of the arch.
#define TW_SELECT_CUDA_CONV_SMALL_CHANNEL_WGRAD(X) X(filter_rows) X(lines) X(stages) X(most_processors) X(shared_bytes)
TW_SELECT_STRUCT(Schedule, int, TW_SELECT_CUDA_CONV_SMALL_CHANNEL_WGRAD)

constexpr int64_t kMostChannels = 8, kMostWidth = 64, kMostStride = 8, kMostHigh = 16, kMostSegment = 256;
constexpr int64_t kBeside = 256 + 1024, kLatency = 1500;  // bytes of barriers and alignment; cycles

TW_CONV_RULE(grouped, "nv-groups", "there is more than one group")
TW_CONV_RULE(channels_many, "nv-small-channel", "there are more than 8 channels")
TW_CONV_RULE(rows_differ, "nv-small-channel", "this kernel is for filters of {filter_rows} rows, not {window_1}")
TW_CONV_RULE(dilated, "nv-small-channel", "the filter is dilated along its width")
TW_CONV_RULE(window_wide, "nv-small-channel", "the filter is wider than this kernel is made for")
TW_CONV_RULE(stride_large, "nv-small-channel", "a stride is over 8")
TW_CONV_RULE(no_room, "nv-shared-memory", "the rows of pixels do not fit into shared memory")

// Whether two pixels of four channels make a line of 16 bytes.
inline bool narrow(const Conv &c) { return c.p.channels <= 4 && c.stride[2] % 2 == 0; }
// Of a row of the window.
inline int64_t lines_of(const Conv &c) { return ceil_div(c.window[2] * (narrow(c) ? 4 : 8), 8); }

// Results of a stage, across and down, how many blocks share the stages, and about how many cycles all take.
struct Stage {
  int64_t segment, high, parts, cycles;  // high: 0 where no stage fits
};

// conv/small_channel_wgrad/host.h; whether there is one does not depend on the number of multiprocessors.
inline Stage laid(const Schedule &s, const Conv &c, int64_t processors) {
  const int64_t phases = narrow(c) ? c.stride[2] / 2 : c.stride[2];
  const int64_t segments = ceil_div(round_up(c.out[2], 16), kMostSegment);
  const int64_t segment = round_up(ceil_div(c.out[2], segments), 16), row = segment + (lines_of(c) - 1) / phases;
  const int64_t items = ceil_div(c.p.filters, 64) * c.window[0], each = 8 * s.filter_rows;
  Stage best{};
  for (int64_t high = 1; high <= smaller(kMostHigh, larger(1, c.out[1])); ++high) {
    const int64_t rows = (high - 1) * c.stride[1] + (s.filter_rows - 1) * c.dilation[1] + 1;
    const int64_t met = rows * phases * row, read = smaller(high * c.stride[1], rows) * phases * row;
    const int64_t bytes = segment * high * 128 + round_up(met * 16, 1024);
    if (s.stages * bytes + kBeside > s.shared_bytes) break;
    const int64_t stages = ceil_div(c.out[2], segment) * ceil_div(c.out[1], high) * c.out[0] * c.p.batch;
    const int64_t parts = smaller(larger(1, processors / items), stages);
    const int64_t products = segment * high / 16 * 2 * s.lines * larger(each / 2, 16 + each / 4);
    const int64_t spread = kLatency + 4 * read + (met - read) / 2;
    const int64_t longest = larger(larger(products, spread), segment * high * 15 / 2);
    const int64_t rounds = ceil_div(stages, parts) * ceil_div(items * parts, processors);
    const int64_t cycles = (rounds - 1) * longest + kLatency + 4 * met + products;
    if (!best.high || cycles < best.cycles) best = {segment, high, parts, cycles};
  }
  return best;
}

// conv/small_channel_wgrad/host.h.
inline const Rule *limits(const Schedule &s, const Conv &c) {
  const ConvProblem &p = c.p;
  if (p.batch == 0) return &no_images;
  if (p.groups != 1) return &grouped;
  if (p.channels > kMostChannels) return &channels_many;
  if (!c.channels_last()) return &channels_apart;
  if (!even_taps(c)) return &taps_uneven;
  if (c.out[0] > 1 && p.batch > 1 && p.y_image != p.y_0 * c.out[0]) return &planes_uneven;
  if (c.window[1] != s.filter_rows) return &rows_differ;
  if (c.dilation[2] != 1) return &dilated;
  if (c.window[2] > kMostWidth || lines_of(c) > 2 * s.lines) return &window_wide;
  if (c.stride[2] > kMostStride) return &stride_large;
  if (!readable(c, y_strides(c))) return &unaligned;
  const Wide weights = Wide(p.filters) * c.taps * c.group_channels;
  if (Wide(p.batch) * c.out.product() >= kMost / 2 || p.filters >= kMost / 2 || weights * s.most_processors >= kMost)
    return &pixels_many;
  return laid(s, c, 1).high ? nullptr : &no_room;
}

}  // namespace small_channel_wgrad
}  // namespace cuda_conv
}  // namespace selection
}  // namespace tw
