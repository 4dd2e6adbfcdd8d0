// The C functions: no exception leaves the library, and structs of other versions are read and filled as far as both
// sides know them.
#include <tilewright/runtime.h>

#include <cstddef>
#include <cstring>
#include <new>

#include "bundle.hpp"
#include "device.hpp"
#include "failure.hpp"
#include "registry.hpp"
#include "selection.hpp"
#include "team.hpp"

struct tw_registry {
  tw::runtime::Registry registry;
};
struct tw_device {
  tw::runtime::Device device;
};

namespace {

using tw::runtime::Entry;
using tw::runtime::Failure;

struct Last {
  std::string owner, rule, value, message, remedy;
  tw_error error{int64_t(sizeof(tw_error)), "", "", "", "", ""};
};

Last &last() {
  static thread_local Last mine;
  return mine;
}

int failed(const char *owner, const std::string &rule, const std::string &value, const std::string &message,
           const std::string &remedy) {
  Last &l = last();
  l.owner = owner, l.rule = rule, l.value = value, l.message = message, l.remedy = remedy;
  l.error = {int64_t(sizeof(tw_error)), l.owner.c_str(),   l.rule.c_str(),
             l.value.c_str(),           l.message.c_str(), l.remedy.c_str()};
  return 1;
}

template <class Body> int guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const Failure &failure) {
    return failed(failure.owner.c_str(), failure.rule, failure.value, failure.what(), failure.remedy);
  } catch (const std::bad_alloc &) {
    return failed("machine", "memory", "", "there is no memory left", "free some, or use fewer kernels");
  } catch (const std::exception &error) {
    return failed("tilewright", "internal", "", error.what(), "report this with the call that caused it");
  }
}

void demand(bool given, const char *what) {
  if (!given) throw tw::runtime::bad_request("null", what, std::string(what) + " is null", "give one");
}

// What a caller filled in, with zeros where it knows less than this library.
template <class Struct> Struct read(const Struct *given, const char *what, int64_t least) {
  demand(given, what);
  const int64_t size = given->size;
  if (size < least || size > (1 << 20))
    throw tw::runtime::bad_request("struct-size", std::to_string(size),
                                   std::string(what) + " says that it has " + std::to_string(size) +
                                       " bytes, at least " + std::to_string(least) + " are needed",
                                   "set its size to sizeof, and build with headers of this library's release");
  Struct whole{};
  std::memcpy(&whole, given, size_t(size < int64_t(sizeof whole) ? size : int64_t(sizeof whole)));
  whole.size = sizeof whole;
  return whole;
}

// As much of an answer as the caller has room for; its size stays the caller's.
template <class Struct> void write(Struct *into, const char *what, const Struct &answer) {
  demand(into, what);
  const int64_t room = into->size;
  if (room < int64_t(sizeof(int64_t)) * 2)
    throw tw::runtime::bad_request("struct-size", std::to_string(room),
                                   std::string(what) + " has no room for an answer", "set its size to sizeof");
  std::memcpy(into, &answer, size_t(room < int64_t(sizeof answer) ? room : int64_t(sizeof answer)));
  into->size = room;
}

tw_problem problem_of(const tw_problem *given) {
  tw_problem problem = read(given, "the problem", offsetof(tw_problem, measured));  // what 1.0 had
  demand(problem.op && problem.signature && problem.names && problem.values, "a field of the problem");
  if (!problem.text || !*problem.text) problem.text = problem.signature;
  return problem;
}

tw_select_options options_of(const tw_select_options *given) {
  if (!given) return {};
  const tw_select_options options = read(given, "the options", sizeof(int64_t));
  if (options.threads < 0)
    throw tw::runtime::bad_request("threads", std::to_string(options.threads),
                                   "a selection for " + std::to_string(options.threads) + " threads",
                                   "use 1 or more, or 0 for those of this machine");
  if (options.l2_bytes < 0)
    throw tw::runtime::bad_request("l2-bytes", std::to_string(options.l2_bytes),
                                   "a selection for an L2 cache of " + std::to_string(options.l2_bytes) + " bytes",
                                   "use the bytes of the cache, or 0 for that of this machine");
  return options;
}

}  // namespace

int64_t tw_runtime_version(void) { return int64_t(TW_RUNTIME_MAJOR) << 16 | TW_RUNTIME_MINOR; }

const tw_error *tw_last_error(void) { return &last().error; }

int tw_registry_new(const char *target, tw_registry **registry) {
  return guarded([&] {
    demand(registry, "where to put the registry");
    *registry = new tw_registry{tw::runtime::Registry(target ? target : "")};
  });
}

void tw_registry_free(tw_registry *registry) { delete registry; }

int tw_registry_add(tw_registry *registry, const char *path) {
  return guarded([&] {
    demand(registry && path, "the registry or the path");
    registry->registry.add(path);
  });
}

int tw_registry_add_json(tw_registry *registry, const char *text, int64_t bytes, const char *folder) {
  return guarded([&] {
    demand(registry && text && bytes >= 0, "the registry or its text");
    registry->registry.add_json(std::string(text, size_t(bytes)), folder ? folder : ".", "the registry's JSON");
  });
}

int tw_registry_json(tw_registry *registry, const char **text) {
  return guarded([&] {
    demand(registry && text, "the registry or where to put its text");
    static thread_local std::string mine;  // several threads may query one registry
    mine = registry->registry.json(), *text = mine.c_str();
  });
}

const char *tw_registry_target(const tw_registry *registry) {
  return registry ? registry->registry.target().c_str() : "";
}

int64_t tw_registry_count(const tw_registry *registry) { return registry ? registry->registry.count() : 0; }

int tw_registry_entry(const tw_registry *registry, int64_t index, tw_entry *entry) {
  return guarded([&] {
    demand(registry, "the registry");
    const Entry &e = registry->registry.entry(index);
    write(entry, "the entry",
          tw_entry{sizeof(tw_entry), e.digest.c_str(), e.name.c_str(), e.op.c_str(), e.arch.c_str(),
                   e.signature.c_str(), e.schedule.c_str(), e.spec.c_str(), e.library.c_str(), e.fallback,
                   !e.set.empty(), e.copied ? e.grains.data() : nullptr, int64_t(e.grains.size())});
  });
}

int64_t tw_registry_find(const tw_registry *registry, const char *digest) {
  return registry && digest ? registry->registry.find(digest) : -1;
}

int tw_registry_kernel(tw_registry *registry, int64_t index, const tw_kernel **kernel) {
  return guarded([&] {
    demand(registry && kernel, "the registry or where to put the kernel");
    *kernel = registry->registry.kernel(index);
  });
}

int tw_select(const tw_registry *registry, const tw_problem *problem, const tw_select_options *options,
              tw_choice *choice) {
  return guarded([&] {
    demand(registry, "the registry");
    tw_choice answer{};
    tw::runtime::select(registry->registry, problem_of(problem), options_of(options), answer);
    write(choice, "the choice", answer);
  });
}

int tw_candidates(const tw_registry *registry, const tw_problem *problem, const tw_select_options *options,
                  void (*visit)(void *context, const tw_candidate *), void *context) {
  return guarded([&] {
    demand(registry && visit, "the registry or the callback");
    tw::runtime::visit_candidates(registry->registry, problem_of(problem), options_of(options), visit, context);
  });
}

int tw_pinned(const tw_registry *registry, const tw_problem *problem, void (*visit)(void *context, int64_t kernel),
              void *context) {
  return guarded([&] {
    demand(registry && visit, "the registry or the callback");
    for (int64_t kernel : tw::runtime::pinned(registry->registry, problem_of(problem))) visit(context, kernel);
  });
}

int tw_team_new(int64_t threads, tw_host_team **team) {
  return guarded([&] {
    demand(team, "where to put the team");
    const int64_t count = threads ? threads : tw_threads();
    if (count < 1 || count > 4096)
      throw tw::runtime::bad_request("threads", std::to_string(count),
                                     "a team of " + std::to_string(count) + " threads",
                                     "use 1 to 4096, or 0 for as many as there are cores");
    *team = tw::runtime::new_team(count);
  });
}

void tw_team_free(tw_host_team *team) { tw::runtime::free_team(team); }

int64_t tw_registry_choices(const tw_registry *registry) { return registry ? registry->registry.choices() : 0; }

int64_t tw_registry_generation(const tw_registry *registry) { return registry ? registry->registry.generation() : 0; }

int tw_device_count(const char *backend, int64_t *count) {
  return guarded([&] {
    demand(backend && count, "the backend or where to put the count");
    *count = tw::runtime::device_count(backend);
  });
}

int tw_device_open(const char *backend, int64_t index, tw_device **device) {
  return guarded([&] {
    demand(backend && device, "the backend or where to put the device");
    *device = new tw_device{{backend, index}};
  });
}

void tw_device_free(tw_device *device) { delete device; }

int tw_device_describe(const tw_device *device, tw_device_facts *facts) {
  return guarded([&] {
    demand(device, "the device");
    const tw::runtime::DeviceFacts &f = device->device.facts();
    write(facts, "the facts",
          tw_device_facts{sizeof(tw_device_facts), f.backend.c_str(), f.arch.c_str(), f.name.c_str(), f.driver.c_str(),
                          f.index, f.compute_units, f.l2_bytes, f.memory_bytes});
  });
}

int64_t tw_device_runs(const tw_device *device, const char *arch) {
  if (!device || !arch) return 0;
  for (const std::string &known : tw::runtime::archs_run_by(device->device.facts().arch))
    if (known == arch) return 1;
  return 0;
}

int tw_device_allocate(tw_device *device, int64_t bytes, void **at) {
  return guarded([&] {
    demand(device && at, "the device or where to put the address");
    *at = device->device.allocate(bytes);
  });
}

int tw_device_release(tw_device *device, void *at) {
  return guarded([&] {
    demand(device, "the device");
    if (at) device->device.release(at);
  });
}

int tw_device_copy(tw_device *device, void *to, const void *from, int64_t bytes, void *stream) {
  return guarded([&] {
    demand(device && (bytes <= 0 || (to && from)), "the device or an address");
    device->device.copy(to, from, bytes, stream);
  });
}

int tw_device_copy_rows(tw_device *device, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                        int64_t bytes, int64_t rows, void *stream) {
  return guarded([&] {
    demand(device && (bytes <= 0 || rows <= 0 || (to && from)), "the device or an address");
    device->device.copy_rows(to, to_pitch, from, from_pitch, bytes, rows, stream);
  });
}

int tw_device_clear(tw_device *device, void *at, int64_t bytes, void *stream) {
  return guarded([&] {
    demand(device && (bytes <= 0 || at), "the device or an address");
    device->device.clear(at, bytes, stream);
  });
}

int tw_device_synchronize(tw_device *device, void *stream) {
  return guarded([&] {
    demand(device, "the device");
    device->device.synchronize(stream);
  });
}

int tw_device_workspace(tw_device *device, void *stream, int64_t bytes, int64_t clear_bytes, void **at) {
  return guarded([&] {
    demand(device && at, "the device or where to put the address");
    *at = device->device.workspace(stream, bytes, clear_bytes);
  });
}

int tw_bundle_check(const char *path, int64_t *files) {
  return guarded([&] {
    demand(path, "the path");
    const int64_t checked = tw::runtime::Bundle(path).check();
    if (files) *files = checked;
  });
}
