// What an emulated Hopper GPU is made of, while it runs: clusters, blocks, warps, threads, and what is under way.
#pragma once
#include <stdint.h>

#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "products.h"
#include "tensor_map.h"

namespace emulated {

struct TransactionBarrier {
  uint32_t expected, pending, phase;
  long long bytes;
};
struct NamedBarrier {
  int arrived = 0, expected = 0;
  uint64_t generation = 0;
};
struct Product {
  Element kind;
  int columns, major_a, major_b, add, issued;
  uint64_t a, b;
  bool executed;
  void *accum[128];
  bool registers;             // A comes from these
  const uint32_t *left[128];  // where each thread keeps them
  uint32_t words[128][4];     // and what they were when it issued
};
struct Accumulator {
  void *real;
  std::vector<uint32_t> values;
  int in_flight;
};
struct Warpgroup {
  std::deque<Product> products;
  uint64_t first = 0, executed = 0, retired = 0;
};
struct Warp {
  int deposited = 0;
  uint64_t generation = 0;
  char slots[2][32][48];
  std::vector<std::pair<uint32_t, uint32_t>> unfenced;  // offset, bytes
};
struct Late {
  char bytes[16];
  int size;
};
struct Block;
struct Cluster {
  std::vector<Block *> blocks;
  int arrived = 0, threads = 0;
  uint64_t generation = 0;
  bool releases = true, released = false;  // all that came so far, and at the last barrier
};
struct Block {
  int number;
  size_t first;  // of its threads among those that run
  uint32_t rank;
  Cluster *cluster;
  std::vector<char> memory;  // the window, and a fence behind it
  std::unordered_map<uint32_t, TransactionBarrier> barriers;
  NamedBarrier named[16];
  std::vector<Warpgroup> groups;
  std::vector<Warp> warps;
  std::vector<uint8_t> dirty;  // written by a warp that has not fenced since
  std::unordered_map<char *, Late> written;
  int alive;
  bool waited = false;  // for the kernel before this one
  char *base() { return memory.data(); }
};
struct Copy {
  bool is_box;
  Map map;
  int at[5], tap[3];
  const char *from;  // of plain bytes
  uint32_t bytes, offset, barrier;
  Block *block;
};
struct Store {
  Map map;
  int at[4];
  bool adds;
  Block *block;
  uint32_t offset, bytes;
  bool read = false, written = false;
  std::vector<char> data;
};
struct Thread {
  Block *block;
  int index;
  bool fenced = false;
  uint64_t issued = 0;
  std::vector<uint64_t> committed;
  std::vector<Accumulator> accumulators;
  std::vector<size_t> open_stores;
  std::vector<std::vector<size_t>> store_groups;
  std::unordered_map<char *, Late> written;
};

}  // namespace emulated
