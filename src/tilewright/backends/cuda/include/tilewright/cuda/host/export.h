// How a CUDA kernel of any op gets into the table: its code, its functions in each context, its entries.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/export.h>

namespace tw::cuda {

// How a kernel is launched, of those that say so by a `Host` of their own: all that ship.
template <class Kernel, class = void> struct shape_of {
  static constexpr bool known = false;
};
template <class Kernel> struct shape_of<Kernel, decltype(void(Kernel::Host::shape()))> {
  static constexpr bool known = true;
  static LaunchShape get() { return Kernel::Host::shape(); }
};

// The entries of a Host: a PlainKernel with check, workspace, `run(Loaded &, args, workspace, stream)`, and, where it
// `packs`, packed_bytes and `run_pack(Loaded &, args, to, stream)`.
template <class Host, Loaded &loaded, bool packs = Host::packs> struct Entries : Host {
  static int launch(const void *args, void *workspace, void *stream) {
    return Host::run(loaded, args, workspace, stream);
  }
  // The code, into the context that is current: what the first launch there would do.
  static int load() {
    if constexpr (shape_of<Host>::known) {
      Loaded::Place place;
      return status_of(loaded.get(place, shape_of<Host>::get()));
    }
    return TW_OK;
  }
};
template <class Host, Loaded &loaded> struct Entries<Host, loaded, true> : Entries<Host, loaded, false> {
  static int pack(const void *args, void *to, void *stream) { return Host::run_pack(loaded, args, to, stream); }
};

}  // namespace tw::cuda

#ifdef __CUDACC__
#define TW_IMAGE(Symbol) \
  static const void *tw_image_##Symbol() { return reinterpret_cast<const void *>(&Symbol); }
#else
#define TW_TEXT_(x) #x
#define TW_TEXT(x) TW_TEXT_(x)
// The cubin as it is, aligned as the driver likes it.
#define TW_IMAGE(Symbol) \
  asm(".pushsection .rodata\n.balign 64\ntw_cubin_" #Symbol \
      ":\n.incbin " TW_TEXT(TW_CUBIN) "\n.byte 0\n.popsection\n"); \
  extern "C" __attribute__((visibility("hidden"))) const char tw_cubin_##Symbol[]; \
  static const void *tw_image_##Symbol() { return tw_cubin_##Symbol; }
#endif

// Libraries of CUDA kernels export one function more than others: `tw_load(kernel)` loads a kernel's code into the context
// that is current, which its first launch there would do otherwise; 0, or what a launch would answer.  It looks into a
// table beside that of the kernels.
struct tw_loader {
  int (*launch)(const void *args, void *workspace, void *stream);
  int (*load)();
};
#if defined(__CUDA_ARCH__)
#define TW_EXPORT_LOADER(...)
#else
extern "C" __attribute__((visibility("hidden"))) tw_loader __start_tw_loaders[];
extern "C" __attribute__((visibility("hidden"))) tw_loader __stop_tw_loaders[];
extern "C" __attribute__((weak)) TW_SHOWN int tw_load(const tw_kernel *kernel) {
  for (const tw_loader *at = __start_tw_loaders; at < __stop_tw_loaders; ++at)
    if (at->launch == kernel->launch) return at->load();
  return TW_OK;
}
#define TW_EXPORT_LOADER(...) \
  TW_RETAIN __attribute__((section("tw_loaders"), used, aligned(8))) static tw_loader TW_JOIN( \
      tw_loader_, __COUNTER__) = {__VA_ARGS__::launch, __VA_ARGS__::load};
#endif

// Symbol is the kernel's function; what follows the manifest are the names of those it has beside it.
#define TW_EXPORT_CUDA(Host, Symbol, Manifest, ...) \
  TW_IMAGE(Symbol) \
  static tw::cuda::Loaded tw_loaded_##Symbol{{#Symbol, __VA_ARGS__}, tw_image_##Symbol}; \
  TW_EXPORT_STRUCT(Manifest, tw::cuda::Entries<Host, tw_loaded_##Symbol>) \
  TW_EXPORT_LOADER(tw::cuda::Entries<Host, tw_loaded_##Symbol>)
