// The short way of a call that was made before, for every op, in one function that Python calls without ctypes in
// between: it reads the facts of the operands, finds the prepared call under them, makes the results, fills in
// addresses and scalars, and launches the kernels one after another.  Anything unusual is answered with None, and
// nothing was done then: the long way in Python has the words for it.
//
// NumPy's arrays are read by the leading fields of its C API, which are the same in all its versions and compared with
// NumPy's own answers before they are used; tensors through the table of functions that DLPack 1.3 defines and their
// library publishes.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tilewright/python.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

namespace {

// The limits that Python must know too are defined in quick.py, which writes them in front of this text.
constexpr int most_operands = TW_MOST_OPERANDS, most_scalars = TW_MOST_SCALARS, most_loops = TW_MOST_LOOPS,
              most_maker_arguments = TW_MOST_MAKER_ARGUMENTS;
constexpr int64_t most_bytes = TW_MOST_ARGUMENT_BYTES;  // of one kernel's arguments
constexpr int most_dimensions = 6, most_held = 8, most_facts = 128, most_questions = 4;
static_assert(most_operands < 64, "sets of operands are the bits of a uint64_t");

// -- what operands say of themselves ---------------------------------------------------------------------------------

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

// NumPy's array and dtype behind the head that every object has.
struct ArrayFields {
  char *data;
  int nd;
  intptr_t *dimensions, *strides;
  PyObject *base, *descr;
  int flags;
};
struct DtypeFields {
  PyObject *typeobj;
  char kind, type, byteorder, former_flags;
  int type_num;
};
constexpr int array_writeable = 0x400;

enum Kind : uint8_t { none, array, tensor, held };

// What a plan can depend on, less the address.  Equal facts are equal bytes.
struct Head {
  uint8_t kind, ndim, flags, byteorder;
  int32_t type, device_type, device_id;
};
enum { aligned_16 = 1, writeable = 2 };

ptrdiff_t head_bytes;             // of any object; its type stands in the last word of it
PyObject *array_type;             // null: NumPy's arrays take the long way
PyObject *tensor_types[2];        // null: tensors do
PyObject *held_types[most_held];  // types with the attributes `facts` (bytes) and `address`
int held_count;
const Exchange *exchange;
PyObject *tensor_unusual[most_questions], *tensor_forward, *tensor_records, *tensor_touch, *scoped_stream;
PyObject *requires_grad_name, *is_neg_name, *storage_name, *offset_name, *address_name, *nbytes_name, *cleared_name,
    *facts_name, *level_name, *inference_name;

PyObject *type_of(PyObject *object) {
  return *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(object) + head_bytes - ptrdiff_t(sizeof(void *)));
}
template <class Fields> const Fields &fields_of(PyObject *object) {
  return *reinterpret_cast<const Fields *>(reinterpret_cast<char *>(object) + head_bytes);
}

// A number that a method or attribute of an object gives; -1 where it gives none.
int64_t number_of(PyObject *found) {
  if (!found) return -1;
  int64_t value = PyLong_AsLongLong(found);
  Py_DecRef(found);
  return value;
}
PyObject *ask(PyObject *object, PyObject *method) { return PyObject_VectorcallMethod(method, &object, 1, nullptr); }

// Whether a method or attribute of the tensor says yes; anything but a clear no counts.
bool yes(PyObject *answer) {
  int said = answer ? PyObject_IsTrue(answer) : -1;
  if (answer) Py_DecRef(answer);
  return said != 0;
}

// What PyTorch is doing: 0 something unusual, 1 gradients are recorded, 2 they are not.
int tensor_state() {
  for (PyObject *one : tensor_unusual)
    if (one && yes(PyObject_Vectorcall(one, nullptr, 0, nullptr))) return 0;
  if (number_of(PyObject_GetAttr(tensor_forward, level_name)) >= 0) return 0;
  return yes(PyObject_Vectorcall(tensor_records, nullptr, 0, nullptr)) ? 1 : 2;
}

struct Operand {
  Head head;
  int64_t sizes[2 * most_dimensions];  // the shape, then the strides
  uintptr_t at;
  const char *facts;  // of what is held: stand for the sizes
  ptrdiff_t facts_bytes;
};

bool read_array(PyObject *object, Operand &x) {
  auto &fields = fields_of<ArrayFields>(object);
  auto &dtype = fields_of<DtypeFields>(fields.descr);
  if (fields.nd < 0 || fields.nd > most_dimensions) return false;
  x.head = Head{array,
                uint8_t(fields.nd),
                uint8_t(fields.flags & array_writeable ? writeable : 0),
                uint8_t(dtype.byteorder),
                dtype.type_num,
                0,
                0};
  memcpy(x.sizes, fields.dimensions, size_t(fields.nd) * 8);
  memcpy(x.sizes + fields.nd, fields.strides, size_t(fields.nd) * 8);
  x.at = reinterpret_cast<uintptr_t>(fields.data);
  return true;
}

// Bytes behind the first element that the tensor reaches; 0 where it has no elements.
int64_t reach_of(const Tensor &x) {
  int64_t reach = 0;
  for (int i = 0; i < x.ndim; ++i) {
    if (!x.shape[i]) return 0;
    if (x.strides[i] > 0) reach += (x.shape[i] - 1) * x.strides[i];
  }
  return (reach + 1) * (x.bits / 8);
}

// `records`: gradients are recorded, so a tensor that wants one takes the long way, and its error.
bool read_tensor(PyObject *object, Operand &x, bool records) {
  if (records && yes(PyObject_GetAttr(object, requires_grad_name))) return false;
  if (yes(ask(object, is_neg_name))) return false;
  Tensor t;
  if (exchange->read(object, &t)) return false;
  if (t.ndim < 0 || t.ndim > most_dimensions || (t.ndim && (!t.strides || !t.shape)) || t.lanes != 1) return false;
  // Storage may be gone, or smaller than it was when the tensor was made.
  const int64_t reach = reach_of(t);
  if (reach) {
    PyObject *storage = ask(object, storage_name);
    const int64_t bytes = storage ? number_of(ask(storage, nbytes_name)) : -1;
    if (storage) Py_DecRef(storage);
    const int64_t offset = number_of(ask(object, offset_name));
    if (!t.data || bytes < 0 || offset < 0 || offset * (t.bits / 8) + reach > bytes) return false;
  }
  x.at = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  const bool on_host = t.device_type == 1;
  x.head = Head{tensor,     uint8_t(t.ndim),      uint8_t(writeable | (on_host || x.at % 16 ? 0 : aligned_16)),
                0,          t.code << 8 | t.bits, t.device_type,
                t.device_id};
  for (int i = 0; i < t.ndim; ++i) x.sizes[i] = t.shape[i], x.sizes[t.ndim + i] = t.strides[i];
  return true;
}

bool read_held(PyObject *object, Operand &x) {
  PyObject *facts = PyObject_GetAttr(object, facts_name);
  char *text = nullptr;
  if (!facts || PyBytes_AsStringAndSize(facts, &text, &x.facts_bytes)) return false;
  Py_DecRef(facts);  // the object keeps it
  PyObject *address = PyObject_GetAttr(object, address_name);
  if (!address) return false;
  x.at = reinterpret_cast<uintptr_t>(PyLong_AsVoidPtr(address));
  Py_DecRef(address);
  if (x.facts_bytes > most_facts || PyErr_Occurred()) return false;
  x.facts = text;
  x.head = Head{held, uint8_t(x.facts_bytes), uint8_t(writeable | (x.at % 16 ? 0 : aligned_16)), 0, 0, 0, 0};
  return true;
}

// An op's operands: how many, how many scalars, and which are written.
struct Form {
  int64_t id, slots, scalars;
  uint64_t written;
};

// The facts of all operands of a call, one after the other.
struct Key {
  char bytes[8 + most_operands * (sizeof(Head) + most_facts)];
  ptrdiff_t size;
  uintptr_t at[most_operands];
  uint64_t given, tensors;
  Head first_tensor;

  bool read(const Form &form, PyObject *const *operands) {
    size = 8, given = tensors = 0;
    memcpy(bytes, &form.id, 8);
    bool records = true;
    for (int64_t i = 0; i < form.slots; ++i) {
      Operand x;
      x.facts = nullptr;
      PyObject *object = operands[i];
      at[i] = 0;
      if (object == &_Py_NoneStruct) {
        bytes[size++] = none;
        continue;
      }
      PyObject *type = type_of(object);
      given |= uint64_t(1) << i;
      if (type == array_type) {
        if (!read_array(object, x)) return false;
      } else if (exchange && (type == tensor_types[0] || type == tensor_types[1])) {
        if (!tensors) {
          const int state = tensor_state();
          if (!state) return false;
          records = state == 1;
        }
        if (!read_tensor(object, x, records)) return false;
        if (!tensors) first_tensor = x.head;
        tensors |= uint64_t(1) << i;
      } else {
        int known = 0;
        while (known < held_count && held_types[known] != type) ++known;
        if (known == held_count || !read_held(object, x)) return false;
      }
      at[i] = x.at;
      if (!(form.written >> i & 1)) x.head.flags &= uint8_t(~writeable);
      memcpy(bytes + size, &x.head, sizeof x.head);
      size += ptrdiff_t(sizeof x.head);
      const ptrdiff_t more = x.facts ? x.facts_bytes : ptrdiff_t(x.head.ndim) * 16;
      memcpy(bytes + size, x.facts ? static_cast<const void *>(x.facts) : x.sizes, size_t(more));
      size += more;
    }
    return true;
  }
  PyObject *object() const { return PyBytes_FromStringAndSize(bytes, size); }
};

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
};

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

// Tensors that were written tell autograd so, except those of inference mode, which it does not follow.
bool touch(const Form &form, const Key &key, PyObject *const *operands) {
  uint64_t written = key.tensors & form.written;
  for (int64_t i = 0; written >> i; ++i) {
    if (!(written >> i & 1)) continue;
    PyObject *tuple = PyTuple_New(1);
    if (!tuple) return false;
    Py_IncRef(operands[i]);
    PyTuple_SetItem(tuple, 0, operands[i]);
    PyObject *done = PyObject_Vectorcall(tensor_touch, &tuple, 1, nullptr);
    if (!done) {
      PyErr_Clear();
      if (yes(ask(operands[i], inference_name))) {
        Py_DecRef(tuple);
        continue;
      }
      done = PyObject_Vectorcall(tensor_touch, &tuple, 1, nullptr);  // again, for its error
    }
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

SHOWN int64_t tw_quick_abi_version(void) { return 5; }
SHOWN int64_t tw_quick_sizes(int64_t which) {
  const int64_t sizes[] = {sizeof(Form), sizeof(Pointer), sizeof(Scalar), sizeof(Stage),
                           sizeof(Span), sizeof(Made),    sizeof(Call)};
  return which < 7 ? sizes[which] : 0;
}

// Called once: how large the head of an object is, and the context variable of the stream in force.
SHOWN int tw_quick_start(int64_t head, PyObject *stream) {
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
SHOWN void tw_quick_arrays(PyObject *type) { array_type = type == &_Py_NoneStruct ? nullptr : type; }

// What is read of an array: address, flags, byte order, type number, shape and strides, to be compared.
SHOWN PyObject *tw_quick_look(PyObject *object) {
  Operand x;
  if (!read_array(object, x)) return longer_way();
  PyObject *sizes = PyTuple_New(2 * x.head.ndim);
  for (int i = 0; sizes && i < 2 * x.head.ndim; ++i) PyTuple_SetItem(sizes, i, Py_BuildValue("L", x.sizes[i]));
  return Py_BuildValue("(KiiiN)", static_cast<unsigned long long>(x.at), int(x.head.flags), int(x.head.byteorder),
                       int(x.head.type), sizes);
}

SHOWN int tw_quick_hold(PyObject *type) {
  if (held_count == most_held) return 1;
  held_types[held_count++] = type;
  return 0;
}

// The tensor types to read, the table of their library, the questions that say what is going on (`Questions` of
// torch_arrays.py), and what is told of written tensors; 0, or not 0 where this library cannot use it.
SHOWN int tw_quick_tensors(PyObject *first, PyObject *second, const void *table, PyObject *questions,
                           PyObject *touched) {
  auto *found = static_cast<const Exchange *>(table);
  exchange = nullptr;
  if (!found || found->major != 1 || !found->read) return 1;
  PyObject *unusual = PyTuple_GetItem(questions, 0);
  const ptrdiff_t count = unusual ? PyTuple_Size(unusual) : -1;
  if (count < 0 || count > most_questions) return 1;
  for (ptrdiff_t i = 0; i < most_questions; ++i) tensor_unusual[i] = i < count ? PyTuple_GetItem(unusual, i) : nullptr;
  tensor_forward = PyTuple_GetItem(questions, 1), tensor_records = PyTuple_GetItem(questions, 2);
  if (!tensor_forward || !tensor_records) return 1;
  tensor_types[0] = first, tensor_types[1] = second, tensor_touch = touched;
  exchange = found;
  return 0;
}

// key(*operands) of a form: the facts as bytes, or None where an operand takes the long way.
SHOWN PyObject *tw_quick_key(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  auto &form = *static_cast<const Form *>(PyLong_AsVoidPtr(self));
  Key key;
  if (count != form.slots || !key.read(form, given)) return longer_way();
  return key.object();
}

// call(calls, attributes, *scalars, *operands) of a form: the prepared call under the attributes and the facts of the
// operands.  The result (several: a tuple), None where the longer way must be gone, or [status, stage, call] of a
// launch that failed.
SHOWN PyObject *tw_quick_call(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  auto &form = *static_cast<const Form *>(PyLong_AsVoidPtr(self));
  if (count != 2 + form.scalars + form.slots) return longer_way();
  double scalars[most_scalars];
  PyObject *const *operands = given + 2 + form.scalars;
  Key key;
  if (!read_scalars(given + 2, form.scalars, scalars) || !key.read(form, operands)) return longer_way();
  PyObject *bytes = key.object();
  if (!bytes) return longer_way();
  // Both lookups after everything that may run Python, which may change the dictionaries.
  PyObject *alike = PyDict_GetItemWithError(given[0], given[1]);
  PyObject *known = alike ? PyDict_GetItemWithError(alike, bytes) : nullptr;
  Py_DecRef(bytes);
  if (!known) return longer_way();
  auto &call = *static_cast<const Call *>(PyLong_AsVoidPtr(known));
  Py_IncRef(known);  // others may change the dictionaries meanwhile
  Results results;
  int status = not_apart, failed = 0;
  if (sound(call, form, key) && results.make(call, operands, key))
    status = call.current ? run_on_device(call, key, scalars, &failed) : run_on_host(call, key, scalars, &failed);
  if (!status && call.calls) ++*call.calls;
  PyObject *answer = nullptr;
  if (status > 0) answer = Py_BuildValue("[iiO]", status, failed, known);
  else if (status < 0) answer = longer_way();
  else if (!(key.tensors & form.written) || touch(form, key, operands)) answer = results.answer(call);
  Py_DecRef(known);
  return answer;
}
