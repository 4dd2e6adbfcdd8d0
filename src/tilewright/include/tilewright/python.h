// Python's functions as far as our own libraries call them (nearly all of its stable ABI), found in the process that
// loads the library: so it builds without Python's headers, once for every version.
#pragma once
#include <stddef.h>

extern "C" {
struct PyObject;
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyObject_VectorcallMethod(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
PyObject *PyUnicode_InternFromString(const char *);
PyObject *PyBytes_FromStringAndSize(const char *, ptrdiff_t);
PyObject *PyTuple_New(ptrdiff_t);
PyObject *PyTuple_GetItem(PyObject *, ptrdiff_t);
ptrdiff_t PyTuple_Size(PyObject *);
PyObject *PyList_GetItem(PyObject *, ptrdiff_t);
ptrdiff_t PyList_Size(PyObject *);
PyObject *PyLong_FromVoidPtr(void *);
PyObject *Py_BuildValue(const char *, ...);
void *PyLong_AsVoidPtr(PyObject *);
long PyLong_AsLong(PyObject *);
long long PyLong_AsLongLong(PyObject *);
double PyFloat_AsDouble(PyObject *);
int PyBytes_AsStringAndSize(PyObject *, char **, ptrdiff_t *);
const char *PyUnicode_AsUTF8AndSize(PyObject *, ptrdiff_t *);
int PyTuple_SetItem(PyObject *, ptrdiff_t, PyObject *);
int PyObject_IsTrue(PyObject *);
int PyContextVar_Get(PyObject *, PyObject *, PyObject **);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
int PyErr_ExceptionMatches(PyObject *);
extern PyObject *PyExc_AttributeError, *PyExc_TypeError, *PyExc_ValueError, *PyExc_ArithmeticError, *PyExc_LookupError,
    *PyExc_RuntimeError, *PyExc_MemoryError, *PyExc_BufferError;
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
int PyObject_GC_IsTracked(PyObject *);
void PyObject_GC_UnTrack(void *);
void *PyType_GetSlot(PyObject *, int);
int PyType_IsSubtype(PyObject *, PyObject *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
extern PyObject PyBool_Type, PyFloat_Type, PyList_Type, PyLong_Type, PyTuple_Type, PyType_Type, PyUnicode_Type,
    _Py_NoneStruct;
}
