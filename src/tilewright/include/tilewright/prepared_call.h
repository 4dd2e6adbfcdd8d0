// A prepared call, and how it is made: results, addresses, scalars, launches.  Of fast_path.cpp.
#pragma once
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include <tilewright/call_key.h>
#include <tilewright/stages.h>

namespace {

// -- a prepared call -------------------------------------------------------------------------------------------------

// A result that is made in each call: of which slot, and the function that makes it.
struct Made {
  int64_t slot;
  PyObject *make, *arguments;  // a tuple, which is made once
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

int launch_all(const Call &call, const Places &places, const double *scalars, char *workspace, void *stream,
               int *failed) {
  for (int64_t i = 0; i < call.stages; ++i) {
    const Stage &stage = call.stage[i];
    void *mine = stage.scratch ? workspace - stage.clear_bytes : nullptr;
    *failed = int(i);
    if (int status = launch(stage, places.at, scalars, reinterpret_cast<uintptr_t>(workspace) + uintptr_t(call.between),
                            mine, stream))
      return status;
  }
  return 0;
}

int run_on_host(const Call &call, const Places &places, const double *scalars, int *failed) {
  char *memory = call.scratch_bytes ? scratch_of(call.scratch_bytes) : nullptr;
  if (call.scratch_bytes && !memory) return no_memory;
  void *thread = PyEval_SaveThread();
  int status = launch_all(call, places, scalars, memory, call.team, failed);
  PyEval_RestoreThread(thread);
  return status;
}

int64_t attribute(PyObject *object, PyObject *name) { return number_of(PyObject_GetAttr(object, name)); }

// The stream work goes to now: that of a `with stream:` around us, else the tensors' library's.
bool stream_of(const Call &call, const Places &places, void *&stream) {
  PyObject *scoped = nullptr;
  if (PyContextVar_Get(scoped_stream, nullptr, &scoped)) return false;
  const bool plain = !scoped || scoped == &_Py_NoneStruct;
  if (scoped) Py_DecRef(scoped);
  if (plain && places.tensors && exchange->stream)
    return !exchange->stream(places.first_tensor.device_type, places.first_tensor.device_id, &stream);
  PyObject *found = PyObject_Vectorcall(call.stream, nullptr, 0, nullptr);
  if (!found) return false;
  stream = PyLong_AsVoidPtr(found);
  Py_DecRef(found);
  return !PyErr_Occurred();
}

int run_on_device(const Call &call, const Places &places, const double *scalars, int *failed) {
  void *stream = nullptr;
  uint64_t now = 0;
  int state = 0;
  if (!stream_of(call, places, stream)) return elsewhere;
  if (call.current(&now) || now != call.expected) return elsewhere;
  if (!call.scratch_bytes && !call.clear_bytes) {
    // A full queue makes a launch wait: other threads go on meanwhile.
    void *thread = PyEval_SaveThread();
    int status = launch_all(call, places, scalars, nullptr, stream, failed);
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
  return launch_all(call, places, scalars, reinterpret_cast<char *>(attribute(found, address_name)), stream, failed);
}

// Whether there is no error, or one that a check of ours raised, which the slow path repeats: it is forgotten then.
// Any other is of somebody who interrupts the call (a signal's handler that raises TimeoutError), and stays.
bool forgotten() {
  if (!PyErr_Occurred()) return true;
  PyObject *const ours[] = {PyExc_AttributeError, PyExc_TypeError,    PyExc_ValueError,  PyExc_ArithmeticError,
                            PyExc_LookupError,    PyExc_RuntimeError, PyExc_MemoryError, PyExc_BufferError};
  for (PyObject *kind : ours)
    if (PyErr_ExceptionMatches(kind)) {
      PyErr_Clear();
      return true;
    }
  return false;
}

PyObject *longer_way() {
  if (!forgotten()) return nullptr;
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
  PyObject *object[most_operands];  // of slots that are owned, or of the answer
  uint64_t owned = 0;

  bool make(const Call &call, PyObject *const *operands, Places &places) {
    for (int64_t i = 0; i < call.mades; ++i) {
      const Made &one = call.made[i];
      PyObject *made = PyObject_Call(one.make, one.arguments, nullptr);
      if (!made) return false;
      object[one.slot] = made, owned |= uint64_t(1) << one.slot;
      if (!address_of(made, places.at[one.slot])) return false;
    }
    for (int64_t i = 0; i < call.answers; ++i)
      if (!(owned >> call.answer[i] & 1)) object[call.answer[i]] = operands[call.answer[i]];
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
    for (; owned; owned &= owned - 1) Py_DecRef(object[__builtin_ctzll(owned)]);
  }
};

// Autograd is notified of tensors that will be written.  Those made in inference mode, which it does not follow, may be
// written only there: anywhere else the slow path has PyTorch's error for it.
bool touch(const Form &form, const Places &places, PyObject *const *operands) {
  uint64_t written = places.tensors & form.written;
  for (int64_t i = 0; written >> i; ++i) {
    if (!(written >> i & 1)) continue;
    if (reader) {  // the mode is in the key, and the slow path had no objection
      if (!(places.keys[i] & reader->autograd_keys)) continue;
    } else if (yes(ask(operands[i], inference_name))) {
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

// Where a benchmark wants to know it, the time at each step of a call.
enum Step { begun, named, read_all, looked_up, made_results, launched, steps };
int64_t *clock_at;
void step(Step now) {
  if (!clock_at) return;
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  clock_at[now] = int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

// Make a prepared call: the answer, or null and a status other than 0 where it was not made.
PyObject *make_call(const Form &form, Call &call, PyObject *const *operands, Places &places, const double *scalars,
                    int &status, int &failed) {
  Results results;
  status = not_apart, failed = 0;
  if (sound(call.span, form.slots, places.given, form.written, places.at) &&
      (!(places.tensors & form.written) || touch(form, places, operands)) && results.make(call, operands, places)) {
    step(made_results);
    status = call.current ? run_on_device(call, places, scalars, &failed) : run_on_host(call, places, scalars, &failed);
    step(launched);
  }
  if (!status && call.calls) ++*call.calls;
  call.used = ++now;
  return status ? nullptr : results.answer(call);
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
