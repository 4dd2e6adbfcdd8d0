// What kernels of the ws family count with, and so does their cost.
#pragma once

namespace tw {

constexpr int least_tiles = 4;   // of a share
constexpr int short_stream = 4;  // tiles of keys up to which an item of a stream is met wholly (scores.h)

}  // namespace tw
