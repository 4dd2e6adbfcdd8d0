// How the host's half of a kernel, of whichever op, finds its functions in a context and launches them.
// A launch allocates nothing and waits for nothing, so it can be captured in a graph; the first one in
// a context loads the code.
#pragma once
#include <tilewright/abi.h>
#include <tilewright/cuda/host/driver.h>
#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#endif

namespace tw::cuda {

inline int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// A driver's error as a kernel answers it.
inline int status_of(int error) { return error ? TW_DEVICE | error << 8 : TW_OK; }

// How a function is launched: what decides how many blocks run at a time, and what else the driver must have.
struct LaunchShape {
  unsigned threads, shared_bytes = 0, cluster = 1;
  bool tensor_maps = false;
  bool early = false;  // it may start before the kernel before it is done, and waits for that one itself
  // What runs before it leaves as much of the first-level cache to shared memory as it needs: a multiprocessor divides it
  // anew only when it is empty, and nobody would come in early.
  bool copies_before = false;
};

// Whether kernels of a Config can wait for the kernel before them: those of archs before sm_90 say `one_by_one`.
template <class Config, class = void> struct can_overlap {
  static constexpr bool value = true;
};
template <class Config> struct can_overlap<Config, decltype(void(Config::one_by_one))> {
  static constexpr bool value = !Config::one_by_one;
};

struct Grid {
  unsigned blocks, batch = 1, rest = 1;
};

// The status of queueing a function with these arguments on a stream.
template <class... Args>
int start(Function function, const Grid &grid, const LaunchShape &shape, void *stream, Args &...args) {
  LaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.cluster > 1) attributes[count++] = {cluster_dimension, {}, {shape.cluster, 1, 1}};
  if (shape.early) attributes[count++] = {early_launch, {}, {1}};
  LaunchConfig config{
      {grid.blocks, grid.batch, grid.rest}, {shape.threads, 1, 1}, shape.shared_bytes, stream, attributes, count};
  void *parameters[] = {&args...};
  return status_of(driver().launch(&config, function, parameters, nullptr));
}

// A kernel's functions in each context that used it, loaded on first use.
struct Loaded {
  static constexpr int most_functions = 4, most_places = 16;
  struct Place {
    Context context;
    Function functions[most_functions];  // in the order of `symbols`
    int multiprocessors, clusters;       // clusters that run at a time
    int ctas_per_sm;                     // at a time
  };
  const char *symbols[most_functions];  // the kernel itself, then what it has beside that; null where there is no more
  const void *(*image)();
  Lock lock{};
  int count = 0;
  Place places[most_places] = {};

  // 0 and the place, or the driver's error.
  int get(Place &place, const LaunchShape &shape) {
    const Driver &cu = driver();
    if (!cu.whole) return 3;  // CUDA_ERROR_NOT_INITIALIZED
    if (shape.tensor_maps && !cu.encode) return needs_newer_driver;
    Context context = nullptr;
    if (int error = cu.get_context(&context)) return error;
    if (!context) return 201;  // CUDA_ERROR_INVALID_CONTEXT
    lock.take();
    int error = 0, at = 0;
    while (at < count && places[at].context != context) ++at;
    if (at == count) error = load(places[at % most_places], context, shape);
    place = places[at % most_places];
    lock.give();
    return error;
  }

 private:
  static constexpr int needs_newer_driver = 36;

  int load(Place &to, Context context, const LaunchShape &shape) {
    const Driver &cu = driver();
    Place made{context, {}, 0, 0, 1};
    int error = find(made), device = 0;
    if (!error && shape.shared_bytes > 48 * 1024)
      error = cu.set_attribute(made.functions[0], max_dynamic_shared, int(shape.shared_bytes));
    for (int i = 1; !error && shape.copies_before && i < most_functions && made.functions[i]; ++i)
      error = cu.set_attribute(made.functions[i], shared_share, 100);
    if (!error) error = cu.get_device(&device);
    if (!error) error = cu.device_attribute(&made.multiprocessors, multiprocessors, device);
    if (!error) error = count_clusters(made, shape);
    if (!error && shape.cluster == 1 && cu.occupancy)
      error = cu.occupancy(&made.ctas_per_sm, made.functions[0], int(shape.threads), shape.shared_bytes);
    if (error) return error;
    to = made;
    if (count < most_places) ++count;
    return 0;
  }

  int find(Place &made) {
    const Driver &cu = driver();
    void *module = nullptr;
#ifdef __CUDACC__
    cudaFunction_t found = nullptr;
    int error = cudaGetFuncBySymbol(&found, image());
    made.functions[0] = found;
    if (!error && symbols[1]) error = cu.module_of ? cu.module_of(&module, found) : needs_newer_driver;
#else
    int error = cu.load(&module, image());
    if (!error) error = cu.find(&made.functions[0], module, symbols[0]);
#endif
    for (int i = 1; !error && i < most_functions && symbols[i]; ++i)
      error = cu.find(&made.functions[i], module, symbols[i]);
    return error;
  }

  // Not every multiprocessor has neighbours left to form a cluster with.
  static int count_clusters(Place &made, const LaunchShape &shape) {
    const Driver &cu = driver();
    made.clusters = made.multiprocessors / int(shape.cluster);
    if (shape.cluster == 1 || !cu.resident) return 0;
    LaunchAttribute attribute{cluster_dimension, {}, {shape.cluster, 1, 1}};
    LaunchConfig config{{shape.cluster, 1, 1}, {shape.threads, 1, 1}, shape.shared_bytes, nullptr, &attribute, 1};
    int most = 0;
    if (int error = cu.resident(&most, made.functions[0], &config)) return error;
    if (most > 0 && most < made.clusters) made.clusters = most;
    return 0;
  }
};

}  // namespace tw::cuda
