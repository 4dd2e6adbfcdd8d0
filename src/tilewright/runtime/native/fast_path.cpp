// The fast path of a call that was made before, for every op, in one function that Python calls without ctypes in
// between: it reads the facts of the operands, finds the prepared call under them, makes the results, fills in
// addresses and scalars, and launches the kernels one after another.  Anything unusual is answered with None, and
// nothing was done then: the slow path in Python has the words for it.
#include <stddef.h>
#include <stdint.h>

#include <tilewright/call_front.h>
#include <tilewright/prepared_call.h>
#include <tilewright/settle.h>

#define SHOWN extern "C" __attribute__((visibility("default")))

SHOWN int64_t tw_fast_abi_version(void) { return 11; }
SHOWN int64_t tw_fast_now(void) { return ++now; }
SHOWN int64_t tw_fast_sizes(int64_t which) {
  const int64_t sizes[] = {sizeof(Form), sizeof(Pointer), sizeof(Scalar), sizeof(Stage),     sizeof(Span),
                           sizeof(Made), sizeof(Call),    sizeof(Reader), sizeof(Parameter), sizeof(Front)};
  return which < 10 ? sizes[which] : 0;
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
// torch_arrays.py), what is recorded of written tensors, how PyTorch is queried without Python (null: it is not), and the type of
// its dtypes; 0, or not 0 where this library cannot use it.
SHOWN int tw_fast_tensors(PyObject *first, PyObject *second, const void *table, PyObject *questions, PyObject *touched,
                          const Reader *requested, PyObject *dtype) {
  auto *found = static_cast<const Exchange *>(table);
  exchange = nullptr, reader = nullptr;
  if (!found || found->major != 1 || !found->read) return 1;
  PyObject *unusual = PyTuple_GetItem(questions, 0);
  const ptrdiff_t count = unusual ? PyTuple_Size(unusual) : -1;
  if (count < 0 || count > most_questions) return 1;
  for (ptrdiff_t i = 0; i < most_questions; ++i) tensor_unusual[i] = i < count ? PyTuple_GetItem(unusual, i) : nullptr;
  tensor_forward = PyTuple_GetItem(questions, 1), tensor_records = PyTuple_GetItem(questions, 2);
  tensor_inference = PyTuple_GetItem(questions, 3);
  if (!tensor_forward || !tensor_records || !tensor_inference) return 1;
  tensor_forward_names = PyObject_GetAttr(tensor_forward, PyUnicode_InternFromString("__dict__"));
  if (!tensor_forward_names) PyErr_Clear();
  tensor_types[0] = first, tensor_types[1] = second, tensor_touch = touched;
  exchange = found, reader = requested, dtype_type = dtype;
  return 0;
}

// key(options, *operands) of a form: ((options that are more than bytes), bytes), or None where Python must look.
SHOWN PyObject *tw_fast_key(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  auto &form = *static_cast<const Form *>(PyLong_AsVoidPtr(self));
  Key key;
  if (count < 1 || !key.read(form, given[0], given + 1, count - 1, true)) return longer_way();
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
  step(named);
  if (given_operands < 0 || !read_scalars(given + 2, form.scalars, scalars) ||
      !key.read(form, given[1], operands, given_operands, false))
    return longer_way();
  step(read_all);
  PyObject *known = prepared(given[0], key);  // after everything that may run Python, which may change dictionaries
  if (!known) return longer_way();
  auto &call = *static_cast<Call *>(PyLong_AsVoidPtr(known));
  Py_IncRef(known);  // others may change the dictionaries meanwhile
  step(looked_up);
  int status = 0, failed = 0;
  PyObject *answer = make_call(form, call, operands, key, scalars, status, failed);
  if (status > 0) answer = Py_BuildValue("[iiO]", status, failed, known);
  else if (status < 0) answer = longer_way();
  else if (answer) last_call.note(form, given[0], known, scalars, operands, given_operands, answer);
  Py_DecRef(known);
  return answer;
}

// -- the front: calls of a public function, without a step of Python ---------------------------------------------------

// Let a function's calls come here first; 0, or not 0 where there are too many.
SHOWN int tw_fast_front(const Front *front) {
  if (front_count == most_fronts) return 1;
  fronts[front_count++] = front;
  return 0;
}
SHOWN PyObject *tw_fast_vectorcall(PyObject *function, PyObject *const *given, size_t count, PyObject *names) {
  return front_call(function, given, count, names);
}
// values(*values) of a front: the values of all its parameters, to the answer or None; keep(answer) gives it back.
SHOWN PyObject *tw_fast_values(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  return front_values(static_cast<const Front *>(PyLong_AsVoidPtr(self)), given, count);
}
SHOWN PyObject *tw_fast_keep(PyObject *self, PyObject *const *given, ptrdiff_t count) {
  return count == 1 ? front_keep(static_cast<const Front *>(PyLong_AsVoidPtr(self)), given[0]) : longer_way();
}
// A name in a dictionary whose value, with the scoped settings, decides which calls are remembered.
SHOWN int tw_fast_watch(PyObject *scope, PyObject *dictionary, PyObject *name) {
  if (watched_count == most_watched) return 1;
  settings_scope = scope;
  watched_in[watched_count] = dictionary, watched_name[watched_count++] = name;
  return 0;
}
// Objects of a type are parts of plans; `base`: those of all types that inherit from it.  0, or not 0: too many.
SHOWN int tw_fast_own(PyObject *type, int base) {
  if (!base && is_own(type)) return 0;
  if (base ? base_count == most_bases : own_count == most_own_types) return 1;
  Py_IncRef(type);
  (base ? own_bases[base_count++] : own_types[own_count++]) = type;
  return 0;
}
// settle(*roots): the collector looks at these, and at what they are made of, no more.
SHOWN PyObject *tw_fast_settle(PyObject *, PyObject *const *given, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; ++i) settle(given[i], nullptr);
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}
// check(a kernel's check, its workspace, arguments, threads), the first three by their addresses: the bytes of workspace
// that it asks for, or None where it refuses.
SHOWN PyObject *tw_fast_check(PyObject *, PyObject *const *given, ptrdiff_t count) {
  if (count != 4) return longer_way();
  auto *check = reinterpret_cast<int (*)(const void *, char *, size_t)>(PyLong_AsVoidPtr(given[0]));
  auto *workspace = reinterpret_cast<int64_t (*)(const void *, int64_t)>(PyLong_AsVoidPtr(given[1]));
  const void *args = PyLong_AsVoidPtr(given[2]);
  char why[256];  // unread: Python asks again for the words
  if (check(args, why, sizeof why)) return longer_way();
  return Py_BuildValue("L", static_cast<long long>(workspace(args, PyLong_AsLongLong(given[3]))));
}
SHOWN void tw_fast_forget(void) { forget_front(); }
SHOWN void tw_fast_clock(int64_t *at) { clock_at = at; }
SHOWN int64_t tw_fast_front_hits(void) { return front_hits; }
// A kernel launched again and again with the same arguments, for benchmarks.
SHOWN int tw_fast_launch_often(int (*launch)(const void *, void *, void *), const void *args, void *workspace,
                               void *stream, int64_t count) {
  int status = 0;
  while (!status && count-- > 0) status = launch(args, workspace, stream);
  return status;
}
