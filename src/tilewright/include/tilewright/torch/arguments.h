// The arguments of an op of PyTorch's, taken from its stack, and the key of a call: everything that a plan can depend on but
// for addresses.  Of torch_ops.cpp.
#pragma once
#include <string.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include <tilewright/torch/shim.h>

namespace {

constexpr int most_arguments = 48, most_items = 96, most_dimensions = 8;
constexpr ptrdiff_t most_key_bytes = 8192;

// What an argument is, by the letters of an op's schema (`kinds` of an op): as Python reads it too.
enum Kind : int64_t {
  is_tensor = 't',
  maybe_tensor = 'T',
  is_float = 'f',
  maybe_float = 'F',
  is_text = 's',
  maybe_dtype = 'D',
  is_int = 'i',
  is_bool = 'b',
  is_list = 'l',
  maybe_list = 'L'
};
constexpr bool is_optional(Kind kind) {
  return kind == maybe_tensor || kind == maybe_float || kind == maybe_dtype || kind == maybe_list;
}
struct Argument {
  int64_t kind, given;
  int64_t number;  // an int, a truth value, a dtype, or the length of a text or list
  double real;
  const char *text;
  const int64_t *items;
  Handle tensor;  // lent
  uintptr_t at;   // where its elements are, once the key was read
};

// The arguments of a call, which are given back at its end.
struct Arguments {
  Argument argument[most_arguments];
  int64_t count = 0;
  int64_t items[most_items];
  int64_t item_count = 0;
  void *strings[most_arguments];
  int64_t string_count = 0;

  Arguments() = default;
  Arguments(const Arguments &) = delete;
  Arguments &operator=(const Arguments &) = delete;

  // Takes everything on the stack, even where it then says that something is wrong.
  void take(const char *kinds, const Value *stack, uint64_t length) {
    const char *wrong = nullptr;
    for (uint64_t i = 0; i < length && kinds[i] && i < most_arguments; ++i) {
      Argument &x = argument[count++];
      x = Argument{kinds[i], 1, 0, 0, nullptr, nullptr, nullptr, 0};
      take_one(x, stack[i], wrong);
    }
    if (uint64_t(count) != length) wrong = "an op of tilewright has other arguments than its kernel was made for";
    if (wrong) throw std::runtime_error(wrong);
  }
  ~Arguments() {
    for (int64_t i = 0; i < count; ++i)
      if (argument[i].tensor) shim.aoti_torch_delete_tensor_object(argument[i].tensor);
    for (int64_t i = 0; i < string_count; ++i) shim.torch_delete_string(strings[i]);
  }

 private:
  // The value of an optional argument; false where there is none.
  static bool unwrap(Argument &x, Value &value) {
    auto *at = reinterpret_cast<Value *>(value);
    if (!at) return x.given = 0, false;
    value = *at;
    if (shim.torch_delete_stable_ivalue) shim.torch_delete_stable_ivalue(at);
    else ::operator delete(at);
    return true;
  }
  void take_one(Argument &x, Value value, const char *&wrong) {
    const Kind kind = Kind(x.kind);
    if (is_optional(kind) && !unwrap(x, value)) return;
    switch (kind) {
      case is_tensor:
      case maybe_tensor:
        x.tensor = reinterpret_cast<Handle>(value);
        return;
      case is_float:
      case maybe_float:
        memcpy(&x.real, &value, sizeof x.real);
        return;
      case is_int:
        x.number = int64_t(value);
        return;
      case is_bool:
        x.number = uint8_t(value);
        return;
      case maybe_dtype:
        x.number = int32_t(value);
        return;
      case is_text:
        return take_text(x, reinterpret_cast<void *>(value), wrong);
      case is_list:
      case maybe_list:
        return take_list(x, reinterpret_cast<void *>(value), wrong);
    }
    wrong = "an op of tilewright has an argument of a kind that its kernel does not know";
  }
  void take_text(Argument &x, void *text, const char *&wrong) {
    size_t length = 0;
    strings[string_count++] = text;
    if (shim.torch_string_length(text, &length) || shim.torch_string_c_str(text, &x.text))
      wrong = "PyTorch does not give a text";
    x.number = int64_t(length);
  }
  void take_list(Argument &x, void *list, const char *&wrong) {
    size_t length = 0;
    if (shim.torch_list_size(list, &length)) wrong = "PyTorch does not give the length of a list";
    if (int64_t(length) > most_items - item_count) wrong = "a list of numbers is too long", length = 0;
    x.number = int64_t(length), x.items = items + item_count;
    for (size_t i = 0; i < length; ++i) {
      Value item = 0;
      if (shim.torch_list_get_item(list, i, &item)) wrong = "PyTorch does not give a number of a list";
      items[item_count++] = int64_t(item);
    }
    shim.torch_delete_list(list);
  }
};

// What is read of a tensor at the dispatcher's level of autograd, where it may be anything: its dispatch keys and what the
// thread is doing, as `runtime/torch_reader.py` found them.  Below, PyTorch has dealt with all of that.
struct Dispatch {
  int64_t keys_at;         // in a tensor's implementation
  int64_t meta_at;         // of what autograd has of a tensor, null where that is nothing; -1: nobody knows
  uint64_t autograd_keys;  // that a tensor has where autograd follows it
  void *library;           // the one that has `state`
  const char *state;       // two words of each thread
};
const Dispatch *dispatch;  // null: autograd is Python's

const uint64_t *thread_state() {
  static thread_local const uint64_t *words = static_cast<const uint64_t *>(dlsym(dispatch->library, dispatch->state));
  return words;
}
uint64_t keys_of(Handle tensor) {
  uint64_t keys = 0;
  memcpy(&keys, *static_cast<char *const *>(tensor) + dispatch->keys_at, sizeof keys);
  return keys;
}

// Autograd knows something of what may require grad, and of views and what torch.tensor made; integers never do.
bool may_require_grad(Handle tensor) {
  void *meta = nullptr;
  int32_t dtype = 0;
  if (!dispatch || dispatch->meta_at < 0) return true;
  memcpy(&meta, *static_cast<char *const *>(tensor) + dispatch->meta_at, sizeof meta);
  if (!meta) return false;
  if (shim.aoti_torch_get_dtype(tensor, &dtype)) return true;
  return dtype != shim.aoti_torch_dtype_int32() && dtype != shim.aoti_torch_dtype_int64() &&
         dtype != shim.aoti_torch_dtype_bool();
}

// Words that Python found to be those of plain calls; only of such is anything else read, for a traced tensor has none of it.
struct Words {
  static constexpr int most = 32;
  std::atomic<uint64_t> word[most];
  std::atomic<int> count{0};

  bool has(uint64_t value) const {
    for (int i = count.load(std::memory_order_acquire); i-- > 0;)
      if (word[i].load(std::memory_order_relaxed) == value) return true;
    return false;
  }
  void add(uint64_t value) {  // one thread at a time
    const int at = count.load();
    if (has(value) || at == most) return;
    word[at].store(value);
    count.store(at + 1, std::memory_order_release);
  }
};
Words plain_included, plain_excluded, plain_keys;

bool known_plain(const Arguments &arguments) {
  const uint64_t *state = dispatch ? thread_state() : nullptr;
  if (!state || !plain_included.has(state[0]) || !plain_excluded.has(state[1])) return false;
  for (int64_t i = 0; i < arguments.count; ++i)
    if (arguments.argument[i].tensor && !plain_keys.has(keys_of(arguments.argument[i].tensor))) return false;
  return true;
}
void note_plain(const Arguments &arguments) {
  const uint64_t *state = thread_state();
  plain_included.add(state[0]), plain_excluded.add(state[1]);
  for (int64_t i = 0; i < arguments.count; ++i)
    if (arguments.argument[i].tensor) plain_keys.add(keys_of(arguments.argument[i].tensor));
}

struct Key {
  char bytes[most_key_bytes];
  ptrdiff_t size = 0;

  std::string text() const { return std::string(bytes, size_t(size)); }
  bool write(const void *value, ptrdiff_t count) {
    if (size + count > most_key_bytes) return false;
    memcpy(bytes + size, value, size_t(count));
    size += count;
    return true;
  }
  // False where a call cannot be known: too much to note, or memory that is not there (Python has the words for it).
  bool read(int64_t op, bool by_keys, Arguments &arguments) {
    size = 0;
    if (!write(&op, sizeof op)) return false;
    if (by_keys && (!dispatch || !thread_state() || !write(thread_state(), 16))) return false;
    for (int64_t i = 0; i < arguments.count; ++i)
      if (!read_one(arguments.argument[i], by_keys)) return false;
    return true;
  }

 private:
  bool read_one(Argument &x, bool by_keys) {
    const char given = char(x.given);
    if (!write(&given, 1)) return false;
    if (!x.given) return true;
    switch (Kind(x.kind)) {
      case is_tensor:
      case maybe_tensor:
        return read_tensor(x, by_keys);
      case is_float:
      case maybe_float:
        return write(&x.real, sizeof x.real);
      case is_text:
        return write(&x.number, sizeof x.number) && write(x.text, x.number);
      case is_list:
      case maybe_list:
        return write(&x.number, sizeof x.number) && write(x.items, x.number * 8);
      case is_int:
      case is_bool:
      case maybe_dtype:
        return write(&x.number, sizeof x.number);
    }
    return false;
  }
  bool read_tensor(Argument &x, bool by_keys) {
    const uint64_t keys = by_keys ? keys_of(x.tensor) : 0;
    if (by_keys && !write(&keys, sizeof keys)) return false;
    struct {
      int64_t rank;
      int32_t dtype, device_type, device_index, aligned;
    } head = {};
    int64_t *sizes = nullptr, *strides = nullptr, bytes = 0, offset = 0;
    const void *at = nullptr;
    if (shim.aoti_torch_get_dim(x.tensor, &head.rank) || head.rank > most_dimensions ||
        shim.aoti_torch_get_dtype(x.tensor, &head.dtype) ||
        shim.aoti_torch_get_device_type(x.tensor, &head.device_type) ||
        shim.aoti_torch_get_device_index(x.tensor, &head.device_index) || shim.aoti_torch_get_sizes(x.tensor, &sizes) ||
        shim.aoti_torch_get_strides(x.tensor, &strides) || shim.torch_get_const_data_ptr(x.tensor, &at) ||
        shim.aoti_torch_get_storage_size(x.tensor, &bytes) || shim.aoti_torch_get_storage_offset(x.tensor, &offset))
      return false;
    // Storage may be gone, or smaller than it was when the tensor was made.
    int64_t reach = 1;
    for (int64_t i = 0; i < head.rank; ++i) reach = !sizes[i] || !reach ? 0 : reach + (sizes[i] - 1) * strides[i];
    const int64_t width = int64_t(shim.aoti_torch_dtype_element_size(head.dtype));
    if (reach && (!at || (offset + reach) * width > bytes)) return false;
    x.at = reinterpret_cast<uintptr_t>(at);
    const bool on_host = head.device_type == shim.aoti_torch_device_type_cpu();
    head.aligned = on_host || x.at % 16 ? 0 : 1;
    return write(&head, sizeof head) && write(sizes, head.rank * 8) && write(strides, head.rank * 8);
  }
};

}  // namespace
