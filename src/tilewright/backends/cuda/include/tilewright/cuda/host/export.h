// How a CUDA kernel of any op gets into the table: its code, its functions in each context, its entries.
#pragma once
#include <tilewright/cuda/host/launch.h>
#include <tilewright/export.h>

namespace tw::cuda {

// The entries of a Host: a PlainKernel with check, workspace, `run(Loaded &, args, workspace, stream)`, and, where it
// `packs`, packed_bytes and `run_pack(Loaded &, args, to, stream)`.
template <class Host, Loaded &loaded, bool packs = Host::packs> struct Entries : Host {
  static int launch(const void *args, void *workspace, void *stream) {
    return Host::run(loaded, args, workspace, stream);
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

// Symbol is the kernel's function; what follows the manifest are the names of those it has beside it.
#define TW_EXPORT_CUDA(Host, Symbol, Manifest, ...) \
  TW_IMAGE(Symbol) \
  static tw::cuda::Loaded tw_loaded_##Symbol{{#Symbol, __VA_ARGS__}, tw_image_##Symbol}; \
  TW_EXPORT_STRUCT(Manifest, tw::cuda::Entries<Host, tw_loaded_##Symbol>)
