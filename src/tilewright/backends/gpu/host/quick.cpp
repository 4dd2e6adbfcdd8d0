// The short way of a call that was made before, as functions Python calls without ctypes in between: `read`
// gives the facts of tensors as one key, `launch` fills in the addresses of a prepared call and queues it, and
// `call` does both, with the key looked up between them.
//
// Python's functions are declared here (nearly all of its stable ABI) and found in the process that loads
// this library, so it builds without Python's headers.  Tensors are read through the table of functions that
// DLPack 1.3 defines and the tensor's library publishes; nothing of that library is linked or included.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

extern "C" {
struct PyObject;
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
PyObject *PyObject_Type(PyObject *);
PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
PyObject *PyObject_VectorcallMethod(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyUnicode_InternFromString(const char *);
PyObject *PyBytes_FromStringAndSize(const char *, ptrdiff_t);
PyObject *PyTuple_New(ptrdiff_t);
PyObject *PyLong_FromVoidPtr(void *);
PyObject *PyLong_FromLong(long);
PyObject *Py_BuildValue(const char *, ...);
void *PyLong_AsVoidPtr(PyObject *);
double PyFloat_AsDouble(PyObject *);
int PyBytes_AsStringAndSize(PyObject *, char **, ptrdiff_t *);
int PyTuple_SetItem(PyObject *, ptrdiff_t, PyObject *);
int PyObject_IsTrue(PyObject *);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
}

namespace {

// DLPack 1.3, as far as it is used.
struct Tensor {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct Exchange {
  uint32_t major, minor;
  void *previous, *allocate, *from_object, *to_object;
  int (*read)(void *object, Tensor *tensor);
  int (*stream)(int device_type, int32_t device_id, void **stream);
};

constexpr int most_operands = 8, most_dimensions = 3, most_tail = 56;  // less than the facts of a tensor

// What a plan can depend on, less the address; every byte is set, so equal facts are equal bytes.
struct Facts {
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t shape[most_dimensions], strides[most_dimensions];
};

const Exchange *exchange;
PyObject *types[2], *requires_grad, *is_neg, *address_name, *nbytes_name,
    *cleared_name;  // kept for the life of the process

// Whether a method or attribute of the tensor says yes; anything but a clear no counts.
bool yes(PyObject *answer) {
  if (!answer) {
    PyErr_Clear();
    return true;
  }
  int said = PyObject_IsTrue(answer);
  Py_DecRef(answer);
  if (said < 0) PyErr_Clear();
  return said != 0;
}

bool facts_of(PyObject *object, Facts &facts, void *&address) {
  PyObject *type = PyObject_Type(object);
  bool known = type == types[0] || type == types[1];
  Py_DecRef(type);
  if (!known || yes(PyObject_GetAttr(object, requires_grad))) return false;
  PyObject *self[1] = {object};
  if (yes(PyObject_VectorcallMethod(is_neg, self, 1, nullptr))) return false;
  Tensor x;
  if (exchange->read(object, &x)) {
    PyErr_Clear();
    return false;
  }
  if (x.ndim < 1 || x.ndim > most_dimensions || !x.strides) return false;
  facts = Facts{x.device_type, x.device_id, x.ndim, x.code, x.bits, x.lanes, {}, {}};
  for (int i = 0; i < x.ndim; ++i) facts.shape[i] = x.shape[i], facts.strides[i] = x.strides[i];
  address = static_cast<char *>(x.data) + x.byte_offset;
  return true;
}

// Slots are the addresses of a call: where each goes, the bytes around it that are touched, what it is a multiple of.
struct Slot {
  int64_t offset, low, high, grain;
};
struct Call {
  int (*launch)(const void *args, void *workspace, void *stream);
  int (*current)(void *answer);  // what the runtime calls current in this thread: a context, or a device's index
  int (*capturing)(void *stream, int *answer);  // null: does not matter
  uint64_t expected;
  const void *args;
  // A dictionary by stream, of objects with an address, nbytes from there on, and so many cleared before it; null where
  // none is needed.
  PyObject *workspaces;
  PyObject *allocate, *allocate_args[3];  // makes a new result; null where it is given
  int64_t workspace_bytes, clear_bytes, bytes, slots, scalars, out, twin;
  int64_t scalar_offset[2];
  Slot slot[most_operands];
};
constexpr int64_t most_bytes = 512;

enum { not_apart = -1, elsewhere = -2, captured = -3 };

// Whether every address is a multiple of what it must be and what is written overlaps nothing that is read.
// `twin` may be exactly what is written.
bool sound(const Call &call, const uintptr_t *at) {
  for (int64_t i = 0; i < call.slots; ++i)
    if (at[i] & uintptr_t(call.slot[i].grain - 1)) return false;
  if (call.out < 0) return true;
  const Slot &of = call.slot[call.out];
  const int64_t low = int64_t(at[call.out]) + of.low, high = int64_t(at[call.out]) + of.high;
  for (int64_t i = 0; i < call.slots; ++i) {
    if (i == call.out || (i == call.twin && at[i] == at[call.out])) continue;
    if (int64_t(at[i]) + call.slot[i].low < high && low < int64_t(at[i]) + call.slot[i].high) return false;
  }
  return true;
}

}  // namespace

namespace {

// The facts of tensors one after the other, and which of them start at a multiple of 16 bytes.
struct Key {
  char bytes[most_operands * sizeof(Facts) + 8 + most_tail];
  Facts first;
  void *at[most_operands];

  bool read(PyObject *const *tensors, ptrdiff_t count) {
    if (!exchange || count < 1 || count > most_operands - 1) return false;  // one more may be made
    uint64_t aligned = 0;
    for (ptrdiff_t i = 0; i < count; ++i) {
      Facts facts;
      if (!facts_of(tensors[i], facts, at[i])) return false;
      if (i == 0) first = facts;
      memcpy(bytes + i * ptrdiff_t(sizeof facts), &facts, sizeof facts);
      aligned |= uint64_t((reinterpret_cast<uintptr_t>(at[i]) & 15) == 0) << i;
    }
    memcpy(bytes + count * ptrdiff_t(sizeof(Facts)), &aligned, 8);
    return true;
  }
  // With what the caller adds at its end; null where that is too long, or no bytes.
  PyObject *object(ptrdiff_t count, PyObject *tail = nullptr) {
    ptrdiff_t size = count * ptrdiff_t(sizeof(Facts)) + 8, more = 0;
    if (tail) {
      char *text = nullptr;
      if (PyBytes_AsStringAndSize(tail, &text, &more) || more > most_tail) return nullptr;
      memcpy(bytes + size, text, size_t(more));
    }
    return PyBytes_FromStringAndSize(bytes, size + more);
  }
};

// Queue the call unless something is in the way.
int queue(const Call &call, const void *args, void *workspace, void *stream) {
  uint64_t now = 0;
  int state = 0;
  if (call.current(&now) || now != call.expected) return elsewhere;
  if (call.capturing && (!workspace || call.capturing(stream, &state) || state)) return captured;
  return call.launch(args, workspace, stream);
}

uint64_t number_of(PyObject *object, PyObject *name) {
  PyObject *found = PyObject_GetAttr(object, name);
  if (!found) return 0;
  void *value = PyLong_AsVoidPtr(found);
  Py_DecRef(found);
  return reinterpret_cast<uintptr_t>(value);
}

// The address of a workspace of the stream that is large enough and begins with enough zeros, or null.
void *workspace_of(const Call &call, void *stream) {
  PyObject *key = PyLong_FromVoidPtr(stream);
  if (!key) return nullptr;
  PyObject *held = PyDict_GetItemWithError(call.workspaces, key);
  Py_DecRef(key);
  const uint64_t zeros = uint64_t(call.clear_bytes);
  if (!held || number_of(held, cleared_name) < zeros ||
      number_of(held, nbytes_name) + zeros < uint64_t(call.workspace_bytes))
    return nullptr;
  return reinterpret_cast<void *>(number_of(held, address_name) - zeros);
}

PyObject *longer_way() {
  PyErr_Clear();
  return Py_BuildValue("");
}

}  // namespace

SHOWN int64_t tw_quick_abi_version(void) { return 3; }
SHOWN int64_t tw_quick_call_bytes(void) { return sizeof(Call); }

// The tensor types to read and the table of their library; 0, or not 0 where this library cannot use it.
SHOWN int tw_quick_tensors(PyObject *first, PyObject *second, const void *table) {
  auto *found = static_cast<const Exchange *>(table);
  if (!found || found->major != 1 || !found->read) return 1;
  requires_grad = PyUnicode_InternFromString("requires_grad");
  is_neg = PyUnicode_InternFromString("is_neg");
  address_name = PyUnicode_InternFromString("address");
  nbytes_name = PyUnicode_InternFromString("nbytes");
  cleared_name = PyUnicode_InternFromString("cleared");
  if (!requires_grad || !is_neg || !address_name || !nbytes_name || !cleared_name) return 1;
  types[0] = first, types[1] = second, exchange = found;
  return 0;
}

// read(*tensors): (key, *addresses), or None where one of them needs the long way.
SHOWN PyObject *tw_quick_read(PyObject *, PyObject *const *given, ptrdiff_t count) {
  Key key;
  if (!key.read(given, count)) return longer_way();
  PyObject *answer = PyTuple_New(count + 1);
  if (!answer) return nullptr;
  PyObject *bytes = key.object(count);
  bool whole = bytes != nullptr;
  if (whole) PyTuple_SetItem(answer, 0, bytes);
  for (ptrdiff_t i = 0; whole && i < count; ++i) {
    PyObject *number = PyLong_FromVoidPtr(key.at[i]);
    whole = number != nullptr;
    if (whole) PyTuple_SetItem(answer, i + 1, number);
  }
  if (whole) return answer;
  Py_DecRef(answer);
  return nullptr;
}

// launch(stream, workspace, *addresses, *scalars) of a prepared call: 0, the kernel's status, or why the long way must be gone.
SHOWN PyObject *tw_quick_launch(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  auto &call = *static_cast<const Call *>(PyLong_AsVoidPtr(self));
  if (count != 2 + call.slots + call.scalars) return PyLong_FromLong(not_apart);
  alignas(16) char args[most_bytes];
  uintptr_t at[most_operands];
  memcpy(args, call.args, size_t(call.bytes));
  void *stream = PyLong_AsVoidPtr(given[0]), *workspace = PyLong_AsVoidPtr(given[1]);
  for (int64_t i = 0; i < call.slots; ++i) {
    at[i] = reinterpret_cast<uintptr_t>(PyLong_AsVoidPtr(given[2 + i]));
    memcpy(args + call.slot[i].offset, &at[i], sizeof at[i]);
  }
  for (int64_t i = 0; i < call.scalars; ++i) {
    double value = PyFloat_AsDouble(given[2 + call.slots + i]);
    memcpy(args + call.scalar_offset[i], &value, sizeof value);
  }
  if (PyErr_Occurred()) return nullptr;
  if (!sound(call, at)) return PyLong_FromLong(not_apart);
  // A full queue makes a launch wait: other threads go on meanwhile.
  void *thread = PyEval_SaveThread();
  int status = queue(call, args, workspace, stream);
  PyEval_RestoreThread(thread);
  return PyLong_FromLong(status);
}

// call(calls, tail, alpha, beta, *tensors): the prepared call under the key of the tensors and the tail, on the
// current stream of their library.  The tensors are the slots in their order, less the third where the call makes
// that one, the result, itself.  The result, None where the longer way must be gone (nothing was launched then), or
// (status, prepared call) of a launch that failed.
SHOWN PyObject *tw_quick_call(PyObject *, PyObject *const *given, ptrdiff_t count) {
  constexpr ptrdiff_t others = 4, third = 2;
  Key key;
  const ptrdiff_t tensors = count - others;
  if (!key.read(given + others, tensors)) return longer_way();
  PyObject *bytes = key.object(tensors, given[1]);
  if (!bytes) return longer_way();
  PyObject *known = PyDict_GetItemWithError(given[0], bytes);
  Py_DecRef(bytes);
  auto *found = known ? static_cast<const Call *>(PyLong_AsVoidPtr(known)) : nullptr;
  if (!found || found->slots != tensors + (found->allocate ? 1 : 0) || found->slots <= third) return longer_way();
  const Call &call = *found;
  alignas(16) char args[most_bytes];
  memcpy(args, call.args, size_t(call.bytes));
  for (int64_t i = 0; i < call.scalars; ++i) {
    const double scalar = PyFloat_AsDouble(given[2 + i]);
    memcpy(args + call.scalar_offset[i], &scalar, sizeof scalar);
  }
  void *stream = nullptr;
  if (PyErr_Occurred() || !exchange->stream || exchange->stream(key.first.device_type, key.first.device_id, &stream))
    return longer_way();
  Py_IncRef(known);  // others may change the dictionary while a result is made
  PyObject *result =
      call.allocate ? PyObject_Vectorcall(call.allocate, call.allocate_args, 3, nullptr) : given[others + third];
  int status = 0;
  if (!result) {
    status = not_apart;
  } else if (call.allocate) {
    Tensor x;
    if (exchange->read(result, &x) || x.device_type != key.first.device_type || x.device_id != key.first.device_id) {
      status = not_apart;
    } else {
      for (ptrdiff_t i = tensors; i > third; --i) key.at[i] = key.at[i - 1];
      key.at[third] = static_cast<char *>(x.data) + x.byte_offset;
    }
  } else {
    Py_IncRef(result);
  }
  uintptr_t at[most_operands];
  for (int64_t i = 0; !status && i < call.slots; ++i) {
    at[i] = reinterpret_cast<uintptr_t>(key.at[i]);
    memcpy(args + call.slot[i].offset, &at[i], sizeof at[i]);
  }
  if (!status && !sound(call, at)) status = not_apart;
  if (!status && call.workspaces) {
    // Python is kept from running: nobody frees the workspace before the launch is queued.
    status = queue(call, args, workspace_of(call, stream), stream);
  } else if (!status) {
    void *thread = PyEval_SaveThread();
    status = queue(call, args, nullptr, stream);
    PyEval_RestoreThread(thread);
  }
  if (status && result) Py_DecRef(result);
  PyObject *answer = !status ? result : status < 0 ? longer_way() : Py_BuildValue("(iO)", status, known);
  Py_DecRef(known);
  return answer;
}
