// An emulated Hopper GPU: blocks in clusters, shared memory, barriers, TMA, wgmma.
// As PTX documents them; where it leaves the moment open, the worst one is taken: copies and products land when nobody
// can go on without them (`late`), at once (`eager`), or whenever chance says (`random`).  What is not there yet is poison.
#include "hopper.h"

#include <stdlib.h>
#include <string.h>

#include "fibers.h"
#include "launch.h"
#include "machine.h"

struct Index {
  unsigned x, y, z;
};
Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
namespace {

enum Mode { late, eager, chance };
Mode mode = late;
uint64_t state = 1;
Scheduler scheduler;

uint32_t dice(uint32_t sides) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return uint32_t(state >> 33) % sides;
}
[[noreturn]] void fault(const std::string &why) { scheduler.fail(why); }
std::string number(long long x) { return std::to_string(x); }

constexpr uint32_t window = 1024 + 16;  // where dynamic shared memory starts: not aligned for anybody
constexpr uint32_t fence_bytes = 4096;
constexpr uint64_t barrier_mark = 0x6d62617272696572;
constexpr int poison = 0xff;

std::vector<Thread> threads;
std::vector<Block> blocks;
std::vector<Cluster> clusters;
std::vector<Copy> copies;
std::vector<Store> stores;
uint32_t shared_bytes;
Entry kernel;
void **parameters;
bool early = false;  // the kernel was launched before the one before it was done

Thread &me() { return threads[size_t(scheduler.current())]; }

uint32_t offset_of(const void *p, uint32_t bytes, const char *what) {
  Block &b = *me().block;
  long long at = static_cast<const char *>(p) - b.base();
  if (at < 0 || at + bytes > shared_bytes) fault(std::string(what) + " outside the shared memory asked for");
  return uint32_t(at);
}

TransactionBarrier &barrier_of(Block &b, uint32_t offset) {
  uint64_t word;
  memcpy(&word, b.base() + offset, 8);
  auto found = b.barriers.find(offset);
  if (found == b.barriers.end()) fault("a barrier at +" + number(offset) + " that was never made");
  if (word != barrier_mark)
    fault("the barrier at +" + number(offset) + " of block " + number(b.number) + " was overwritten");
  return found->second;
}
void complete(TransactionBarrier &t) {
  ++scheduler.progress;
  if (t.pending || t.bytes) return;
  t.phase ^= 1;
  t.pending = t.expected;
}

void land(size_t which) {
  Copy c = copies[which];
  copies.erase(copies.begin() + long(which));
  char *base = c.block->base();
  const auto put = [&](uint32_t to, const char *from) {
    to += c.offset;
    if (from) memcpy(base + to, from, size_t(c.map.bytes));
    else memset(base + to, 0, size_t(c.map.bytes));
    if (c.map.type == 11) round_tf32(base + to);
  };
  if (c.is_box && c.map.pixels) each_pixel(c.map, c.at, c.tap, window + c.offset, put);
  else if (c.is_box) each_element(c.map, c.at, window + c.offset, false, put);
  else memcpy(base + c.offset, c.from, c.bytes);
  TransactionBarrier &t = barrier_of(*c.block, c.barrier);
  t.bytes -= c.bytes;
  complete(t);
}
void read(Store &s) {
  if (s.read) return;
  s.read = true;
  s.data.clear();
  char *base = s.block->base();
  each_element(s.map, s.at, window + s.offset, true, [&](uint32_t from, char *) {
    s.data.insert(s.data.end(), base + s.offset + from, base + s.offset + from + s.map.bytes);
  });
}
void write(Store &s) {
  read(s);
  if (s.written) return;
  s.written = true;
  size_t next = 0;
  if (s.adds) {
    each_element(s.map, s.at, window + s.offset, false, [&](uint32_t, char *to) {
      float old, more;
      if (to) {
        memcpy(&old, to, 4), memcpy(&more, s.data.data() + next, 4);
        old += more;
        memcpy(to, &old, 4);
      }
      next += 4;
    });
    return;
  }
  // Hopper writes whole 16-byte pieces: a row that ends inside one is written past its end.
  each_element(s.map, s.at, window + s.offset, true, [&](uint32_t, char *to) {
    if (to) memcpy(to, s.data.data() + next, size_t(s.map.bytes));
    next += size_t(s.map.bytes);
  });
}

void queue(Copy c) {
  if (!c.block->alive) fault("a copy into block " + number(c.block->number) + ", which has ended");
  if (c.offset + c.bytes > shared_bytes) fault("a copy behind shared memory");
  barrier_of(*c.block, c.barrier);
  for (const Copy &o : copies)
    if (o.block == c.block && o.offset < c.offset + c.bytes && c.offset < o.offset + o.bytes)
      fault("two copies in flight into +" + number(c.offset) + " of block " + number(c.block->number));
  memset(c.block->base() + c.offset, poison, c.bytes);  // from now on nobody can rely on what was there
  copies.push_back(c);
  if (mode == eager) land(copies.size() - 1);
}

// What nobody waits for explicitly happens now.
bool idle() {
  if (copies.empty()) return false;
  land(mode == chance ? dice(uint32_t(copies.size())) : copies.size() - 1);  // the newest first
  return true;
}
void between() {
  if (mode != chance) return;
  if (!copies.empty() && dice(16) == 0) land(dice(uint32_t(copies.size())));
  if (!stores.empty() && dice(16) == 0) write(stores[dice(uint32_t(stores.size()))]);
}

void execute(Block &b, int group, Product &p) {
  p.executed = true;
  for (int t = 0; p.registers && t < 128; ++t)
    if (memcmp(p.left[t], p.words[t], sizeof p.words[t])) fault("registers of a wgmma were changed while it ran");
  static float accum[64 * 256];
  static int32_t whole[64 * 256];
  OperandReader reader{b.base(), window, shared_bytes, [](const std::string &why) { fault(why); }};
  if (p.kind == int8_element) multiply_integers(reader, p.columns, p.a, p.b, whole);
  else
    multiply_floats(reader, p.kind, p.columns, p.major_a, p.major_b, p.a, p.b, p.registers ? p.words : nullptr, accum);
  for (int t = 0; t < 128; ++t) {
    Thread &thread = threads[b.first + size_t(group * 128 + t)];
    uint32_t *values = nullptr;
    for (Accumulator &one : thread.accumulators)
      if (one.real == p.accum[t]) values = one.values.data();
    for (int i = 0; i < p.columns / 2; ++i) {
      int row = t / 32 * 16 + t % 32 / 4 + (i / 2 % 2) * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
      int from = row * p.columns + column;
      if (p.kind == int8_element) {
        int32_t old;
        memcpy(&old, values + i, 4);
        values[i] = uint32_t(p.add ? old : 0) + uint32_t(whole[from]);
      } else {
        float old;
        memcpy(&old, values + i, 4);
        float now = (p.add ? old : 0.0f) + accum[from];
        memcpy(values + i, &now, 4);
      }
    }
  }
}
void execute_to(Block &b, int group, uint64_t target) {
  Warpgroup &g = b.groups[size_t(group)];
  for (; g.executed < target; ++g.executed) execute(b, group, g.products[g.executed - g.first]);
}
// The sums of finished products appear in the registers.
void retire_to(Block &b, int group, uint64_t target) {
  Warpgroup &g = b.groups[size_t(group)];
  for (; g.retired < target; ++g.retired) {
    Product &p = g.products[g.retired - g.first];
    for (int t = 0; t < 128; ++t)
      for (Accumulator &one : threads[b.first + size_t(group * 128 + t)].accumulators)
        if (one.real == p.accum[t] && --one.in_flight == 0) memcpy(one.real, one.values.data(), one.values.size() * 4);
  }
  while (g.first < g.retired) g.products.pop_front(), ++g.first;
}

void flush(std::unordered_map<char *, Late> &written) {
  for (auto &[to, value] : written) memcpy(to, value.bytes, size_t(value.size));
  written.clear();
}

std::string name(int fiber) {
  Thread &t = threads[size_t(fiber)];
  return "block " + number(t.block->number) + " thread " + number(t.index);
}
void resumed(int fiber) {
  Thread &t = threads[size_t(fiber)];
  threadIdx.x = unsigned(t.index);
  blockIdx.x = unsigned(t.block->number) % gridDim.x;
  blockIdx.y = unsigned(t.block->number) / gridDim.x % gridDim.y;
  blockIdx.z = unsigned(t.block->number) / gridDim.x / gridDim.y;
}
void enter(int) {
  kernel(parameters);
  Thread &t = me();
  if (!t.committed.empty() && t.block->groups[size_t(t.index / 128)].retired < t.issued)
    fault("ended with products in flight");
  if (!t.open_stores.empty()) fault("ended with stores that were never committed");
  for (auto &group : t.store_groups)
    for (size_t s : group)
      if (!stores[s].read) fault("ended before TMA had read its results");
  flush(t.written);
  Block &b = *t.block;
  ++scheduler.progress;
  if (--b.alive) return;
  flush(b.written);
  for (const Copy &c : copies)
    if (c.block == &b) fault("ended with copies into its shared memory in flight");
  for (uint32_t i = shared_bytes; i < b.memory.size(); ++i)
    if (b.memory[i] != char(poison)) fault("something was written behind its shared memory");
}

// Some blocks of the grid, all at the same time.
uint64_t waves = 0;
bool run_together(unsigned first, unsigned count, unsigned block, unsigned cluster) {
  ++waves;
  copies.clear();
  stores.clear();
  blocks.assign(count, Block{});
  clusters.assign(count / cluster, Cluster{});
  threads.assign(size_t(count) * block, Thread{});
  for (unsigned i = 0; i < count; ++i) {
    Block &b = blocks[i];
    b.number = int(first + i), b.first = size_t(i) * block, b.rank = i % cluster, b.cluster = &clusters[i / cluster],
    b.alive = int(block);
    b.cluster->blocks.push_back(&b);
    b.cluster->threads += int(block);
    b.memory.assign(shared_bytes + fence_bytes, char(poison));
    b.dirty.assign(shared_bytes, 0);
    b.groups.resize((block + 127) / 128);
    b.warps.resize((block + 31) / 32);
    for (unsigned t = 0; t < block; ++t) threads[b.first + t].block = &b, threads[b.first + t].index = int(t);
  }
  bool ok = scheduler.run(int(threads.size()));
  while (ok && !stores.empty()) {  // in any order, after everything else
    size_t which = dice(uint32_t(stores.size()));
    write(stores[which]);
    stores[which] = std::move(stores.back());
    stores.pop_back();
  }
  return ok;
}

Map map_at(const void *p) {
  Map m;
  memcpy(&m, p, sizeof m);
  if (m.mark != map_mark) fault("a tensor map that was never encoded");
  return m;
}

}  // namespace

// As many blocks at a time as the multiprocessors hold; the next ones when all of these have ended.
std::string run(const Launch &l) {
  kernel = l.entry, parameters = l.parameters, early = l.early;
  const unsigned *grid = l.grid, block = l.block, cluster = l.cluster, shared = l.shared_bytes;
  const unsigned count = grid[0] * grid[1] * grid[2];
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block, 1, 1};
  threadIdx = blockIdx = {0, 0, 0};
  shared_bytes = shared;
  scheduler.entry = enter;
  scheduler.resumed = resumed;
  scheduler.idle = idle;
  scheduler.between = between;
  scheduler.name = name;
  unsigned each = shared ? unsigned(most_shared_bytes) / shared : 2048u;
  if (each > 2048 / block) each = 2048 / block;
  unsigned at_once = unsigned(l.multiprocessors) * each / cluster * cluster;
  if (at_once < cluster) at_once = cluster;
  for (unsigned first = 0; first < count; first += at_once)
    if (!run_together(first, first + at_once < count ? at_once : count - first, block, cluster))
      return scheduler.failure;
  return "";
}

void configure(int how, uint64_t seed) {
  mode = Mode(how);
  state = seed * 2 + 1;
  scheduler.seed = mode == chance ? seed + 1 : 0;
}

uint32_t shared_address(const void *p) { return window + offset_of(p, 0, "an address"); }
char *dynamic_shared() { return me().block->base(); }
uint32_t cluster_rank() { return me().block->rank; }
const char *neighbour(const void *p, uint32_t bytes, uint32_t rank) {
  const uint32_t at = offset_of(p, bytes, "a load from a neighbour");
  Cluster &c = *me().block->cluster;
  if (rank >= c.blocks.size()) fault("a load from block " + number(rank) + " of a cluster that has no such block");
  if (!c.released) fault("a load of what a neighbour wrote, behind a cluster barrier that releases nothing");
  if (!c.blocks[rank]->alive) fault("a load from block " + number(c.blocks[rank]->number) + ", which has ended");
  return c.blocks[rank]->base() + at;
}
void cluster_sync(bool releases) {
  Cluster &c = *me().block->cluster;
  uint64_t mine = c.generation;
  ++scheduler.progress;
  c.releases = c.releases && releases;
  if (++c.arrived == c.threads) c.arrived = 0, ++c.generation, c.released = c.releases, c.releases = true;
  scheduler.wait(
      [&] { return c.generation != mine; },
      [&] { return "cluster barrier: " + number(c.arrived) + " of " + number(c.threads) + " threads came"; });
}
void named_barrier(int id, int count, bool waits) {
  Thread &t = me();
  NamedBarrier &b = t.block->named[id];
  if (b.arrived && b.expected != count)
    fault("barrier " + number(id) + " with " + number(count) + " threads, others said " + number(b.expected));
  for (auto &one : t.written) t.block->written[one.first] = one.second;
  t.written.clear();
  b.expected = count;
  uint64_t mine = b.generation;
  ++scheduler.progress;
  if (++b.arrived == count) b.arrived = 0, ++b.generation;
  if (waits)
    scheduler.wait([&] { return b.generation != mine; },
                   [&] {
                     return "barrier " + number(id) + " of block " + number(t.block->number) + ": " +
                            number(b.arrived) + " of " + number(b.expected) + " threads came";
                   });
}
void fence_async_proxy() {
  Block &b = *me().block;
  Warp &w = b.warps[size_t(me().index / 32)];
  for (auto [at, bytes] : w.unfenced) memset(b.dirty.data() + at, 0, bytes);
  w.unfenced.clear();
}

// Every lane brings something; once all have, `last` runs once and each goes on.
template <class Last> static void warp_meet(const void *mine, int bytes, Last last, void *theirs, int other) {
  Thread &t = me();
  Warp &w = t.block->warps[size_t(t.index / 32)];
  uint64_t turn = w.generation;
  memcpy(w.slots[turn % 2][t.index % 32], mine, size_t(bytes));
  ++scheduler.progress;
  if (++w.deposited == 32) {
    last(w, w.slots[turn % 2]);
    w.deposited = 0;
    ++w.generation;
  }
  scheduler.wait([&] { return w.generation != turn; },
                 [&] { return "the other lanes of its warp: " + number(w.deposited) + " of 32 came"; });
  if (theirs) memcpy(theirs, w.slots[turn % 2][other], size_t(bytes));
}
void warp_exchange(const void *mine, int bytes, int other, void *theirs) {
  warp_meet(mine, bytes, [](Warp &, char (*)[48]) {}, theirs, other);
}
void warp_all(const void *mine, int bytes, char (*all)[48]) {
  Warp &w = me().block->warps[size_t(me().index / 32)];
  const uint64_t turn = w.generation;
  warp_meet(mine, bytes, [](Warp &, char (*)[48]) {}, nullptr, 0);
  memcpy(all, w.slots[turn % 2], sizeof w.slots[0]);
}
Where where() { return {waves, me().index, int(me().block - blocks.data()), me().block->named[0].generation}; }
uint32_t shared_size() { return shared_bytes; }
uint32_t shared_offset(const void *p, uint32_t bytes, const char *what) { return offset_of(p, bytes, what); }
bool lands_at_once() { return mode == eager || (mode == chance && dice(2)); }
void stop(const char *why) { fault(why); }
void store_matrices(void *row, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth, bool transposed) {
  struct Lane {
    uint32_t at, values[4];
  } lane{offset_of(row, 16, "stmatrix"), {first, second, third, fourth}};
  if (lane.at % 16) fault("stmatrix to a row that is not aligned to 16 bytes");
  Block &b = *me().block;
  warp_meet(
      &lane, sizeof lane,
      [&](Warp &w, char (*slots)[48]) {
        Lane all[32];
        for (int i = 0; i < 32; ++i) memcpy(&all[i], slots[i], sizeof(Lane));
        for (int i = 0; i < 32; ++i) {  // lane i says where row i % 8 of matrix i / 8 goes
          for (int j = 0; j < 8;
               ++j) {  // element j of the row: lane i % 8 * 4 + j / 2 has it, or of the column its turn
            const int line = transposed ? j : i % 8, column = transposed ? i % 8 : j;
            memcpy(b.base() + all[i].at + j * 2,
                   reinterpret_cast<const char *>(&all[line * 4 + column / 2].values[i / 8]) + column % 2 * 2, 2);
          }
          memset(b.dirty.data() + all[i].at, 1, 16);
          w.unfenced.push_back({all[i].at, 16});
        }
      },
      nullptr, 0);
}
void read_matrices(uint32_t *to, const void *row) {
  const uint32_t at = offset_of(row, 16, "ldmatrix");
  if ((window + at) % 16) fault("ldmatrix from a row that is not aligned to 16 bytes");
  char all[32][48];
  warp_all(&at, sizeof at, all);
  const int lane = me().index % 32;
  for (int i = 0; i < 4; ++i) {  // lane 8 i + j said where row j of matrix i is
    uint32_t from;
    memcpy(&from, all[i * 8 + lane / 4], sizeof from);
    memcpy(to + i, me().block->base() + from + lane % 4 * 4, 4);
  }
  // Nobody writes there before all have read.
  const char none = 0;
  warp_meet(&none, 1, [](Warp &, char (*)[48]) {}, nullptr, 0);
}

void barrier_init(void *word, uint32_t arrivals) {
  uint32_t at = offset_of(word, 8, "a barrier");
  memcpy(word, &barrier_mark, 8);
  me().block->barriers[at] = TransactionBarrier{arrivals, arrivals, 0, 0};
}
void barrier_arrive(void *word, uint32_t bytes, int rank) {
  Block *b = me().block;
  uint32_t at = offset_of(word, 8, "a barrier");
  if (rank >= 0) {
    if (rank >= int(b->cluster->blocks.size()))
      fault("arrives in block " + number(rank) + " of its cluster, which there is not");
    b = b->cluster->blocks[size_t(rank)];
  }
  if (!b->alive) fault("arrives in a block that has ended");
  TransactionBarrier &t = barrier_of(*b, at);
  if (!t.pending) fault("more arrivals at the barrier at +" + number(at) + " than it was made for");
  t.bytes += bytes;
  --t.pending;
  complete(t);
}
void barrier_wait(void *word, uint32_t phase) {
  Block *b = me().block;
  uint32_t at = offset_of(word, 8, "a barrier");
  TransactionBarrier &t = barrier_of(*b, at);
  scheduler.wait([&] { return t.phase != phase; },
                 [&] {
                   return "phase " + number(phase) + " of the barrier at +" + number(at) + " of block " +
                          number(b->number) + ": " + number(t.pending) + " arrivals and " + number(t.bytes) +
                          " bytes to come";
                 });
}

static void to_blocks(Copy c, uint32_t mask) {
  Block &b = *me().block;
  if (!mask) mask = 1u << b.rank;
  if (mask >> b.cluster->blocks.size()) fault("a copy to blocks that are not in its cluster");
  for (uint32_t i = 0; i < b.cluster->blocks.size(); ++i)
    if (mask >> i & 1) {
      c.block = b.cluster->blocks[i];
      queue(c);
    }
}
static void queue_box(Copy c, void *to, uint32_t mask = 0) {
  if (early && !me().block->waited) fault("a copy of what the kernel before may not have written yet");
  c.bytes = c.map.box[0] * c.map.box[1] * c.map.box[2] * uint32_t(c.map.bytes);
  c.offset = offset_of(to, c.bytes, "a copy");
  if (c.at[0] * c.map.bytes % 16) fault("a copy of a box that does not begin at a multiple of 16 bytes");
  if ((window + c.offset) % 128) fault("a copy to an address that is not a multiple of 128");
  to_blocks(c, mask);
}
void wait_for_kernel_before() { me().block->waited = true; }
void copy_box(const void *map, void *word, void *to, int x, int y, int z, uint32_t mask) {
  Copy c{true, map_at(map), {x, y, z}, {}, nullptr, 0, 0, offset_of(word, 8, "a barrier"), nullptr};
  if (c.map.pixels || c.map.rank != 3) fault("a box of a map of other dimensions");
  queue_box(c, to, mask);
}
void copy_rows(const void *map, void *word, void *to, int x, int y, int z, int w) {
  Copy c{true, map_at(map), {x, y, z, w}, {}, nullptr, 0, 0, offset_of(word, 8, "a barrier"), nullptr};
  if (c.map.pixels || c.map.rank != 4) fault("rows of a map of other dimensions");
  queue_box(c, to);
}
void copy_pixels(const void *map, void *word, void *to, const int *at, const int *tap, uint32_t mask) {
  Copy c{true, map_at(map), {}, {}, nullptr, 0, 0, offset_of(word, 8, "a barrier"), nullptr};
  const int spatial = c.map.rank - 2;
  if (!c.map.pixels) fault("pixels of a map of boxes");
  memcpy(c.at, at, sizeof c.at);
  for (int i = 0; i < spatial; ++i) {
    c.tap[i] = tap[i];
    if (tap[i] < 0 || tap[i] > (spatial == 2 ? 255 : 31)) fault("a tap that TMA cannot reach");
    if (at[1 + i] < c.map.corners[i] || at[1 + i] > (long long)c.map.sizes[1 + i] - 1 + c.map.corners[3 + i])
      fault("a walk over pixels that starts outside its corners");
  }
  if (at[0] * c.map.bytes % 16) fault("a walk over pixels that begins inside 16 bytes of channels");
  c.bytes = uint32_t(c.map.box[0]) * c.map.box[1] * c.map.bytes;
  c.offset = offset_of(to, c.bytes, "a copy");
  if ((window + c.offset) % 128) fault("a copy to an address that is not a multiple of 128");
  to_blocks(c, mask);
}
void copy_bytes(const void *from, void *word, void *to, uint32_t bytes, uint32_t mask) {
  if (uintptr_t(from) % 16 || bytes % 16 || !bytes) fault("a bulk copy that is not in multiples of 16 bytes");
  to_blocks(Copy{false,
                 {},
                 {},
                 {},
                 static_cast<const char *>(from),
                 bytes,
                 offset_of(to, bytes, "a copy"),
                 offset_of(word, 8, "a barrier"),
                 nullptr},
            mask);
}
static void store_part(const void *map, const void *from, int x, int y, int z, int w, bool adds) {
  Store s{};
  s.map = map_at(map);
  s.at[0] = x, s.at[1] = y, s.at[2] = z, s.at[3] = w;
  s.adds = adds;
  if (s.map.rank != (adds ? 4 : 3)) fault("a store to a map of other dimensions");
  if (adds && s.map.type != 7) fault("a sum of other elements than fp32");
  s.block = me().block;
  s.bytes = s.map.box[0] * s.map.box[1] * s.map.box[2] * uint32_t(s.map.bytes);
  s.offset = offset_of(from, s.bytes, "a store");
  if ((window + s.offset) % 128) fault("a store from an address that is not a multiple of 128");
  if (x * s.map.bytes % 16) fault("a store of a box that does not begin at a multiple of 16 bytes");
  for (uint32_t i = 0; i < s.bytes; ++i)
    if (s.block->dirty[s.offset + i]) fault("a store of what was written without fence.proxy.async since");
  stores.push_back(s);
  if (mode == eager) write(stores.back());
  me().open_stores.push_back(stores.size() - 1);
}
void store_box(const void *map, const void *from, int x, int y, int z) { store_part(map, from, x, y, z, 0, false); }
void add_rows(const void *map, const void *from, int x, int y, int z, int w) {
  if (early && !me().block->waited) fault("a sum onto what the kernel before may not have written yet");
  store_part(map, from, x, y, z, w, true);
}
void commit_stores() {
  Thread &t = me();
  t.store_groups.push_back(std::move(t.open_stores));
  t.open_stores.clear();
}
void wait_stores(int left) {
  Thread &t = me();
  for (size_t i = 0; i + size_t(left) < t.store_groups.size(); ++i)
    for (size_t s : t.store_groups[i]) read(stores[s]);
}
void wait_written(int left) {
  Thread &t = me();
  for (size_t i = 0; i + size_t(left) < t.store_groups.size(); ++i)
    for (size_t s : t.store_groups[i]) write(stores[s]);
}

}  // namespace emulated

#include "wgmma.h"

namespace emulated {

void store_late(void *to, const void *value, int bytes) {
  Late one{{}, bytes};
  memcpy(one.bytes, value, size_t(bytes));
  me().written[static_cast<char *>(to)] = one;
}
void load_late(const void *from, void *value, int bytes) {
  memcpy(value, from, size_t(bytes));
  char *key = static_cast<char *>(const_cast<void *>(from));
  for (auto *list : {&me().block->written, &me().written})
    if (!list->empty())
      if (auto found = list->find(key); found != list->end()) memcpy(value, found->second.bytes, size_t(bytes));
}
void thread_fence() {
  flush(me().written);
  flush(me().block->written);
  ++scheduler.progress;
}
void spin(const char *what) { scheduler.spin(what); }
void changed() { ++scheduler.progress; }

}  // namespace emulated
