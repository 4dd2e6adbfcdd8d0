// The driver's calls that a kernel's host half makes, over the emulated GPU.
#include <stdlib.h>
#include <string.h>

#include "launch.h"
#include "tensor_map.h"

namespace emulated {
namespace {

int multiprocessors = 4;
std::string report;

struct LaunchAttribute {
  int id;
  char pad[4];
  uint32_t value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
};
int allowed_shared = 48 * 1024;

int get_context(void **context) {
  *context = &report;
  return 0;
}
int get_device(int *device) {
  *device = 0;
  return 0;
}
int device_attribute(int *value, int which, int) {
  *value = which == 16 ? multiprocessors : which == 75 ? 9 : 0;
  return 0;
}
int set_attribute(void *, int which, int value) {
  if (which == 8 && value > most_shared_bytes) return 1;
  if (which == 8) allowed_shared = value;
  return 0;
}
// A multiprocessor holds two blocks of a kernel that asks for little.
int held(unsigned shared) { return shared <= 64 * 1024 ? 2 : 1; }
int launch(const LaunchConfig *c, void *function, void **arguments, void **) {
  unsigned cluster = 1;
  bool early = false;
  for (unsigned i = 0; i < c->attribute_count; ++i)
    if (c->attributes[i].id == 4)
      cluster = c->attributes[i].value[0] * c->attributes[i].value[1] * c->attributes[i].value[2];
    else if (c->attributes[i].id == 6) early = c->attributes[i].value[0] != 0;
  if (int(c->shared_bytes) > allowed_shared || c->grid[0] % cluster || cluster > 8 || c->grid[0] == 0 ||
      c->block[0] > 1024) {
    report = "a launch the driver refuses";
    return 1;
  }
  report = run(Launch{reinterpret_cast<Entry>(function), arguments, c->grid, c->block[0], cluster, c->shared_bytes,
                      cluster == 1 ? multiprocessors * held(c->shared_bytes) : multiprocessors, early});
  return report.empty() ? 0 : 719;
}
int encode(void *to, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int, int fill) {
  static const int bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
  if (rank < 3 || rank > 4 || type < 0 || type > 11 || interleave || fill || uintptr_t(address) % 16) return 1;
  Map m{};
  m.bytes = uint8_t(bytes_of[type]);
  m.swizzle = uint8_t(swizzle);
  m.type = uint8_t(type);
  m.mark = map_mark;
  m.rank = uint8_t(rank);
  m.address = uint64_t(uintptr_t(address));
  if (rank == 4 && box[3] != 1) return 1;
  for (uint32_t i = 0; i < rank; ++i) {
    if (!sizes[i] || sizes[i] > uint64_t(1) << 32 || !box[i] || box[i] > 256 || steps[i] != 1) return 1;
    m.sizes[i] = sizes[i];
    if (i < 3) m.box[i] = uint16_t(box[i]);
    if (i + 1 < rank && (strides[i] % 16 || strides[i] >= uint64_t(1) << 40)) return 1;
    if (i + 1 < rank) m.strides[i] = strides[i];
  }
  const uint32_t row = box[0] * uint32_t(m.bytes);
  if (row % 16 || swizzle < 0 || swizzle > 3 || (swizzle && row > 16u << swizzle)) return 1;
  memset(to, 0, 128);
  memcpy(to, &m, sizeof m);
  return 0;
}
int encode_pixels(void *to, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
                  const int *lower, const int *upper, uint32_t channels, uint32_t pixels, const uint32_t *steps,
                  int interleave, int swizzle, int, int fill) {
  static const int bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
  if (rank < 4 || rank > 5 || type < 0 || type > 11 || interleave || fill || uintptr_t(address) % 16) return 1;
  const int reach = rank == 4 ? 128 : 16;
  Map m{};
  m.bytes = uint8_t(bytes_of[type]), m.swizzle = uint8_t(swizzle), m.type = uint8_t(type), m.rank = uint8_t(rank);
  m.mark = map_mark, m.pixels = true;
  m.address = uint64_t(uintptr_t(address));
  m.box[0] = uint16_t(channels), m.box[1] = uint16_t(pixels);
  for (uint32_t i = 0; i < rank; ++i) {
    if (!sizes[i] || sizes[i] > uint64_t(1) << 32 || !steps[i] || steps[i] > 8) return 1;
    m.sizes[i] = sizes[i];
    if (i + 1 < rank && (strides[i] % 16 || strides[i] >= uint64_t(1) << 40)) return 1;
    if (i + 1 < rank) m.strides[i] = strides[i];
  }
  for (uint32_t i = 0; i + 2 < rank; ++i) {
    if (lower[i] < -reach || lower[i] >= reach || upper[i] < -reach || upper[i] >= reach) return 1;
    if (lower[i] > int64_t(sizes[1 + i]) - 1 + upper[i]) return 1;
    m.corners[i] = int16_t(lower[i]), m.corners[3 + i] = int16_t(upper[i]), m.steps[i] = uint8_t(steps[1 + i]);
  }
  const uint32_t row = channels * m.bytes;
  if (!channels || channels > 256 || !pixels || pixels > 1024 || row % 16 || (swizzle && row > 16u << swizzle))
    return 1;
  memset(to, 0, 128);
  memcpy(to, &m, sizeof m);
  return 0;
}
int no_module(void **, const void *) { return 200; }
int module_of(void **module, void *) {
  *module = &report;
  return 0;
}
int resident(int *most, void *, const LaunchConfig *c) {
  *most = multiprocessors / int(c->attributes[0].value[0]);
  return 0;
}
int together(int *most, void *, int, size_t shared) {
  *most = held(unsigned(shared));
  return 0;
}
// Functions make themselves known when the library is loaded.
Function *&functions() {
  static Function *all = nullptr;
  return all;
}
int find_function(void **function, void *, const char *name) {
  for (Function *one = functions(); one; one = one->next)
    if (!strcmp(one->name, name)) {
      *function = reinterpret_cast<void *>(one->entry);
      return 0;
    }
  return 500;
}

}  // namespace

Function::Function(const char *symbol, Entry code) : name(symbol), entry(code), next(functions()) {
  functions() = this;
}

void *find(const char *name) {
  static const struct {
    const char *name;
    void *function;
  } all[] = {
      {"cuCtxGetCurrent", reinterpret_cast<void *>(&get_context)},
      {"cuCtxGetDevice", reinterpret_cast<void *>(&get_device)},
      {"cuDeviceGetAttribute", reinterpret_cast<void *>(&device_attribute)},
      {"cuModuleLoadData", reinterpret_cast<void *>(&no_module)},
      {"cuModuleGetFunction", reinterpret_cast<void *>(&find_function)},
      {"cuFuncGetModule", reinterpret_cast<void *>(&module_of)},
      {"cuOccupancyMaxActiveClusters", reinterpret_cast<void *>(&resident)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", reinterpret_cast<void *>(&together)},
      {"cuFuncSetAttribute", reinterpret_cast<void *>(&set_attribute)},
      {"cuLaunchKernelEx", reinterpret_cast<void *>(&launch)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void *>(&encode)},
      {"cuTensorMapEncodeIm2col", reinterpret_cast<void *>(&encode_pixels)},
  };
  for (auto &one : all)
    if (!strcmp(one.name, name)) return one.function;
  return nullptr;
}

}  // namespace emulated

extern "C" __attribute__((visibility("default"))) void tw_emulate(int mode, uint64_t seed, int multiprocessors) {
  emulated::configure(mode, seed);
  emulated::multiprocessors = multiprocessors;
}
extern "C" __attribute__((visibility("default"))) const char *tw_emulated_report() { return emulated::report.c_str(); }
