// What the emulated headers call: one function for each thing a Hopper thread can do.
#pragma once
#include <stdint.h>

namespace emulated {

enum Element { bf16_element, fp16_element, e4m3_element, e5m2_element, int8_element, tf32_element };

uint32_t shared_address(const void *p);
char *dynamic_shared();
uint32_t cluster_rank();
void cluster_sync(bool releases);  // what was written before it can be read by neighbours behind it
const char *neighbour(const void *p, uint32_t bytes, uint32_t rank);  // the same place in another block of the cluster
void named_barrier(int id, int threads, bool waits);
void fence_async_proxy();
void wait_for_kernel_before();
void warp_exchange(const void *mine, int bytes, int other_lane, void *theirs);
void read_matrices(uint32_t *to, const void *row);
void store_matrices(void *row, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth, bool transposed);

void barrier_init(void *word, uint32_t arrivals);
void barrier_arrive(void *word, uint32_t bytes, int rank);  // rank -1: this block
void barrier_wait(void *word, uint32_t phase);

void copy_box(const void *map, void *word, void *to, int x, int y, int z, uint32_t blocks);  // blocks 0: this one
void copy_rows(const void *map, void *word, void *to, int x, int y, int z, int w);
void copy_pixels(const void *map, void *word, void *to, const int *at, const int *tap, uint32_t blocks);
void copy_bytes(const void *from, void *word, void *to, uint32_t bytes, uint32_t blocks);
void store_box(const void *map, const void *from, int x, int y, int z);
void add_rows(const void *map, const void *from, int x, int y, int z, int w);  // to fp32 that are there
void commit_stores();
void wait_stores(int left);
void wait_written(int left);

void wgmma_fence();
void wgmma(Element kind, int columns, int major_a, int major_b, void *accum, uint64_t a, uint64_t b, int add);
// A from registers: four words a thread, which stay as they are until the product is done.
void wgmma_registers(Element kind, int columns, int major_b, void *accum, const uint32_t *a, uint64_t b, int add);
void wgmma_commit();
void wgmma_wait(int left);

// Memory other blocks read: a store is seen by them after a fence only.
void store_late(void *to, const void *value, int bytes);
void load_late(const void *from, void *value, int bytes);
void thread_fence();
void spin(const char *what);
void changed();

// A kernel's functions, with their parameters as a launch has them.
using Entry = void (*)(void **parameters);
struct Function {
  const char *name;
  Entry entry;
  Function *next;
  Function(const char *symbol, Entry code);
};

// For instructions that are emulated elsewhere (ampere.cpp).
struct Where {
  uint64_t wave;
  int thread, block;
  uint64_t barriers;
};  // wave: of blocks that run together
Where where();
uint32_t shared_size();
uint32_t shared_offset(const void *p, uint32_t bytes, const char *what);
bool lands_at_once();
void warp_all(const void *mine, int bytes, char (*all)[48]);  // what every lane brought
[[noreturn]] void stop(const char *why);

// The driver's calls, by name.
void *find(const char *name);

}  // namespace emulated
