// The front of a public function: a call made before goes from the function's own arguments to the launch without a step
// of Python.  It knows of a function only its parameters: which are operands (and of which slots they may be), which are
// options, which send a call to Python.  What a call means, the function itself says once: C watches which prepared
// call it makes of these arguments, and remembers that.  Of fast_path.cpp.
#pragma once
#include <stdlib.h>

#include <tilewright/prepared_call.h>

namespace {

static_assert(most_parameters <= 64, "sets of parameters are the bits of a uint64_t");
constexpr int most_fronts = 16, most_watched = 4, most_wheres = 8;
constexpr unsigned memo_places = 4096, most_memos = 2048;  // a power of two; more are forgotten, all at once

enum Role : int64_t { option, operand, left_out };
struct Parameter {
  PyObject *name;      // interned
  PyObject *fallback;  // its default; null: it has none
  int64_t role;
  uint64_t slots;  // of an operand: those it may be
};
using Vectorcall = PyObject *(*)(PyObject *, PyObject *const *, size_t, PyObject *);
struct Front {
  PyObject *function;
  Vectorcall original;
  const Form *form;
  int64_t id, parameters, positional;
  const Parameter *parameter;
};
const Front *fronts[most_fronts];
int front_count;
int64_t front_hits;  // for tests

// The call that `tw_fast_call` made in this thread while a front watched, by the objects it was given.
struct LastCall {
  bool watched;
  int64_t count;  // calls since then
  const Form *form;
  PyObject *calls, *known;  // owned, of the first
  PyObject *answer;         // only compared, as the operands are
  double scalars[most_scalars];
  PyObject *operands[most_operands];

  void note(const Form &of, PyObject *in, PyObject *found, const double *numbers, PyObject *const *objects,
            int64_t given, PyObject *made) {
    if (!watched || count++) return;
    form = &of, calls = in, known = found, answer = made;
    Py_IncRef(calls), Py_IncRef(known);
    memcpy(scalars, numbers, size_t(of.scalars) * sizeof *scalars);
    for (int64_t i = 0; i < of.slots; ++i) operands[i] = i < given ? objects[i] : &_Py_NoneStruct;
  }
};
__thread LastCall last_call;

// -- which calls are remembered: those under the settings in force, for the device of the first operand --------------

PyObject *settings_scope, *watched_in[most_watched], *watched_name[most_watched];
int watched_count;
struct Where {
  PyObject *scoped, *watched[most_watched], *calls;  // owned
  Head device;
};
Where wheres[most_wheres];
unsigned where_turn;

Head device_of(const Head &first) { return Head{first.kind, 0, 0, 0, 0, first.device_type, first.device_id, 0}; }

// What is in force now, borrowed; false where it cannot be known.
bool in_force(Where &now) {
  now = Where{};
  if (!watched_count || PyContextVar_Get(settings_scope, nullptr, &now.scoped)) return false;
  if (now.scoped) Py_DecRef(now.scoped);  // the context keeps it
  for (int i = 0; i < watched_count; ++i)
    if (!(now.watched[i] = PyDict_GetItemWithError(watched_in[i], watched_name[i]))) return false;
  return true;
}
bool same(const Where &one, const Where &other) {
  return one.scoped == other.scoped && !memcmp(one.watched, other.watched, sizeof one.watched) &&
         !memcmp(&one.device, &other.device, sizeof one.device);
}
PyObject *calls_of(const Where &now) {
  for (const Where &one : wheres)
    if (one.calls && same(one, now)) return one.calls;
  return nullptr;
}
void each_object(Where &one, void (*change)(PyObject *)) {
  if (one.scoped) change(one.scoped);
  for (PyObject *value : one.watched)
    if (value) change(value);
  if (one.calls) change(one.calls);
}
void remember_where(Where now, PyObject *calls) {
  if (calls_of(now) == calls) return;
  now.calls = calls;
  each_object(now, Py_IncRef);
  Where &place = wheres[where_turn++ % most_wheres];
  Where before = place;
  place = now;
  each_object(before, Py_DecRef);
}

// -- what is remembered ----------------------------------------------------------------------------------------------

struct Memo {
  uint64_t hash;
  ptrdiff_t size;
  PyObject *known, *calls, *strange[most_strange];  // owned
  double scalars[most_scalars];
  int8_t parameter[most_operands];  // of each slot; -1: none
  char bytes[];
};
Memo *memos[memo_places];
unsigned memo_count;

// Where a key is, or would go.
Memo *&memo_place(uint64_t hash, const Key &key) {
  unsigned at = unsigned(hash) % memo_places;
  while (memos[at] && (memos[at]->hash != hash || memos[at]->size != key.size ||
                       memcmp(memos[at]->bytes, key.bytes, size_t(key.size))))
    at = (at + 1) % memo_places;
  return memos[at];
}
void forget_memo(Memo *one) {
  Py_DecRef(one->known), Py_DecRef(one->calls);
  for (PyObject *object : one->strange)
    if (object) Py_DecRef(object);
  free(one);
}
void forget_front() {
  Memo *gone[most_memos];  // out of the table before anything runs that may look there
  unsigned count = 0;
  for (Memo *&one : memos)
    if (one) gone[count++] = one, one = nullptr;
  memo_count = 0;
  Where before[most_wheres];
  memcpy(before, wheres, sizeof before), memset(wheres, 0, sizeof wheres);
  while (count) forget_memo(gone[--count]);
  for (Where &one : before) each_object(one, Py_DecRef);
}

// The parameter of each slot of the last call: one that may be of it and is the very object; false where a slot has
// none, or an operand that was given is in none.
bool match_slots(const Front &front, PyObject *const *values, int8_t *parameter) {
  uint64_t used = 0;
  for (int64_t slot = 0; slot < front.form->slots; ++slot) {
    parameter[slot] = -1;
    if (last_call.operands[slot] == &_Py_NoneStruct) continue;
    for (int64_t i = 0; i < front.parameters && parameter[slot] < 0; ++i)
      if (front.parameter[i].role == operand && !(used >> i & 1) && front.parameter[i].slots >> slot & 1 &&
          values[i] == last_call.operands[slot])
        parameter[slot] = int8_t(i), used |= uint64_t(1) << i;
    if (parameter[slot] < 0) return false;
  }
  for (int64_t i = 0; i < front.parameters; ++i)
    if (front.parameter[i].role == operand && values[i] && values[i] != &_Py_NoneStruct && !(used >> i & 1))
      return false;
  return true;
}

// -- a call ----------------------------------------------------------------------------------------------------------

struct FrontCall {
  const Front *front;
  PyObject *values[most_parameters];  // null: left out, or its default
  Key key;
  Where now;
  bool readable;

  void begin(const Front *of) {
    front = of, readable = false;
    memset(values, 0, sizeof values);
  }
  bool take(int64_t at, PyObject *value) {
    const Parameter &one = front->parameter[at];
    if (value == one.fallback) return true;
    values[at] = value;
    return one.role != left_out;
  }
  // The arguments by parameter; false where one is of no parameter, or of one that Python must see.
  bool name(PyObject *const *given, int64_t count, PyObject *names) {
    if (count > front->positional) return false;
    for (int64_t i = 0; i < count; ++i)
      if (!take(i, given[i])) return false;
    const ptrdiff_t more = names ? PyTuple_Size(names) : 0;
    int64_t at = count;
    for (ptrdiff_t i = 0; i < more; ++i) {
      PyObject *one = PyTuple_GetItem(names, i);
      const int64_t first = at;  // most name them in order
      while (at == front->parameters || front->parameter[at].name != one) {
        at = at < front->parameters ? at + 1 : 0;
        if (at == first) return false;
      }
      if (at < count || !take(at, given[count + i])) return false;
      ++at;
    }
    return true;
  }

  // Everything a call is known by, but for the calls that its settings and device have (`lies_in`).
  bool read() {
    key.begin(front->id, false);
    key.size += ptrdiff_t(sizeof(PyObject *));  // room for those calls
    uint64_t set = 0;                           // options that are not left at their defaults: most are
    for (int64_t i = 0; i < front->parameters; ++i)
      set |= uint64_t(front->parameter[i].role == option && values[i]) << i;
    if (!key.write('?', &set, sizeof set)) return false;
    for (uint64_t left = set; left; left &= left - 1)
      if (!key.write_option(values[__builtin_ctzll(left)], 0)) return false;
    for (int64_t i = 0; i < front->parameters; ++i) {
      if (front->parameter[i].role != operand) continue;
      const bool written = front->parameter[i].slots & front->form->written;
      if (!key.read_operand(i, values[i] ? values[i] : &_Py_NoneStruct, written)) return false;
    }
    for (int i = 0; i < key.strange_count; ++i) {
      PyObject *type = type_of(key.strange[i]);
      if (type != dtype_type && type != &PyType_Type) return false;  // it may be another when it is looked at again
      memcpy(key.bytes + key.size, &key.strange[i], sizeof(PyObject *)), key.size += ptrdiff_t(sizeof(PyObject *));
    }
    if (!(key.given & 1) || !in_force(now)) return false;
    Head first;
    memcpy(&first, key.bytes + key.first_operand, sizeof first);
    now.device = device_of(first);
    return readable = first.kind == array || first.kind == tensor;
  }
  void lies_in(PyObject *calls) { memcpy(key.bytes + 8, &calls, sizeof calls); }

  // The answer of a call that was made before; null where it was not, or Python must make it.
  PyObject *make() {
    PyObject *calls = calls_of(now);
    if (!calls) return nullptr;
    lies_in(calls);
    const Memo *memo = memo_place(hash_of(key.bytes, key.size), key);
    if (!memo) return nullptr;
    const Form &form = *front->form;
    PyObject *known = memo->known, *operands[most_operands];
    double scalars[most_scalars];
    Places places;
    places.given = places.tensors = 0, places.first_tensor = key.first_tensor;
    for (int64_t slot = 0; slot < form.slots; ++slot) {
      const int from = memo->parameter[slot];
      operands[slot] = from < 0 ? &_Py_NoneStruct : values[from];
      places.at[slot] = from < 0 ? 0 : key.at[from], places.keys[slot] = from < 0 ? 0 : key.keys[from];
      if (from < 0) continue;
      places.given |= uint64_t(1) << slot;
      places.tensors |= (key.tensors >> from & 1) << slot;
    }
    memcpy(scalars, memo->scalars, size_t(form.scalars) * sizeof *scalars);
    step(looked_up);
    int status = 0, failed = 0;
    Py_IncRef(known);  // what is remembered may be forgotten meanwhile
    PyObject *answer =
        make_call(form, *static_cast<Call *>(PyLong_AsVoidPtr(known)), operands, places, scalars, status, failed);
    Py_DecRef(known);
    if (answer) ++front_hits;
    return answer;
  }

  // Remember what Python made of the arguments, if that was one call that C made, and its answer.  C made that call
  // because the slow path had made it before, with tensors of these kinds and in this state of PyTorch.
  void remember(PyObject *answer) {
    int8_t parameter[most_operands];
    if (!readable || last_call.count != 1 || last_call.form != front->form || last_call.answer != answer ||
        !match_slots(*front, values, parameter))
      return;
    if (memo_count == most_memos) forget_front();
    lies_in(last_call.calls);
    const uint64_t hash = hash_of(key.bytes, key.size);
    auto *made = static_cast<Memo *>(calloc(1, sizeof(Memo) + size_t(key.size)));
    if (!made) return;
    made->hash = hash, made->size = key.size, made->known = last_call.known, made->calls = last_call.calls;
    memcpy(made->bytes, key.bytes, size_t(key.size));
    memcpy(made->parameter, parameter, sizeof parameter);
    memcpy(made->scalars, last_call.scalars, sizeof made->scalars);
    Py_IncRef(made->known), Py_IncRef(made->calls);
    for (int i = 0; i < key.strange_count; ++i) Py_IncRef(made->strange[i] = key.strange[i]);
    Memo *&place = memo_place(hash, key);
    Memo *before = place;
    memo_count += !before;
    place = made;
    if (before) forget_memo(before);
    remember_where(now, last_call.calls);
  }
};

void watch_calls(bool on) {
  if (last_call.watched && last_call.count) Py_DecRef(last_call.calls), Py_DecRef(last_call.known);
  last_call.watched = on, last_call.count = 0;
}

// A call of a function whose calls come here first.
PyObject *front_call(PyObject *function, PyObject *const *given, size_t flagged, PyObject *names) {
  const Front *front = nullptr;
  for (int i = 0; i < front_count && !front; ++i)
    if (fronts[i]->function == function) front = fronts[i];
  if (!front) return nullptr;  // it was given to none other
  step(begun);
  FrontCall call;
  call.begin(front);
  const bool plain = call.name(given, int64_t(flagged & ~(size_t(1) << (8 * sizeof(size_t) - 1))), names);
  step(named);
  if (plain && call.read()) {
    step(read_all);
    if (PyObject *answer = call.make()) return answer;
  }
  if (!forgotten()) return nullptr;
  const LastCall outer = last_call;
  last_call.watched = call.readable, last_call.count = 0;
  PyObject *answer = front->original(function, given, flagged, names);
  if (answer && last_call.count) call.remember(answer);
  watch_calls(false);
  last_call = outer;
  return answer;
}

// The same where Python runs functions without asking C (3.11): the function gives the values of all its parameters
// first, and the answer of the call that C knew then, if it did.
__thread FrontCall begun_call;

PyObject *front_values(const Front *front, PyObject *const *given, ptrdiff_t count) {
  step(begun);
  FrontCall &call = begun_call;
  call.begin(front);
  bool plain = count == front->parameters;
  for (ptrdiff_t i = 0; plain && i < count; ++i) plain = call.take(i, given[i]);
  step(named);
  if (plain && call.read()) {
    step(read_all);
    if (PyObject *answer = call.make()) return answer;
  }
  watch_calls(call.readable);
  return longer_way();
}
PyObject *front_keep(const Front *front, PyObject *answer) {
  if (begun_call.front == front && last_call.watched) begun_call.remember(answer);
  watch_calls(false);
  Py_IncRef(answer);
  return answer;
}

}  // namespace
