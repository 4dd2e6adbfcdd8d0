// The numbers of copies with whole 8s of channels, and the copy.
#pragma once
#include <tilewright/conv_rules.h>
#include <tilewright/gpu/divide.h>
#include <tilewright/gpu/epilogue.h>

namespace tw {

struct Padded {
  static constexpr int threads = 256, piece = 8;
};

// A tensor (of w: filters as images, taps as pixels) and its dense copy, whose channels and images may be more.
struct PadArgs {
  void *tensor, *copy;
  long long count;             // pieces of the copy
  Divider pieces, size[3];     // of a pixel; pixels along w, h, d
  long long apart[4];          // of the tensor: pixels along w, h, d, then images
  int images, channels, back;  // back: to the tensor
};

#ifdef TW_ON_GPU

// A piece a thread, in or back.  Elements of C are those of the result.
template <class Config> TW_GPU void pad_channels(const PadArgs &x, long long at) {
  if (at >= x.count) return;
  const int pixel = x.pieces.quotient(int(at)), first = (int(at) - pixel * int(x.pieces.by)) * Padded::piece;
  const int line = x.size[0].quotient(pixel), plane = x.size[1].quotient(line), image = x.size[2].quotient(plane);
  const int w = pixel - line * int(x.size[0].by), h = line - plane * int(x.size[1].by),
            d = plane - image * int(x.size[2].by);
  const long long place = image * x.apart[3] + d * x.apart[2] + h * x.apart[1] + w * x.apart[0] + first;
  if (x.back) {
    using C = typename Config::C;
    const C *from = static_cast<const C *>(x.copy) + at * Padded::piece;
    C *to = static_cast<C *>(x.tensor) + place;
    for (int i = 0; i < Padded::piece; ++i)
      if (image < x.images && first + i < x.channels) to[i] = from[i];
  } else {
    using A = typename Config::A;
    const A *from = static_cast<const A *>(x.tensor) + place;
    Some<A, Padded::piece> some;
#pragma unroll
    for (int i = 0; i < Padded::piece; ++i) some.v[i] = image < x.images && first + i < x.channels ? from[i] : A{};
    static_cast<Some<A, Padded::piece> *>(x.copy)[at] = some;
  }
}

#endif
}  // namespace tw
