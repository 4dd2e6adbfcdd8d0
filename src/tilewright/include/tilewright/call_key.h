// What a call that was made before is known by: its options and the facts of its operands, as bytes.  Of fast_path.cpp, in
// front of which fast_path.py writes the limits that Python must know too.
//
// NumPy's arrays are read by the leading fields of its C API, which are the same in all its versions and compared with
// NumPy's own answers before they are used; tensors through the table of functions that DLPack 1.3 defines and their
// library publishes.
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tilewright/python.h>

namespace {

// The limits that Python must know too are defined in fast_path.py, which writes them in front of this text.
constexpr int most_operands = TW_MOST_OPERANDS, most_scalars = TW_MOST_SCALARS, most_parameters = TW_MOST_PARAMETERS;
constexpr int most_dimensions = 6, most_held = 8, most_facts = 128, most_questions = 4, most_strange = 8,
              most_depth = 4;
constexpr ptrdiff_t most_option_bytes = 1024;
static_assert(most_parameters <= most_operands, "parameters are read as operands are");
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
  uint64_t keys;  // PyTorch's dispatch keys of a tensor, where they can be read
};
enum { aligned_16 = 1, writeable = 2 };

// How PyTorch's state is read, without a call of Python: functions of its C interface, which take a handle (the address of
// a pointer to a tensor's implementation), and where those pointers and two facts are found.  `fast_path.py` compares
// what is read so with PyTorch's own answers before it is used.
struct Reader {
  int (*storage_size)(void *const *tensor, int64_t *bytes);
  int (*storage_offset)(void *const *tensor, int64_t *elements);
  bool (*records)();         // whether gradients are recorded
  int64_t impl_at, keys_at;  // of the implementation in an object, of the dispatch keys in that
  uint64_t autograd_keys;    // a tensor made in inference mode has none of them
  void *library;             // the one that has `state`
  const char *state;         // two words of each thread: every mode, transform and guard is in them
};
const Reader *reader;  // null: by Python

// The words of this thread that say what PyTorch is doing.
const uint64_t *thread_state() {
  static __thread const uint64_t *words;
  static __thread const Reader *of;
  if (of != reader) {
    words = static_cast<const uint64_t *>(dlsym(reader->library, reader->state));
    of = words ? reader : nullptr;
  }
  return words;
}

ptrdiff_t head_bytes;             // of any object; its type stands in the last word of it
PyObject *array_type;             // null: NumPy's arrays take the slow path
PyObject *tensor_types[2];        // null: tensors do
PyObject *held_types[most_held];  // types with the attributes `facts` (bytes) and `address`
int held_count;
const Exchange *exchange;
PyObject *dtype_type;  // of what names the elements of a tensor
PyObject *tensor_unusual[most_questions], *tensor_forward, *tensor_forward_names, *tensor_records, *tensor_inference,
    *tensor_touch, *scoped_stream;
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

// The level of forward-mode gradients that are made: a name of a module of PyTorch's.
int64_t forward_level() {
  PyObject *level = tensor_forward_names ? PyDict_GetItemWithError(tensor_forward_names, level_name) : nullptr;
  if (!level) return number_of(PyObject_GetAttr(tensor_forward, level_name));
  return PyLong_AsLongLong(level);
}

// What PyTorch is doing in this thread, as two words that are a part of the key: 0 something unusual, 1 gradients are
// recorded, 2 they are not.  Whether equal words mean something unusual is decided once, before a call is remembered
// under them (`remembering`); a forward-mode gradient is not in them.
int tensor_state(bool remembering, uint64_t (&words)[2]) {
  words[0] = words[1] = 0;
  const uint64_t *state = reader ? thread_state() : nullptr;
  if (state) words[0] = state[0], words[1] = state[1];
  else remembering = true;
  for (int i = 0; remembering && i < most_questions; ++i)
    if (tensor_unusual[i] && yes(PyObject_Vectorcall(tensor_unusual[i], nullptr, 0, nullptr))) return 0;
  if (forward_level() >= 0) return 0;
  if (reader) return reader->records() ? 1 : 2;
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

// The bytes of a tensor's storage, and the element of it that the tensor begins with; false where nobody says.
bool storage_of(PyObject *object, void *const *impl, int64_t &bytes, int64_t &offset) {
  if (impl) return !reader->storage_size(impl, &bytes) && !reader->storage_offset(impl, &offset);
  PyObject *storage = ask(object, storage_name);
  bytes = storage ? number_of(ask(storage, nbytes_name)) : -1;
  if (storage) Py_DecRef(storage);
  offset = number_of(ask(object, offset_name));
  return bytes >= 0 && offset >= 0;
}

// `records`: gradients are recorded, so a tensor that wants one takes the slow path, and its error.  A tensor that is
// lazily negated, sparse, wrapped or otherwise no plain memory has other dispatch keys than any that is remembered.
bool read_tensor(PyObject *object, Operand &x, bool records, bool remembering) {
  if (records && yes(PyObject_GetAttr(object, requires_grad_name))) return false;
  void *impl = nullptr;
  uint64_t keys = 0;
  if (reader) {
    memcpy(&impl, reinterpret_cast<char *>(object) + reader->impl_at, sizeof impl);
    if (!impl) return false;
    memcpy(&keys, static_cast<char *>(impl) + reader->keys_at, sizeof keys);
  }
  if ((!reader || remembering) && yes(ask(object, is_neg_name))) return false;
  Tensor t;
  if (exchange->read(object, &t)) return false;
  if (t.ndim < 0 || t.ndim > most_dimensions || (t.ndim && (!t.strides || !t.shape)) || t.lanes != 1) return false;
  // Storage may be gone, or smaller than it was when the tensor was made.
  const int64_t reach = reach_of(t);
  if (reach) {
    int64_t bytes = 0, offset = 0;
    if (!t.data || !storage_of(object, impl ? &impl : nullptr, bytes, offset)) return false;
    if (offset * (t.bits / 8) + reach > bytes) return false;
  }
  x.at = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  const bool on_host = t.device_type == 1;
  x.head = Head{tensor,
                uint8_t(t.ndim),
                uint8_t(writeable | (on_host || x.at % 16 ? 0 : aligned_16)),
                0,
                t.code << 8 | t.bits,
                t.device_type,
                t.device_id,
                keys};
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
  x.head = Head{held, uint8_t(x.facts_bytes), uint8_t(writeable | (x.at % 16 ? 0 : aligned_16)), 0, 0, 0, 0, 0};
  return true;
}

// An op's operands: how many, how many scalars, and which are written.
struct Form {
  int64_t id, slots, scalars;
  uint64_t written;
};

// Where the operands of a call are, by slot, and which of them are given, or tensors.
struct Places {
  uintptr_t at[most_operands];
  uint64_t keys[most_operands];  // dispatch keys of tensors
  uint64_t given, tensors;
  Head first_tensor;
};

// The options of a call and the facts of all its operands, one after the other.  An option is written with its type,
// because 1, 1.0 and True are equal and not the same; of what is no name, number, tuple or list only the type is written,
// and the object itself is a part of the key beside the bytes.
struct Key : Places {
  char bytes[8 + most_option_bytes + (2 + most_strange) * sizeof(uint64_t) +
             most_operands * (sizeof(Head) + most_facts)];
  ptrdiff_t size;
  PyObject *strange[most_strange];
  int strange_count;
  ptrdiff_t first_operand;  // where the facts of the first one stand
  bool remembering, records;

  // `remembering`: the key is made to remember a call, not to find one.
  void begin(int64_t id, bool to_remember) {
    size = 8, first_operand = 0, given = tensors = 0, strange_count = 0, remembering = to_remember, records = true;
    memcpy(bytes, &id, 8);
  }
  bool write(char tag, const void *value, ptrdiff_t count) {
    if (size + 1 + count > 8 + most_option_bytes) return false;
    bytes[size] = tag;
    memcpy(bytes + size + 1, value, size_t(count));
    size += 1 + count;
    return true;
  }
  bool write_strange(PyObject *object, PyObject *type) {
    if (strange_count == most_strange) return false;
    strange[strange_count++] = object;
    return write('o', &type, sizeof type);
  }
  bool write_text(PyObject *object, PyObject *type) {
    ptrdiff_t count = 0;
    const char *text = PyUnicode_AsUTF8AndSize(object, &count);
    if (text) return write('s', &count, sizeof count) && write('=', text, count);
    PyErr_Clear();
    return write_strange(object, type);
  }
  bool write_int(PyObject *object, PyObject *type) {
    const long long value = PyLong_AsLongLong(object);
    if (value != -1 || !PyErr_Occurred()) return write('i', &value, sizeof value);
    PyErr_Clear();
    return write_strange(object, type);
  }
  // A list is written as the tuple it would be at the moment: it may be another in the next call.
  bool write_items(PyObject *object, bool is_list, int depth) {
    const ptrdiff_t count = is_list ? PyList_Size(object) : PyTuple_Size(object);
    if (!write('(', &count, sizeof count)) return false;
    for (ptrdiff_t i = 0; i < count; ++i)
      if (!write_option(is_list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i), depth + 1)) return false;
    return true;
  }
  bool write_option(PyObject *object, int depth) {
    if (object == &_Py_NoneStruct) return write('n', "", 0);
    PyObject *type = type_of(object);
    if (type == &PyBool_Type) return write(PyObject_IsTrue(object) ? 't' : 'f', "", 0);
    if (type == &PyUnicode_Type) return write_text(object, type);
    if (type == &PyLong_Type) return write_int(object, type);
    if (type == &PyFloat_Type) {
      const double value = PyFloat_AsDouble(object);
      return write('d', &value, sizeof value);
    }
    if ((type == &PyTuple_Type || type == &PyList_Type) && depth < most_depth)
      return write_items(object, type == &PyList_Type, depth);
    return write_strange(object, type);
  }

  bool read_any_tensor(PyObject *object, Operand &x) {
    if (!tensors) {
      uint64_t words[2];
      const int state = tensor_state(remembering, words);
      if (!state) return false;
      records = state == 1;
      memcpy(bytes + size, words, sizeof words);
      size += ptrdiff_t(sizeof words);
    }
    return read_tensor(object, x, records, remembering);
  }
  // The facts of operand i; None where it is not given.
  bool read_operand(int64_t i, PyObject *object, bool is_written) {
    at[i] = 0, keys[i] = 0;
    if (object == &_Py_NoneStruct) {
      bytes[size++] = none;
      return true;
    }
    Operand x;
    x.facts = nullptr;
    PyObject *type = type_of(object);
    if (type == array_type) {
      if (!read_array(object, x)) return false;
    } else if (exchange && (type == tensor_types[0] || type == tensor_types[1])) {
      if (!read_any_tensor(object, x)) return false;
      if (!tensors) first_tensor = x.head;
      tensors |= uint64_t(1) << i;
    } else {
      int known = 0;
      while (known < held_count && held_types[known] != type) ++known;
      if (known == held_count || !read_held(object, x)) return false;
    }
    given |= uint64_t(1) << i;
    at[i] = x.at, keys[i] = x.head.keys;
    if (!is_written) x.head.flags &= uint8_t(~writeable);
    if (!first_operand) first_operand = size;
    memcpy(bytes + size, &x.head, sizeof x.head);
    size += ptrdiff_t(sizeof x.head);
    const ptrdiff_t more = x.facts ? x.facts_bytes : ptrdiff_t(x.head.ndim) * 16;
    memcpy(bytes + size, x.facts ? static_cast<const void *>(x.facts) : x.sizes, size_t(more));
    size += more;
    return true;
  }

  // Operands that are not given stand for None.
  bool read(const Form &form, PyObject *options, PyObject *const *operands, int64_t count, bool to_remember) {
    begin(form.id, to_remember);
    if (type_of(options) != &PyTuple_Type || count > form.slots || !write_items(options, false, 0)) return false;
    for (int64_t i = 0; i < form.slots; ++i)
      if (!read_operand(i, i < count ? operands[i] : &_Py_NoneStruct, form.written >> i & 1)) return false;
    return true;
  }
  PyObject *object() const { return PyBytes_FromStringAndSize(bytes, size); }
  // The options that are more than bytes, as a new tuple.
  PyObject *strange_options() const {
    PyObject *all = PyTuple_New(strange_count);
    for (int i = 0; all && i < strange_count; ++i) {
      Py_IncRef(strange[i]);
      PyTuple_SetItem(all, i, strange[i]);
    }
    return all;
  }
};

}  // namespace
