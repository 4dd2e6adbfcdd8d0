// Parts of plans out of the garbage collector's sight: what untracked.py does, without a step of Python for each of some
// fifty objects of a plan.  Of fast_path.cpp.
#pragma once
#include <tilewright/call_key.h>

namespace {

constexpr int most_own_types = 64, most_bases = 2, tp_traverse = 71;  // the last of Python's stable ABI
using Visit = int (*)(PyObject *, void *);

PyObject *own_types[most_own_types];  // objects of these are parts of plans, never change, and are in no cycle
int own_count = 0;
PyObject *own_bases[most_bases];  // and those of types that inherit from these: the structs of ctypes
int base_count = 0;

bool is_own(PyObject *type) {
  for (int i = 0; i < own_count; ++i)
    if (own_types[i] == type) return true;
  for (int i = 0; i < base_count; ++i)
    if (PyType_IsSubtype(type, own_bases[i])) {
      if (own_count < most_own_types) Py_IncRef(type), own_types[own_count++] = type;
      return true;
    }
  return false;
}

int settle(PyObject *item, void *) {
  if (!PyObject_GC_IsTracked(item) || !is_own(type_of(item))) return 0;
  PyObject_GC_UnTrack(item);
  auto traverse = reinterpret_cast<int (*)(PyObject *, Visit, void *)>(PyType_GetSlot(type_of(item), tp_traverse));
  return traverse ? traverse(item, settle, nullptr) : 0;
}

}  // namespace
