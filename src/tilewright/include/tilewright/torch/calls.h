// Calls of PyTorch's ops that were made before: found by what they are known by, and made without Python.  Of torch_ops.cpp.
#pragma once
#include <pthread.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include <tilewright/stages.h>
#include <tilewright/torch/arguments.h>

namespace {

constexpr int64_t most_slots = 64;

// A result, as PyTorch makes it.
struct Made {
  int64_t slot, dtype, device_type, device_index, rank, sizes[most_dimensions], strides[most_dimensions];
};
// Python's description of a call; copied.  One without stages is Python's to make, every time.
struct Plan {
  const Stage *stage;
  const Span *span;         // one a slot
  const int64_t *argument;  // of each slot; -1: none
  const double *scalar;
  const Made *made;  // the answer, in order
  int64_t stages, slots, scalars, mades, scratch_bytes, clear_bytes, between;
  int64_t device_type, device_index;
  uint64_t written;              // the slots of arguments that are written, a bit each
  void *team;                    // the stream of host kernels
  int (*current)(void *answer);  // the device that is current in this thread; null: the host
  uint64_t expected;
};

// A plan with memory of its own: nothing in it belongs to Python.
struct Prepared : Plan {
  std::vector<Stage> own_stages;
  std::vector<std::vector<char>> own_bytes;
  std::vector<Span> own_spans;
  std::vector<int64_t> own_arguments;
  std::vector<double> own_scalars;
  std::vector<Made> own_mades;
  mutable std::atomic<int64_t> used{0};

  explicit Prepared(const Plan &from) : Plan(from) {
    own_stages.assign(from.stage, from.stage + from.stages);
    own_spans.assign(from.span, from.span + from.slots);
    own_arguments.assign(from.argument, from.argument + from.slots);
    own_scalars.assign(from.scalar, from.scalar + from.scalars);
    own_mades.assign(from.made, from.made + from.mades);
    own_bytes.reserve(size_t(3 * from.stages));
    for (Stage &stage : own_stages) {
      stage.args = keep(stage.args, stage.bytes);
      stage.pointer = static_cast<const Pointer *>(keep(stage.pointer, stage.pointers * int64_t(sizeof(Pointer))));
      stage.scalar = static_cast<const Scalar *>(keep(stage.scalar, stage.scalars * int64_t(sizeof(Scalar))));
    }
    stage = own_stages.data(), span = own_spans.data(), argument = own_arguments.data();
    scalar = own_scalars.data(), made = own_mades.data();
  }

 private:
  const void *keep(const void *from, int64_t bytes) {
    auto *at = static_cast<const char *>(from);
    own_bytes.emplace_back(at, at + bytes);
    return own_bytes.back().data();
  }
};

// -- what is remembered ------------------------------------------------------------------------------------------------

struct HashOfKey {
  size_t operator()(const std::string &key) const { return size_t(hash_of(key.data(), ptrdiff_t(key.size()))); }
};
struct Cache {
  std::shared_mutex lock;
  std::unordered_map<std::string, std::shared_ptr<const Prepared>, HashOfKey> calls;
  std::atomic<int64_t> generation{1}, clock{0}, hits{0}, others{0};
  size_t most = 8192;

  std::shared_ptr<const Prepared> find(const Key &key) {
    thread_local std::string bytes;
    bytes.assign(key.bytes, size_t(key.size));
    std::shared_lock<std::shared_mutex> reading(lock);
    auto known = calls.find(bytes);
    if (known == calls.end()) return nullptr;
    known->second->used.store(++clock, std::memory_order_relaxed);
    return known->second;
  }
  // Unless what it was planned under has changed meanwhile.
  bool remember(const std::string &key, int64_t of_generation, std::shared_ptr<const Prepared> prepared) {
    prepared->used.store(++clock);
    std::unique_lock<std::shared_mutex> writing(lock);
    if (of_generation != generation) return false;
    calls[key] = std::move(prepared);
    if (calls.size() > most) drop_oldest();
    return true;
  }
  void forget() {
    decltype(calls) gone;
    std::unique_lock<std::shared_mutex> writing(lock);
    ++generation;
    gone.swap(calls);
  }
  int64_t size() {
    std::shared_lock<std::shared_mutex> reading(lock);
    return int64_t(calls.size());
  }

 private:
  // An eighth of them, those least recently used.
  void drop_oldest() {
    std::vector<int64_t> times;
    for (const auto &call : calls) times.push_back(call.second->used.load());
    const size_t drop = std::max<size_t>(1, times.size() / 8);
    std::nth_element(times.begin(), times.begin() + ptrdiff_t(drop - 1), times.end());
    const int64_t last = times[drop - 1];
    for (auto call = calls.begin(); call != calls.end();)
      call = call->second->used.load() <= last ? calls.erase(call) : std::next(call);
  }
};
Cache &cache() {
  static auto *only = new Cache;  // never freed: threads may call while the process ends
  return *only;
}

// -- memory ------------------------------------------------------------------------------------------------------------

// Scratch of host kernels: one buffer a thread, which grows and goes with the thread.
struct Scratch {
  char *memory = nullptr;
  int64_t held = 0;
  char *of(int64_t bytes) {
    void *more = nullptr;
    if (bytes <= held) return memory;
    if (posix_memalign(&more, 64, size_t(bytes))) return nullptr;
    free(memory);
    memory = static_cast<char *>(more), held = bytes;
    return memory;
  }
  ~Scratch() { free(memory); }
};
thread_local Scratch scratch;

// Bytes of PyTorch's allocator on the device of a plan, for the stream that is current there.
bool device_bytes(int64_t bytes, const Plan &plan, Owned &made, char *&at) {
  const int64_t stride = 1;
  const void *address = nullptr;
  if (shim.aoti_torch_empty_strided(1, &bytes, &stride, shim.aoti_torch_dtype_uint8(), int32_t(plan.device_type),
                                    int32_t(plan.device_index), &made.handle) ||
      shim.torch_get_const_data_ptr(made.handle, &address))
    return false;
  at = static_cast<char *>(const_cast<void *>(address));
  return true;
}
bool clear(Handle tensor, int64_t bytes) {
  const int64_t stride = 1;
  Owned part;
  return !shim.aoti_torch__reinterpret_tensor(tensor, 1, &bytes, &stride, 0, &part.handle) &&
         !shim.aoti_torch_zero_(part.handle);
}

// Memory that begins with zeros and is left so by kernels: that of a device's default stream, lent to one call at a time until
// its kernels are queued.  A call on any other stream has its own, cleared each time.  So whether the stream is captured is
// nobody's question here: the default stream never is, and memory for one call is of the pool of the graph, in which nothing
// but results may stay alive (PyTorch's compiler warms up with that pool before it captures).
struct Zeros {
  struct Place {
    int64_t device = 0, bytes = 0, cleared = 0;
    Owned memory;
    char *at = nullptr;
  };
  std::mutex lock;
  std::vector<std::unique_ptr<Place>> places;

  Place *of(const Plan &plan) {
    auto held = std::find_if(places.begin(), places.end(),
                             [&](const std::unique_ptr<Place> &place) { return place->device == plan.device_index; });
    const int64_t before = held == places.end() ? 0 : (*held)->bytes - (*held)->cleared;
    const int64_t cleared = std::max(plan.clear_bytes, held == places.end() ? 0 : (*held)->cleared);
    if (held != places.end() && before >= plan.scratch_bytes && (*held)->cleared >= plan.clear_bytes)
      return held->get();
    auto place = std::make_unique<Place>();
    place->device = plan.device_index, place->cleared = cleared;
    place->bytes = cleared + std::max(plan.scratch_bytes, before);
    if (!device_bytes(place->bytes, plan, place->memory, place->at) || !clear(place->memory.handle, cleared))
      return nullptr;
    if (held == places.end()) held = places.insert(places.end(), nullptr);
    *held = std::move(place);
    return held->get();
  }
};
Zeros &zeros() {
  static auto *only = new Zeros;
  return *only;
}

// -- a call ------------------------------------------------------------------------------------------------------------

bool launch_all(const Plan &plan, const uintptr_t *at, char *workspace, void *stream) {
  for (int64_t i = 0; i < plan.stages; ++i) {
    const Stage &stage = plan.stage[i];
    void *mine = stage.scratch ? workspace - stage.clear_bytes : nullptr;
    const uintptr_t between = reinterpret_cast<uintptr_t>(workspace) + uintptr_t(plan.between);
    if (launch(stage, at, plan.scalar, between, mine, stream)) return false;
  }
  return true;
}

bool run_on_device(const Plan &plan, const uintptr_t *at) {
  void *stream = nullptr;
  uint64_t now = 0;
  if (!shim.aoti_torch_get_current_cuda_stream || plan.current(&now) || now != plan.expected) return false;
  if (shim.aoti_torch_get_current_cuda_stream(int32_t(plan.device_index), &stream)) return false;
  if (plan.clear_bytes && !stream) {
    std::lock_guard<std::mutex> lent(zeros().lock);
    const Zeros::Place *place = zeros().of(plan);
    return place && launch_all(plan, at, place->at + place->cleared, stream);
  }
  Owned memory;
  char *begin = nullptr;
  const int64_t bytes = plan.clear_bytes + plan.scratch_bytes;
  if (bytes && !device_bytes(bytes, plan, memory, begin)) return false;
  if (plan.clear_bytes && !clear(memory.handle, plan.clear_bytes)) return false;
  return launch_all(plan, at, begin + plan.clear_bytes, stream);
}

// Notify autograd that a tensor is written: a copy of it into itself moves nothing and raises its version.  One of inference
// mode has none, and may be written in that mode alone; the mode is in the key.
bool touch(Handle tensor) {
  if (dispatch && !(keys_of(tensor) & dispatch->autograd_keys)) return true;
  return !shim.aoti_torch_copy_(tensor, tensor, 0);
}

// Make a prepared call: its results on the stack, or false and nothing but time is lost.
bool run(const Plan &plan, const Arguments &arguments, Handle *results) {
  uintptr_t at[most_slots];
  uint64_t given = 0;
  Owned made[most_arguments];
  for (int64_t slot = 0; slot < plan.slots; ++slot) {
    const int64_t from = plan.argument[slot];
    at[slot] = from < 0 ? 0 : arguments.argument[from].at;
    given |= uint64_t(from >= 0) << slot;
  }
  if (!sound(plan.span, plan.slots, given, plan.written, at)) return false;
  for (int64_t slot = 0; slot < plan.slots; ++slot)
    if (plan.written >> slot & 1 && !touch(arguments.argument[plan.argument[slot]].tensor)) return false;
  for (int64_t i = 0; i < plan.mades; ++i) {
    const Made &one = plan.made[i];
    const void *address = nullptr;
    if (shim.aoti_torch_empty_strided(one.rank, one.sizes, one.strides, int32_t(one.dtype), int32_t(one.device_type),
                                      int32_t(one.device_index), &made[i].handle) ||
        shim.torch_get_const_data_ptr(made[i].handle, &address))
      return false;
    at[one.slot] = reinterpret_cast<uintptr_t>(address);
  }
  if (plan.current) {
    if (!run_on_device(plan, at)) return false;
  } else {
    char *workspace = plan.scratch_bytes ? scratch.of(plan.scratch_bytes) : nullptr;
    if ((plan.scratch_bytes && !workspace) || !launch_all(plan, at, workspace, plan.team)) return false;
  }
  for (int64_t i = 0; i < plan.mades; ++i) results[i] = made[i].release();
  return true;
}

}  // namespace
