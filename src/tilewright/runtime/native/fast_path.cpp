// The fast path of a call that was made before, for every op, in one function that Python calls without ctypes in
// between: it reads the facts of the operands, finds the prepared call under them, makes the results, fills in
// addresses and scalars, and launches the kernels one after another.  Anything unusual is answered with None, and
// nothing was done then: the slow path in Python has the words for it.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tilewright/call_key.h>
#include <tilewright/python.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {

// -- a prepared call -------------------------------------------------------------------------------------------------

// Where an address goes in the arguments: that of a slot, or (slot -1) of the workspace between stages.
struct Pointer {
  int64_t offset, slot, shift, step[most_loops];
};
struct Scalar {
  int64_t offset, index;
};
struct Stage {
  int (*launch)(const void *args, void *workspace, void *stream);
  const void *args;
  const Pointer *pointer;
  const Scalar *scalar;
  int64_t bytes, pointers, scalars, scratch, clear_bytes, loops, loop[most_loops];
};
// The bytes around an operand's address that are touched, what the address is a multiple of, and the slot that a
// written one may be identical with (-1: none).
struct Span {
  int64_t low, high, grain, twin;
};
// A result that is made in each call: of which slot, and the function that makes it.
struct Made {
  int64_t slot, arguments;
  PyObject *make, *argument[most_maker_arguments];
};
struct Call {
  const Stage *stage;
  const Span *span;
  const Made *made;
  const int64_t *answer;  // the slots whose objects are the answer
  int64_t stages, mades, answers;
  int64_t scratch_bytes, clear_bytes, between;  // of the workspace; `between` is an offset in it
  void *team;                                   // the stream of host kernels
  // Of a device; `current` is null for the host.
  int (*current)(void *answer);  // what the runtime calls current in this thread: a context, or a device's index
  int (*capturing)(void *stream, int *answer);
  uint64_t expected;
  PyObject *workspaces;  // a dictionary by stream, of objects with address, nbytes and cleared
  PyObject *stream;      // a function that gives the stream of the moment
  int64_t *calls;        // where calls are counted; null: they are not
  int64_t used;          // the time of the last call, by the clock below: those least recently used are forgotten
};
int64_t now;  // counts calls

enum { not_apart = -1, elsewhere = -2, captured = -3, no_memory = -4 };

// Whether every address is a multiple of what it must be and what is written overlaps nothing else.
bool sound(const Call &call, const Form &form, const Key &key) {
  for (int64_t i = 0; i < form.slots; ++i)
    if (key.given >> i & 1 && key.at[i] & uintptr_t(call.span[i].grain - 1)) return false;
  for (int64_t w = 0; w < form.slots; ++w) {
    if (!(form.written >> w & key.given >> w & 1)) continue;
    const Span &of = call.span[w];
    const int64_t low = int64_t(key.at[w]) + of.low, high = int64_t(key.at[w]) + of.high;
    for (int64_t i = 0; i < form.slots; ++i) {
      if (i == w || !(key.given >> i & 1) || (i == of.twin && key.at[i] == key.at[w])) continue;
      const Span &other = call.span[i];
      if (int64_t(key.at[i]) + other.low < high && low < int64_t(key.at[i]) + other.high) return false;
    }
  }
  return true;
}

// Scratch of host kernels: one buffer a thread, which grows and goes with the thread.
pthread_key_t scratch_key;
__thread char *scratch;
__thread int64_t scratch_held;

char *scratch_of(int64_t bytes) {
  if (bytes <= scratch_held) return scratch;
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, size_t(bytes))) return nullptr;
  free(scratch);
  scratch = static_cast<char *>(memory), scratch_held = bytes;
  pthread_setspecific(scratch_key, memory);
  return scratch;
}
void forget_scratch(void *memory) {
  free(memory);
  scratch = nullptr, scratch_held = 0;
}

// Launch one stage once for each index of its loops.
int launch(const Stage &stage, const uintptr_t *at, const double *scalars, uintptr_t between, void *workspace,
           void *stream) {
  alignas(16) char args[most_bytes];
  memcpy(args, stage.args, size_t(stage.bytes));
  for (int64_t i = 0; i < stage.scalars; ++i)
    memcpy(args + stage.scalar[i].offset, scalars + stage.scalar[i].index, sizeof(double));
  int64_t index[most_loops] = {};
  for (;;) {
    for (int64_t i = 0; i < stage.pointers; ++i) {
      const Pointer &one = stage.pointer[i];
      uintptr_t address = (one.slot < 0 ? between : at[one.slot]) + uintptr_t(one.shift);
      for (int64_t d = 0; d < stage.loops; ++d) address += uintptr_t(index[d] * one.step[d]);
      memcpy(args + one.offset, &address, sizeof address);
    }
    if (int status = stage.launch(args, workspace, stream)) return status;
    int64_t d = stage.loops - 1;
    while (d >= 0 && ++index[d] == stage.loop[d]) index[d--] = 0;
    if (d < 0) return 0;
  }
}

int launch_all(const Call &call, const Key &key, const double *scalars, char *workspace, void *stream, int *failed) {
  for (int64_t i = 0; i < call.stages; ++i) {
    const Stage &stage = call.stage[i];
    void *mine = stage.scratch ? workspace - stage.clear_bytes : nullptr;
    *failed = int(i);
    if (int status = launch(stage, key.at, scalars, reinterpret_cast<uintptr_t>(workspace) + uintptr_t(call.between),
                            mine, stream))
      return status;
  }
  return 0;
}

int run_on_host(const Call &call, const Key &key, const double *scalars, int *failed) {
  char *memory = call.scratch_bytes ? scratch_of(call.scratch_bytes) : nullptr;
  if (call.scratch_bytes && !memory) return no_memory;
  void *thread = PyEval_SaveThread();
  int status = launch_all(call, key, scalars, memory, call.team, failed);
  PyEval_RestoreThread(thread);
  return status;
}

int64_t attribute(PyObject *object, PyObject *name) { return number_of(PyObject_GetAttr(object, name)); }

// The stream work goes to now: that of a `with stream:` around us, else the tensors' library's.
bool stream_of(const Call &call, const Key &key, void *&stream) {
  PyObject *scoped = nullptr;
  if (PyContextVar_Get(scoped_stream, nullptr, &scoped)) return false;
  const bool plain = !scoped || scoped == &_Py_NoneStruct;
  if (scoped) Py_DecRef(scoped);
  if (plain && key.tensors && exchange->stream)
    return !exchange->stream(key.first_tensor.device_type, key.first_tensor.device_id, &stream);
  PyObject *found = PyObject_Vectorcall(call.stream, nullptr, 0, nullptr);
  if (!found) return false;
  stream = PyLong_AsVoidPtr(found);
  Py_DecRef(found);
  return !PyErr_Occurred();
}

int run_on_device(const Call &call, const Key &key, const double *scalars, int *failed) {
  void *stream = nullptr;
  uint64_t now = 0;
  int state = 0;
  if (!stream_of(call, key, stream)) return elsewhere;
  if (call.current(&now) || now != call.expected) return elsewhere;
  if (!call.scratch_bytes && !call.clear_bytes) {
    // A full queue makes a launch wait: other threads go on meanwhile.
    void *thread = PyEval_SaveThread();
    int status = launch_all(call, key, scalars, nullptr, stream, failed);
    PyEval_RestoreThread(thread);
    return status;
  }
  PyObject *number = PyLong_FromVoidPtr(stream);
  if (!number) return captured;
  PyObject *found = PyDict_GetItemWithError(call.workspaces, number);
  Py_DecRef(number);
  if (!found || attribute(found, nbytes_name) < call.scratch_bytes || attribute(found, cleared_name) < call.clear_bytes)
    return captured;
  if (call.capturing(stream, &state) || state) return captured;
  // Python is kept from running: nobody frees the workspace before the launches are queued.
  return launch_all(call, key, scalars, reinterpret_cast<char *>(attribute(found, address_name)), stream, failed);
}

PyObject *longer_way() {
  PyErr_Clear();
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

bool address_of(PyObject *object, uintptr_t &at) {
  PyObject *type = type_of(object);
  if (type == array_type) {
    at = reinterpret_cast<uintptr_t>(fields_of<ArrayFields>(object).data);
    return true;
  }
  if (exchange && (type == tensor_types[0] || type == tensor_types[1])) {
    Tensor t;
    if (exchange->read(object, &t)) return false;
    at = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
    return t.data || !reach_of(t);
  }
  int64_t found = attribute(object, address_name);
  at = uintptr_t(found);
  return found >= 0;
}

// The objects of a call's results; those that are made here are owned.
struct Results {
  PyObject *object[most_operands] = {};
  uint64_t owned = 0;

  bool make(const Call &call, PyObject *const *operands, Key &key) {
    for (int64_t i = 0; i < call.mades; ++i) {
      const Made &one = call.made[i];
      PyObject *made = PyObject_Vectorcall(one.make, one.argument, size_t(one.arguments), nullptr);
      if (!made) return false;
      object[one.slot] = made, owned |= uint64_t(1) << one.slot;
      if (!address_of(made, key.at[one.slot])) return false;
    }
    for (int64_t i = 0; i < call.answers; ++i)
      if (!object[call.answer[i]]) object[call.answer[i]] = operands[call.answer[i]];
    return true;
  }
  PyObject *answer(const Call &call) {
    if (call.answers == 1) {
      PyObject *only = object[call.answer[0]];
      Py_IncRef(only);
      return only;
    }
    PyObject *all = PyTuple_New(ptrdiff_t(call.answers));
    for (int64_t i = 0; all && i < call.answers; ++i) {
      Py_IncRef(object[call.answer[i]]);
      PyTuple_SetItem(all, ptrdiff_t(i), object[call.answer[i]]);
    }
    return all;
  }
  ~Results() {
    for (int i = 0; i < most_operands; ++i)
      if (owned >> i & 1) Py_DecRef(object[i]);
  }
};

// Tensors that will be written tell autograd so.  Those made in inference mode, which it does not follow, may be
// written only there: anywhere else the slow path has PyTorch's error for it.
bool touch(const Form &form, const Key &key, PyObject *const *operands) {
  uint64_t written = key.tensors & form.written;
  for (int64_t i = 0; written >> i; ++i) {
    if (!(written >> i & 1)) continue;
    if (yes(ask(operands[i], inference_name))) {
      if (!yes(PyObject_Vectorcall(tensor_inference, nullptr, 0, nullptr))) return false;
      continue;
    }
    PyObject *tuple = PyTuple_New(1);
    if (!tuple) return false;
    Py_IncRef(operands[i]);
    PyTuple_SetItem(tuple, 0, operands[i]);
    PyObject *done = PyObject_Vectorcall(tensor_touch, &tuple, 1, nullptr);
    Py_DecRef(tuple);
    if (!done) return false;
    Py_DecRef(done);
  }
  return true;
}

bool read_scalars(PyObject *const *given, int64_t count, double *values) {
  for (int64_t i = 0; i < count; ++i) {
    PyObject *type = type_of(given[i]);
    if (type != &PyFloat_Type && type != &PyLong_Type) return false;
    values[i] = PyFloat_AsDouble(given[i]);
  }
  return !PyErr_Occurred();
}

}  // namespace

SHOWN int64_t tw_fast_abi_version(void) { return 7; }
SHOWN int64_t tw_fast_now(void) { return ++now; }
SHOWN int64_t tw_fast_sizes(int64_t which) {
  const int64_t sizes[] = {sizeof(Form), sizeof(Pointer), sizeof(Scalar), sizeof(Stage),
                           sizeof(Span), sizeof(Made),    sizeof(Call)};
  return which < 7 ? sizes[which] : 0;
}

// Called once: how large the head of an object is, and the context variable of the stream in force.
SHOWN int tw_fast_start(int64_t head, PyObject *stream) {
  head_bytes = head, scoped_stream = stream;
  PyObject **names[] = {&requires_grad_name, &is_neg_name,  &storage_name, &offset_name, &address_name,
                        &nbytes_name,        &cleared_name, &facts_name,   &level_name,  &inference_name};
  const char *texts[] = {"requires_grad", "is_neg",  "untyped_storage", "storage_offset", "address",
                         "nbytes",        "cleared", "facts",           "_current_level", "is_inference"};
  for (int i = 0; i < 10; ++i)
    if (!(*names[i] = PyUnicode_InternFromString(texts[i]))) return 1;
  return pthread_key_create(&scratch_key, forget_scratch);
}

// NumPy's type from now on; null: none.
SHOWN void tw_fast_arrays(PyObject *type) { array_type = type == &_Py_NoneStruct ? nullptr : type; }

// What is read of an array: address, flags, byte order, type number, shape and strides, to be compared.
SHOWN PyObject *tw_fast_look(PyObject *object) {
  Operand x;
  if (!read_array(object, x)) return longer_way();
  PyObject *sizes = PyTuple_New(2 * x.head.ndim);
  for (int i = 0; sizes && i < 2 * x.head.ndim; ++i) PyTuple_SetItem(sizes, i, Py_BuildValue("L", x.sizes[i]));
  return Py_BuildValue("(KiiiN)", static_cast<unsigned long long>(x.at), int(x.head.flags), int(x.head.byteorder),
                       int(x.head.type), sizes);
}

SHOWN int tw_fast_hold(PyObject *type) {
  if (held_count == most_held) return 1;
  held_types[held_count++] = type;
  return 0;
}

// The tensor types to read, the table of their library, the questions that say what is going on (`Questions` of
// torch_arrays.py), and what is told of written tensors; 0, or not 0 where this library cannot use it.
SHOWN int tw_fast_tensors(PyObject *first, PyObject *second, const void *table, PyObject *questions,
                          PyObject *touched) {
  auto *found = static_cast<const Exchange *>(table);
  exchange = nullptr;
  if (!found || found->major != 1 || !found->read) return 1;
  PyObject *unusual = PyTuple_GetItem(questions, 0);
  const ptrdiff_t count = unusual ? PyTuple_Size(unusual) : -1;
  if (count < 0 || count > most_questions) return 1;
  for (ptrdiff_t i = 0; i < most_questions; ++i) tensor_unusual[i] = i < count ? PyTuple_GetItem(unusual, i) : nullptr;
  tensor_forward = PyTuple_GetItem(questions, 1), tensor_records = PyTuple_GetItem(questions, 2);
  tensor_inference = PyTuple_GetItem(questions, 3);
  if (!tensor_forward || !tensor_records || !tensor_inference) return 1;
  tensor_types[0] = first, tensor_types[1] = second, tensor_touch = touched;
  exchange = found;
  return 0;
}

// key(options, *operands) of a form: ((options that are more than bytes), bytes), or None where Python must look.
SHOWN PyObject *tw_fast_key(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  auto &form = *static_cast<const Form *>(PyLong_AsVoidPtr(self));
  Key key;
  if (count < 1 || !key.read(form, given[0], given + 1, count - 1)) return longer_way();
  return Py_BuildValue("(NN)", key.strange_options(), key.object());
}

// The prepared call under a key; null where there is none.  The result is borrowed from the dictionaries.
PyObject *prepared(PyObject *calls, const Key &key) {
  PyObject *strange = key.strange_options(), *bytes = strange ? key.object() : nullptr;
  PyObject *alike = bytes ? PyDict_GetItemWithError(calls, strange) : nullptr;
  PyObject *found = alike ? PyDict_GetItemWithError(alike, bytes) : nullptr;
  if (bytes) Py_DecRef(bytes);
  if (strange) Py_DecRef(strange);
  return found;
}

// call(calls, options, *scalars, *operands) of a form: the prepared call under the options and the facts of the
// operands, of which the last ones may be left out.  The result (several: a tuple), None where the slow path must be
// gone, or [status, stage, call] of a launch that failed.
SHOWN PyObject *tw_fast_call(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  auto &form = *static_cast<const Form *>(PyLong_AsVoidPtr(self));
  double scalars[most_scalars];
  PyObject *const *operands = given + 2 + form.scalars;
  const int64_t given_operands = count - 2 - form.scalars;
  Key key;
  if (given_operands < 0 || !read_scalars(given + 2, form.scalars, scalars) ||
      !key.read(form, given[1], operands, given_operands))
    return longer_way();
  PyObject *known = prepared(given[0], key);  // after everything that may run Python, which may change dictionaries
  if (!known) return longer_way();
  auto &call = *static_cast<Call *>(PyLong_AsVoidPtr(known));
  Py_IncRef(known);  // others may change the dictionaries meanwhile
  Results results;
  int status = not_apart, failed = 0;
  if (sound(call, form, key) && (!(key.tensors & form.written) || touch(form, key, operands)) &&
      results.make(call, operands, key))
    status = call.current ? run_on_device(call, key, scalars, &failed) : run_on_host(call, key, scalars, &failed);
  if (!status && call.calls) ++*call.calls;
  call.used = ++now;
  PyObject *answer = nullptr;
  if (status > 0) answer = Py_BuildValue("[iiO]", status, failed, known);
  else if (status < 0) answer = longer_way();
  else answer = results.answer(call);
  Py_DecRef(known);
  return answer;
}
