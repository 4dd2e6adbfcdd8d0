// The kernels of PyTorch's ops: a call that was made before goes from PyTorch's dispatcher to the launch without Python.  Any
// other call is Python's: it plans, builds and runs, and says what is to be remembered.  Nothing here knows an op but by the
// letters of its arguments (`Kind`).  PyTorch is called through its stable C interface alone.
#include <tilewright/torch/calls.h>
#include <tilewright/torch/python_calls.h>
#include <tilewright/torch/stored_plans.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<bool> scopes_used{false};

struct Op {
  std::string name, kinds;
  int64_t results = 0;
  bool autograd = false;  // it is served where autograd begins
  bool writes = false;    // arguments: autograd is not to be passed by then, and in which mode they are written counts
  // Whether calls are also known by the dispatch keys of their tensors and of the thread.
  bool by_keys() const { return autograd || (writes && dispatch); }
};
constexpr int most_ops = 64;
Op ops[most_ops];
int op_count;

// A call on its way through Python.
struct Pending {
  int64_t op, generation;
  Arguments *arguments;
};

// Whether the call is another than its arguments say: settings or a stream are in force for a scope around it alone (what is
// remembered is the process's), or forward-mode gradients are made, which no dispatch key shows.
bool unusual(const Op &op, const Python &by) {
  if (!op.autograd && !scopes_used.load(std::memory_order_relaxed)) return false;
  Running running(by);
  bool yes = false;
  for (Object variable : by.variables) {
    Object value = nullptr;
    yes |= by.PyContextVar_Get(variable, nullptr, &value) || (value && value != by.none);
    if (value) by.Py_DecRef(value);
  }
  if (op.autograd) {
    Object level = by.PyObject_GetAttr(by.forward, by.level);
    yes |= !level || by.PyLong_AsLong(level) >= 0;
    if (level) by.Py_DecRef(level);
  }
  by.PyErr_Clear();
  return yes;
}

// Whether a call can be remembered, and made again by what is remembered.  The stable interface does not show whether a
// tensor requires grad: where gradients are recorded, one that may is Python's.
bool usual(const Op &op, const Arguments &arguments, const Python *by) {
  if ((op.autograd || (op.writes && by)) && shim.aoti_torch_grad_mode_is_enabled())
    for (int64_t i = 0; i < arguments.count; ++i)
      if (arguments.argument[i].tensor && may_require_grad(arguments.argument[i].tensor)) return false;
  return !(by && unusual(op, *by));
}

[[noreturn]] void refuse(const Op &op) {
  throw std::runtime_error("tilewright::" + op.name +
                           " was called with sizes, strides, types or options that no stored plan is for, and this "
                           "process has no Python to make one; call it with these in Python inside of `with "
                           "tilewright.torch.plans(folder):`, and load that folder (tw_torch_load)");
}

void serve(int64_t index, Value *stack, uint64_t count, uint64_t results) {
  const Op &op = ops[index];
  Arguments arguments;
  arguments.take(op.kinds.c_str(), stack, count);
  Handle made[most_arguments] = {};
  const Python *by = python.load(std::memory_order_acquire);
  Pending pending{index, cache().generation.load(), &arguments};
  bool done = false;
  bool plain = usual(op, arguments, by);
  if (plain && (!op.autograd || known_plain(arguments))) {
    Key key;
    if (key.read(index, op.by_keys(), arguments))
      if (auto known = cache().find(key)) {
        plain = known->stages != 0;
        done = plain && run(*known, arguments, made);
      }
  }
  if (done) {
    cache().hits.fetch_add(1, std::memory_order_relaxed);
  } else {
    if (!by) refuse(op);
    cache().others.fetch_add(1, std::memory_order_relaxed);
    call_python(*by, index, arguments, plain ? &pending : nullptr, made, results);
  }
  for (uint64_t i = 0; i < results; ++i) stack[i] = reinterpret_cast<Value>(made[i]);
}

// The stable interface gives a kernel nothing to know its op by: each has a function of its own.
template <int index> void boxed(Value *stack, uint64_t count, uint64_t results) { serve(index, stack, count, results); }
template <int... index> struct Table {
  static constexpr Boxed kernel[] = {boxed<index>...};
};
template <int count, int... index> struct Counted : Counted<count - 1, count - 1, index...> {};
template <int... index> struct Counted<0, index...> : Table<index...> {};

std::string problem;  // of the last function below that failed

std::mutex remembering;

// A fork finds the table whole, because the forking thread holds both locks.  The child makes them anew instead of unlocking
// them: a shared lock knows its writer by the number of the thread, and the child's thread has another.
void before_fork() { remembering.lock(), cache().lock.lock(); }
void after_fork_in_parent() { cache().lock.unlock(), remembering.unlock(); }
void after_fork_in_child() { new (&cache().lock) std::shared_mutex, new (&remembering) std::mutex; }

}  // namespace

SHOWN int64_t tw_torch_abi_version() { return 2; }
SHOWN int64_t tw_torch_sizes(int64_t which) {
  const int64_t sizes[] = {sizeof(Made), sizeof(Plan), sizeof(Python), sizeof(Dispatch), sizeof(Stage), sizeof(Span)};
  return which < 6 ? sizes[which] : 0;
}
// Why the last function below did not do its work.
SHOWN const char *tw_torch_problem() { return problem.c_str(); }

// Find PyTorch; 0, or not 0 where it lacks something.
SHOWN int tw_torch_start() {
  static const int started = [] {
    problem = shim.find();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return problem.empty() ? 0 : 1;
  }();
  return started;
}

// Python as it is to be called from now on, and how the dispatcher is queried; null: no more.
SHOWN void tw_torch_python(const Python *called, const Dispatch *requested) { python = called, dispatch = requested; }

// Serve an op at a dispatch key: the number it is known by, or -1.  `library` is that of an earlier answer for the key.
SHOWN int64_t tw_torch_serve(const char *space, const char *key, const char *name, const char *kinds, int64_t results,
                             int64_t autograd, int64_t writes, void **library) {
  if (op_count == most_ops || results > most_arguments || strlen(kinds) > size_t(most_arguments)) {
    problem = "there are more ops, arguments or results than this library was made for";
    return -1;
  }
  if (!*library && shim.aoti_torch_library_init_impl(space, key, "torch_ops.cpp", 1, library)) {
    problem = "PyTorch makes no library for " + std::string(key);
    return -1;
  }
  ops[op_count] = Op{name, kinds, results, autograd != 0, writes != 0};
  if (shim.torch_library_impl(*library, name, Counted<most_ops>::kernel[op_count], built_for)) {
    problem = "PyTorch does not take a kernel of " + std::string(name) + " for " + key;
    return -1;
  }
  return op_count++;
}

// Of a call that Python made: what to do when it is made again (null: to let Python make it); 0, or not 0 where that is
// not possible.
SHOWN int tw_torch_remember(const Pending *call, const Plan *plan) {
  static const Plan python_makes_it{};
  const Op &op = ops[call->op];
  if (!plan || plan->slots > most_slots || plan->mades != op.results) plan = &python_makes_it;
  std::lock_guard<std::mutex> alone(remembering);
  if (op.autograd) {
    if (plan == &python_makes_it || !dispatch || !thread_state()) return 1;  // a traced tensor is not to be read
    note_plain(*call->arguments);
  }
  Key key;
  if (!key.read(call->op, op.by_keys(), *call->arguments)) return 1;
  return cache().remember(key.text(), call->generation, std::make_shared<const Prepared>(*plan)) ? 0 : 1;
}
// What such a call is known by in a folder of plans: below autograd, and whatever number its op has.  The bytes that were
// written, or 0 where there is no room for them.
SHOWN int64_t tw_torch_key(const Pending *call, char *into, int64_t room) {
  Key key;
  if (!key.read(0, false, *call->arguments) || key.size > room) return 0;
  memcpy(into, key.bytes, size_t(key.size));
  return key.size;
}

// Of a process without Python: define the ops and take the plans of a folder that `tilewright.torch.plans` wrote; 0, or not 0
// and tw_torch_problem() says why.
SHOWN int tw_torch_load(const char *folder) {
  static void *library, *kernels[2];  // of the dispatch keys below
  static const char *const keys[] = {"CPU", "CUDA"};
  if (python.load() || library) {
    problem = "torch.ops.tilewright is defined in this process: load one folder, and none where Python defines them";
    return 1;
  }
  if (tw_torch_start()) return 1;
  try {
    const Stored stored(folder, tw_torch_abi_version());
    if (shim.aoti_torch_library_init_def("tilewright", "torch_ops.cpp", 1, &library))
      throw std::runtime_error("torch.ops.tilewright is defined in this process already");
    std::vector<int64_t> numbers[2];
    for (const StoredOp &op : stored.ops) {
      if (shim.aoti_torch_library_def(library, (op.name + op.schema).c_str()))
        throw std::runtime_error("PyTorch does not take the schema of " + op.name);
      for (int at = 0; at < 2; ++at) {
        numbers[at].push_back(tw_torch_serve("tilewright", keys[at], op.name.c_str(), op.kinds.c_str(), op.results, 0,
                                             op.writes, &kernels[at]));
        if (numbers[at].back() < 0) return 1;
      }
    }
    cache().most = std::max(cache().most, stored.plans.size());
    for (const StoredPlan &plan : stored.plans) {
      std::string key = plan.key;
      memcpy(&key[0], &numbers[plan.on_gpu][size_t(plan.op)], sizeof(int64_t));
      cache().remember(key, cache().generation.load(), plan.prepared);
    }
    return 0;
  } catch (const std::exception &error) {
    problem = std::string(folder) + ": " + error.what();
    return 1;
  }
}

SHOWN void tw_torch_forget() { cache().forget(); }
SHOWN void tw_torch_scopes() { scopes_used = true; }
SHOWN void tw_torch_most(int64_t most) { cache().most = size_t(most); }
// Calls made here, calls that Python made, calls remembered.
SHOWN void tw_torch_counts(int64_t *counts) {
  counts[0] = cache().hits, counts[1] = cache().others, counts[2] = cache().size();
}
