// PyTorch's stable C interface as far as torch_ops.cpp calls it, found in the process that loads the library: so it builds
// without PyTorch's headers, once for every release, and what a release lacks is known when it is loaded.
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include <string>

namespace {

using Value = uint64_t;  // an argument or result of a boxed kernel: a number, its bits, or a handle that is owned
using Handle = void *;   // of a tensor: the address of the pointer to its implementation
using Boxed = void (*)(Value *stack, uint64_t arguments, uint64_t results);

// Values are made as for libraries that were built for this release, the oldest that is served.
constexpr uint64_t built_for = uint64_t(2) << 56 | uint64_t(11) << 48;

struct Shim {
  int (*aoti_torch_library_init_impl)(const char *space, const char *key, const char *file, uint32_t line, void **made);
  int (*aoti_torch_library_init_def)(const char *space, const char *file, uint32_t line, void **made);
  int (*aoti_torch_library_def)(void *library, const char *schema);
  int (*torch_library_impl)(void *library, const char *name, Boxed kernel, uint64_t version);
  int (*aoti_torch_new_tensor_handle)(Handle from, Handle *made);
  int (*aoti_torch_delete_tensor_object)(Handle tensor);
  int (*torch_get_const_data_ptr)(Handle tensor, const void **at);
  int (*aoti_torch_get_storage_size)(Handle tensor, int64_t *bytes);
  int (*aoti_torch_get_storage_offset)(Handle tensor, int64_t *elements);
  int (*aoti_torch_get_dim)(Handle tensor, int64_t *count);
  int (*aoti_torch_get_sizes)(Handle tensor, int64_t **sizes);
  int (*aoti_torch_get_strides)(Handle tensor, int64_t **strides);
  int (*aoti_torch_get_dtype)(Handle tensor, int32_t *dtype);
  int (*aoti_torch_get_device_type)(Handle tensor, int32_t *type);
  int (*aoti_torch_get_device_index)(Handle tensor, int32_t *index);
  size_t (*aoti_torch_dtype_element_size)(int32_t dtype);
  int32_t (*aoti_torch_dtype_uint8)();
  int32_t (*aoti_torch_dtype_bool)();
  int32_t (*aoti_torch_dtype_int32)();
  int32_t (*aoti_torch_dtype_int64)();
  int32_t (*aoti_torch_device_type_cpu)();
  int (*aoti_torch_empty_strided)(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                  int32_t device_type, int32_t device_index, Handle *made);
  int (*aoti_torch__reinterpret_tensor)(Handle of, int64_t rank, const int64_t *sizes, const int64_t *strides,
                                        int64_t offset, Handle *made);
  int (*aoti_torch_zero_)(Handle tensor);
  int (*aoti_torch_copy_)(Handle to, Handle from, int32_t non_blocking);
  bool (*aoti_torch_grad_mode_is_enabled)();
  int (*torch_list_size)(void *list, size_t *count);
  int (*torch_list_get_item)(void *list, size_t index, Value *item);
  int (*torch_delete_list)(void *list);
  int (*torch_string_length)(void *text, size_t *length);
  int (*torch_string_c_str)(void *text, const char **at);
  int (*torch_delete_string)(void *text);
  int (*torch_delete_stable_ivalue)(Value *value);                                 // null before 2.13
  int (*aoti_torch_get_current_cuda_stream)(int32_t device_index, void **stream);  // null without CUDA

  // Empty, or what is missing here.
  std::string find() {
    void *cpu = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!cpu) return "libtorch_cpu.so is not loaded";
    void *cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    std::string missing;
#define TW_FIND(name) \
  if (!(name = reinterpret_cast<decltype(name)>(dlsym(cpu, #name)))) missing += missing.empty() ? #name : ", " #name;
    TW_FIND(aoti_torch_library_init_impl)
    TW_FIND(aoti_torch_library_init_def)
    TW_FIND(aoti_torch_library_def)
    TW_FIND(torch_library_impl)
    TW_FIND(aoti_torch_new_tensor_handle)
    TW_FIND(aoti_torch_delete_tensor_object)
    TW_FIND(torch_get_const_data_ptr)
    TW_FIND(aoti_torch_get_storage_size)
    TW_FIND(aoti_torch_get_storage_offset)
    TW_FIND(aoti_torch_get_dim)
    TW_FIND(aoti_torch_get_sizes)
    TW_FIND(aoti_torch_get_strides)
    TW_FIND(aoti_torch_get_dtype)
    TW_FIND(aoti_torch_get_device_type)
    TW_FIND(aoti_torch_get_device_index)
    TW_FIND(aoti_torch_dtype_element_size)
    TW_FIND(aoti_torch_dtype_uint8)
    TW_FIND(aoti_torch_dtype_bool)
    TW_FIND(aoti_torch_dtype_int32)
    TW_FIND(aoti_torch_dtype_int64)
    TW_FIND(aoti_torch_device_type_cpu)
    TW_FIND(aoti_torch_empty_strided)
    TW_FIND(aoti_torch__reinterpret_tensor)
    TW_FIND(aoti_torch_zero_)
    TW_FIND(aoti_torch_copy_)
    TW_FIND(aoti_torch_grad_mode_is_enabled)
    TW_FIND(torch_list_size)
    TW_FIND(torch_list_get_item)
    TW_FIND(torch_delete_list)
    TW_FIND(torch_string_length)
    TW_FIND(torch_string_c_str)
    TW_FIND(torch_delete_string)
    if (!missing.empty()) return "PyTorch lacks " + missing;
#define TW_FIND_IN(where, name) name = reinterpret_cast<decltype(name)>(where ? dlsym(where, #name) : nullptr);
    TW_FIND_IN(cpu, torch_delete_stable_ivalue)
    TW_FIND_IN(cuda, aoti_torch_get_current_cuda_stream)
#undef TW_FIND_IN
#undef TW_FIND
    return missing;
  }
};
Shim shim;

// A tensor that is given back at the end of a scope.
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;
  Handle release() {
    Handle kept = handle;
    handle = nullptr;
    return kept;
  }
  ~Owned() {
    if (handle) shim.aoti_torch_delete_tensor_object(handle);
  }
};

}  // namespace
