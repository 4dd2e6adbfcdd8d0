// How a kernel gets into the table that `tw_kernels` returns.  Every backend's headers use this, so a
// library looks the same whether it holds one kernel (JIT) or hundreds (a bundle, a user's own build).
//
// The rule for whoever links: compile each kernel file to an object of its own and link the OBJECTS
// into one shared library.  Every object puts its tw_kernel into the section `tw_table`; the linker
// lays the pieces one after another and marks start and end, and `tw_kernels` returns what is between.
// `tw_abi_version` and `tw_kernels` are weak: each object brings them, the linker keeps one.  Nothing
// runs at load time, nothing is allocated, the C++ library is not needed.  Objects inside a static
// library are only taken when something refers to them: link such a library with --whole-archive.
#pragma once
#include <tilewright/abi.h>

namespace tw {

// What the struct of a kernel inherits: it takes no packed operand and wants no zeros in its workspace.  One that
// does has members of these names of its own, which hide these.
struct PlainKernel {
  static constexpr int64_t (*packed_bytes)(const void *args) = nullptr;
  static constexpr int (*pack)(const void *args, void *packed, void *stream) = nullptr;
  static constexpr int64_t clear_bytes = 0;
};

}  // namespace tw

// A kernel whose struct (a PlainKernel) has the entries of tw_kernel as its static members.
#define TW_EXPORT_STRUCT(Manifest, ...) \
  TW_EXPORT_KERNEL(Manifest, (__VA_ARGS__::check), (__VA_ARGS__::workspace), (__VA_ARGS__::launch), \
                   (__VA_ARGS__::packed_bytes), (__VA_ARGS__::pack), (__VA_ARGS__::clear_bytes))

#define TW_SHOWN __attribute__((visibility("default")))
#define TW_JOIN_(a, b) a##b
#define TW_JOIN(a, b) TW_JOIN_(a, b)

// One pass of a GPU compiler makes the code for the device.  The table is the host's; yet the device pass must
// see the entry, which is how the compiler knows the device kernels to make.
#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#define TW_EXPORT_KERNEL(Manifest, Check, Workspace, Launch, PackedBytes, Pack, ClearBytes) \
  [[maybe_unused]] static tw_kernel TW_JOIN(tw_entry_, __COUNTER__) = {Manifest,    Check, Workspace, Launch, \
                                                                       PackedBytes, Pack,  ClearBytes};
#else

#if defined(__APPLE__)
#define TW_TABLE_SECTION "__DATA,tw_table"
extern "C" tw_kernel tw_table_start[] __asm("section$start$__DATA$tw_table");
extern "C" tw_kernel tw_table_stop[] __asm("section$end$__DATA$tw_table");
#else
#define TW_TABLE_SECTION "tw_table"
// Hidden: a library must see its own kernels, never those of one that was loaded before.
extern "C" __attribute__((visibility("hidden"))) tw_kernel __start_tw_table[];
extern "C" __attribute__((visibility("hidden"))) tw_kernel __stop_tw_table[];
#define tw_table_start __start_tw_table
#define tw_table_stop __stop_tw_table
#endif

extern "C" __attribute__((weak)) TW_SHOWN int64_t tw_abi_version(void) { return TW_ABI_VERSION; }
extern "C" __attribute__((weak)) TW_SHOWN const tw_kernel *tw_kernels(int64_t *count) {
  *count = tw_table_stop - tw_table_start;
  return tw_table_start;
}

// The alignment is stated because compilers like to spread large objects: a gap would break the table.
// A linker that drops unused sections must not drop the table: some do although start and stop are used.
#if defined(__has_attribute)
#if __has_attribute(retain)
#define TW_RETAIN __attribute__((retain))
#endif
#endif
#ifndef TW_RETAIN
#define TW_RETAIN
#endif
#define TW_EXPORT_KERNEL(Manifest, Check, Workspace, Launch, PackedBytes, Pack, ClearBytes) \
  TW_RETAIN __attribute__((section(TW_TABLE_SECTION), used, aligned(8))) static tw_kernel TW_JOIN( \
      tw_entry_, __COUNTER__) = {Manifest, Check, Workspace, Launch, PackedBytes, Pack, ClearBytes};
#endif
