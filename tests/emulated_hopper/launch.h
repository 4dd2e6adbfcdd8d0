// What the emulated driver asks of the emulated GPU.
#pragma once
#include <stdint.h>

#include <string>

#include "hopper.h"

namespace emulated {

constexpr int most_shared_bytes = 232448;

struct Launch {
  Entry entry;
  void **parameters;
  const unsigned *grid;
  unsigned block, cluster, shared_bytes;
  int multiprocessors;
  bool early;  // while the kernel before it still runs, as far as this one can know
};

// Runs a grid to its end; what went wrong, or nothing.
std::string run(const Launch &launch);

// When copies and products land: 0 as late as waits allow, 1 at once, 2 by chance.
void configure(int how, uint64_t seed);

}  // namespace emulated
