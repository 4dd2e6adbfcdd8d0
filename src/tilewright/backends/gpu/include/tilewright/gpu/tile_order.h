// Which work a block (or a cluster of blocks) does, in which order: the same answer for everybody in it.
//
// `data_parallel`: whole tiles, one after the other.  `stream_k`: the k-blocks of the first `streamed` tiles, laid end to
// end and cut into equal stretches; then whole tiles.  (Streamed workers are at different places of k and
// share little of what they fetch, so only what would not fill a round is dealt out so.)  `split_k`: each
// tile's k-blocks in `parts` equal splits, one for each worker.  `cluster_k`: the splits of a tile are the blocks of one
// worker, each of which says which `part` it is.
#pragma once
#include <tilewright/gpu/device.h>

namespace tw {

enum class TileScheduler { data_parallel, stream_k, split_k, cluster_k };

struct TileOrder {
  int batch, tiles_m, tiles_n;  // tiles_m and tiles_n count what one worker makes at a time
  int group;                    // rows of tiles finished before the next columns
  int steps;                    // of k in a tile
  int share;                    // stream_k, split_k: k-blocks of one worker
  int parts;                    // split_k: workers of one tile, cluster_k: blocks; 1 for the others
  int streamed;                 // stream_k: tiles that are cut; 0 for the others
};

struct Segment {
  int m, n, z, k0, k1, tile, part;
};

#ifdef TW_ON_GPU

// Short: kernels of short problems, which wait for every division.  Those of multistage have all registers taken, and the
// compiler moves some to memory unless divisions are the signed ones.
template <TileScheduler Way, bool Short = true> struct Work {
  const TileOrder &x;
  int at, end;               // whole tiles or splits, `workers` apart
  int step, steps, workers;  // stream_k: the worker's stretch
  int part;                  // cluster_k: the block's

  TW_GPU Work(const TileOrder &order, int worker, int count, int block = 0) : x(order), workers(count), part(block) {
    at = worker + x.streamed;
    end = x.tiles_m * x.tiles_n * x.batch * (Way == TileScheduler::split_k ? x.parts : 1);
    step = worker * x.share;
    steps = x.streamed * x.steps;
    if (steps > step + x.share) steps = step + x.share;
  }
  TW_GPU bool next(Segment &s) {
    int index = at;
    s.k0 = 0;
    s.k1 = x.steps;
    s.part = 0;
    if (Way == TileScheduler::stream_k && step < steps) {
      index = step / x.steps;
      s.k0 = step - index * x.steps;
      if (s.k1 > s.k0 + steps - step) s.k1 = s.k0 + steps - step;
      step += s.k1 - s.k0;
    } else {
      if (at >= end) return false;
      at += workers;
    }
    if constexpr (Way == TileScheduler::split_k) {
      // Neighbours work on the same k of different tiles, and find each other's operands in the cache.
      const int tiles = x.tiles_m * x.tiles_n * x.batch;
      s.part = int(unsigned(index) / unsigned(tiles));
      index -= s.part * tiles;
      s.k0 = s.part * x.share;
      if (s.k1 > s.k0 + x.share) s.k1 = s.k0 + x.share;
    }
    if constexpr (Way == TileScheduler::cluster_k) {
      s.part = part;
      // K-blocks times splits are below 2^31, as the host sees to it: a longer division is a call.
      s.k0 = int(unsigned(x.steps) * unsigned(part) / unsigned(x.parts));
      s.k1 = int(unsigned(x.steps) * unsigned(part + 1) / unsigned(x.parts));
    }
    s.tile = index;
    if constexpr (Short) lay(unsigned(index), s);
    else lay(index, s);
    return true;
  }

 private:
  // Bands of `group` rows: the columns of B a band needs stay in the cache.  Nobody divides who need not.
  TW_GPU void lay(unsigned rest, Segment &s) const {
    const unsigned rows = unsigned(x.tiles_m), columns = unsigned(x.tiles_n), group = unsigned(x.group);
    unsigned z = 0, first = 0, height = rows;
    if (x.batch > 1) {
      z = rest / (rows * columns);
      rest -= z * (rows * columns);
    }
    if (group < rows) {
      const unsigned band = rest / (group * columns);
      rest -= band * (group * columns);
      first = band * group;
      height = group < rows - first ? group : rows - first;
    }
    const unsigned column = rest / height;
    s.z = int(z), s.m = int(first + rest - column * height), s.n = int(column);
  }
  TW_GPU void lay(int index, Segment &s) const {
    const int per = x.tiles_m * x.tiles_n;
    s.z = index / per;
    index -= s.z * per;
    const int band = x.group * x.tiles_n, first = index / band * x.group, inside = index % band;
    const int height = x.group < x.tiles_m - first ? x.group : x.tiles_m - first;
    s.m = first + inside % height;
    s.n = inside / height;
  }
};

#endif
}  // namespace tw
