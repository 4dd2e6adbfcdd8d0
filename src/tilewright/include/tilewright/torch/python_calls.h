// The way from C++ to Python and back, where this process has Python: arguments become Python's objects, tensors capsules of
// handles, and an exception goes through C++ as it is.  Of torch_ops.cpp.
#pragma once
#include <tilewright/torch/arguments.h>

// What pybind11 translates by asking the exception itself, so that Python gets the very exception that Python raised.
namespace pybind11 {
class __attribute__((visibility("default"))) builtin_exception : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual void set_error() const = 0;
};
}  // namespace pybind11

namespace {

using Object = void *;

// Python's functions, which `runtime/torch_ops.py` looks up by these names, and objects of its own.
struct Python {
  int (*PyGILState_Ensure)();
  void (*PyGILState_Release)(int);
  int (*PyContextVar_Get)(Object variable, Object fallback, Object *value);
  Object (*PyObject_GetAttr)(Object object, Object name);
  Object (*PyObject_Str)(Object object);
  Object (*PyObject_Vectorcall)(Object function, Object const *arguments, size_t count, Object names);
  Object (*PyTuple_New)(ptrdiff_t count);
  int (*PyTuple_SetItem)(Object tuple, ptrdiff_t at, Object steals);
  Object (*PyTuple_GetItem)(Object tuple, ptrdiff_t at);
  ptrdiff_t (*PyTuple_Size)(Object tuple);
  Object (*PyLong_FromLongLong)(long long value);
  Object (*PyLong_FromVoidPtr)(void *at);
  long (*PyLong_AsLong)(Object object);
  Object (*PyBool_FromLong)(long value);
  Object (*PyFloat_FromDouble)(double value);
  Object (*PyUnicode_FromStringAndSize)(const char *text, ptrdiff_t length);
  const char *(*PyUnicode_AsUTF8AndSize)(Object text, ptrdiff_t *length);
  Object (*PyCapsule_New)(void *held, const char *name, void *destructor);
  void *(*PyCapsule_GetPointer)(Object capsule, const char *name);
  void (*PyErr_Fetch)(Object *type, Object *value, Object *trace);
  void (*PyErr_NormalizeException)(Object *type, Object *value, Object *trace);
  void (*PyErr_Restore)(Object type, Object value, Object trace);
  void (*PyErr_Clear)();
  void (*Py_IncRef)(Object object);
  void (*Py_DecRef)(Object object);
  Object call;  // call(op, pending, *values): a tuple of capsules, one a result
  Object none, variables[2];
  Object forward, level;  // what has the level of forward-mode gradients, and its name there
};
std::atomic<const Python *> python{nullptr};

// The right to run Python, for a scope.
struct Running {
  const Python &by;
  int state;
  explicit Running(const Python &python) : by(python), state(python.PyGILState_Ensure()) {}
  Running(const Running &) = delete;
  Running &operator=(const Running &) = delete;
  ~Running() { by.PyGILState_Release(state); }
};

// An exception of Python's on its way through C++.
class Raised : public pybind11::builtin_exception {
 public:
  Raised(const Python &by, const std::string &text, Object type, Object value, Object trace)
      : builtin_exception(text), by_(by), type_(type), value_(value), trace_(trace) {}
  Raised(const Raised &) = delete;
  Raised &operator=(const Raised &) = delete;
  ~Raised() override {
    if (python.load() != &by_) return;  // Python has ended
    Running running(by_);
    for (Object held : {type_, value_, trace_})
      if (held) by_.Py_DecRef(held);
  }
  void set_error() const override {
    for (Object held : {type_, value_, trace_})
      if (held) by_.Py_IncRef(held);
    by_.PyErr_Restore(type_, value_, trace_);
  }

 private:
  const Python &by_;
  Object type_, value_, trace_;
};

[[noreturn]] void raise(const Python &by) {
  Object type = nullptr, value = nullptr, trace = nullptr;
  by.PyErr_Fetch(&type, &value, &trace);
  by.PyErr_NormalizeException(&type, &value, &trace);
  Object text = value ? by.PyObject_Str(value) : nullptr;
  const char *words = text ? by.PyUnicode_AsUTF8AndSize(text, nullptr) : nullptr;
  const std::string copied = words ? words : "an exception of Python's";
  if (text) by.Py_DecRef(text);
  by.PyErr_Clear();
  throw Raised(by, copied, type, value, trace);
}

Object list_of(const Python &by, const Argument &x) {
  Object all = by.PyTuple_New(ptrdiff_t(x.number));
  for (int64_t i = 0; all && i < x.number; ++i)
    by.PyTuple_SetItem(all, ptrdiff_t(i), by.PyLong_FromLongLong(x.items[i]));
  return all;
}
// An argument as an object; null where there is no memory.  A capsule holds a handle of its own, which whoever takes the
// tensor out of it gives back.
Object object_of(const Python &by, const Argument &x) {
  Handle mine = nullptr;
  if (!x.given) return by.Py_IncRef(by.none), by.none;
  switch (Kind(x.kind)) {
    case is_tensor:
    case maybe_tensor:
      return shim.aoti_torch_new_tensor_handle(x.tensor, &mine) ? nullptr : by.PyCapsule_New(mine, nullptr, nullptr);
    case is_float:
    case maybe_float:
      return by.PyFloat_FromDouble(x.real);
    case is_text:
      return by.PyUnicode_FromStringAndSize(x.text, ptrdiff_t(x.number));
    case is_list:
    case maybe_list:
      return list_of(by, x);
    case is_bool:
      return by.PyBool_FromLong(long(x.number));
    case is_int:
    case maybe_dtype:
      return by.PyLong_FromLongLong(x.number);
  }
  return nullptr;
}

// Let Python make a call; `pending` is what `tw_torch_remember` is given, null where the call is not to be remembered.
void call_python(const Python &by, int64_t op, const Arguments &arguments, void *pending, Handle *results,
                 uint64_t count) {
  Running running(by);
  Object objects[2 + most_arguments] = {by.PyLong_FromLongLong(op), by.PyLong_FromVoidPtr(pending)};
  for (int64_t i = 0; i < arguments.count; ++i) objects[2 + i] = object_of(by, arguments.argument[i]);
  bool whole = true;
  for (int64_t i = 0; i < 2 + arguments.count; ++i) whole &= objects[i] != nullptr;
  Object answer = whole ? by.PyObject_Vectorcall(by.call, objects, size_t(2 + arguments.count), nullptr) : nullptr;
  for (int64_t i = 0; i < 2 + arguments.count; ++i)
    if (objects[i]) by.Py_DecRef(objects[i]);
  if (!answer) raise(by);
  const bool right = by.PyTuple_Size(answer) == ptrdiff_t(count);
  for (uint64_t i = 0; right && i < count; ++i)
    results[i] = by.PyCapsule_GetPointer(by.PyTuple_GetItem(answer, ptrdiff_t(i)), nullptr);
  by.Py_DecRef(answer);
  if (!right) throw std::runtime_error("a kernel of tilewright in Python gave another number of results");
}

}  // namespace
