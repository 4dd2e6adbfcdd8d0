// What happens to a sum on its way out: alpha, beta and C, the D tensors, the activation, the output
// type.  A pipeline hands over accumulators and where they belong, from wherever it keeps them: one, or neighbours of a row,
// which are read and written in words of up to 16 bytes wherever these lie whole.
#pragma once
#include <tilewright/gpu/activation.h>

namespace tw {

constexpr int most_d = 4;  // D tensors of a kernel, at most

// Host and device lay this out alike; a D that is a row has a row stride of 0.
struct EpilogueArgs {
  double alpha, beta;
  const void *c;
  const void *d[most_d];
  long long c_stride, c_batch;
  long long d_row[most_d], d_column[most_d], d_batch[most_d];
};

#ifdef TW_ON_GPU

template <class T> struct is_integer {
  static constexpr bool value = false;
};
template <> struct is_integer<int8_t> {
  static constexpr bool value = true;
};
template <> struct is_integer<int32_t> {
  static constexpr bool value = true;
};

// Neighbours in memory that travel together.
template <class T, int Count> struct alignas(Count * sizeof(T) < 16 ? Count * sizeof(T) : 16) Some {
  T v[Count];
};
// Whether such a word may start here.
template <int Count, class T> TW_GPU bool whole_at(const T *p) {
  return (reinterpret_cast<uintptr_t>(p) & (alignof(Some<T, Count>) - 1)) == 0;
}
// Whether such words start at every so many elements of every row.
template <int Count, class T> TW_GPU bool whole_rows(const T *p, long long stride, long long batch_stride) {
  return whole_at<Count>(p) && (stride | batch_stride) % Count == 0;
}
// `there` of Count neighbours, at least one; the rest is anything.
template <int Count, class T> TW_GPU Some<T, Count> load_some(const T *from, int there) {
  if (there >= Count && whole_at<Count>(from)) return *reinterpret_cast<const Some<T, Count> *>(from);
  Some<T, Count> some;
#pragma unroll
  for (int i = 0; i < Count; ++i) some.v[i] = from[i < there ? i : 0];
  return some;
}
template <int Count, class T> TW_GPU void store_some(T *to, const Some<T, Count> &some, int there) {
  if (there >= Count && whole_at<Count>(to)) {
    *reinterpret_cast<Some<T, Count> *>(to) = some;
    return;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i)
    if (i < there) to[i] = some.v[i];
}

template <class A, class B> struct same_type {
  static constexpr bool value = false;
};
template <class A> struct same_type<A, A> {
  static constexpr bool value = true;
};

template <bool> struct real_of {
  using type = float;
};
template <> struct real_of<true> {
  using type = double;
};

// Whether C is added, times beta: unless the Config says no.
template <class Config, class = void> struct c_of {
  static constexpr bool value = true;
};
template <class Config> struct c_of<Config, decltype(void(Config::takes_c))> {
  static constexpr bool value = Config::takes_c;
};
template <class Config> constexpr bool takes_c = c_of<Config>::value;

// Config: C, D, epilogue, num_d.
template <class Config> struct Finish {
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr bool exact = is_integer<C>::value;  // integers go through double, floats through float
  static constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
  static constexpr bool dual = gated<Config::epilogue> && Config::num_d == 0;  // a second sum stands for D0
  static constexpr bool fused = Config::epilogue != Epilogue::PassThrough || Config::num_d > 0;

  using Real = typename real_of<exact>::type;

  const EpilogueArgs &x;
  const Real alpha, beta;  // for those who want them made of doubles early; here they would cost registers all along
  TW_GPU explicit Finish(const EpilogueArgs &args) : x(args), alpha(Real(args.alpha)), beta(Real(args.beta)) {}

  // The elements of E for neighbouring accumulators of a row, of which `there` are inside E.
  template <int Count, class Sum>
  TW_GPU Some<C, Count> some(const Sum (&accum)[Count], int there, long long z, long long row, long long column) const {
    if constexpr (!fused && same_type<C, Sum>::value && exact) {
      if (x.alpha == 1 && x.beta == 0) {  // whole numbers as they are: there and back through double takes long
        Some<C, Count> results;
#pragma unroll
        for (int i = 0; i < Count; ++i) results.v[i] = accum[i];
        return results;
      }
    }
    Real v[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) v[i] = Real(x.alpha) * Real(accum[i]);
    if (takes_c<Config> && x.beta != 0) {
      const C *from = static_cast<const C *>(x.c) + z * x.c_batch + row * x.c_stride + column;
      const Some<C, Count> c = load_some<Count>(from, there);
#pragma unroll
      for (int i = 0; i < Count; ++i) v[i] += Real(x.beta) * real(c.v[i]);
    }
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      const D *from = static_cast<const D *>(x.d[t]) + z * x.d_batch[t] + row * x.d_row[t];
      Some<D, Count> d;
      if (x.d_column[t]) {
        d = load_some<Count>(from + column, there);
      } else {
        const D same = *from;
#pragma unroll
        for (int i = 0; i < Count; ++i) d.v[i] = same;
      }
#pragma unroll
      for (int i = 0; i < Count; ++i) v[i] = combine(v[i], real(d.v[i]));
    }
    Some<C, Count> results;
#pragma unroll
    for (int i = 0; i < Count; ++i) round_to(activate<Config::epilogue>(v[i]), results.v[i]);
    return results;
  }
  // The same, stored from `to` on.
  template <int Count, class Sum>
  TW_GPU void store(const Sum (&accum)[Count], int there, long long z, long long row, long long column, C *to) const {
    if constexpr (Count == 1) *to = (*this)(accum[0], z, row, column);
    else store_some(to, some(accum, there, z, row, column), there);
  }
  // The element of E for a sum.
  template <class Sum> TW_GPU C operator()(Sum sum, long long z, long long row, long long column) const {
    Real v = Real(x.alpha) * Real(sum);
    if (takes_c<Config> && x.beta != 0)
      v += Real(x.beta) * real(static_cast<const C *>(x.c)[z * x.c_batch + row * x.c_stride + column]);
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t)
      v = combine(v,
                  real(static_cast<const D *>(x.d[t])[z * x.d_batch[t] + row * x.d_row[t] + column * x.d_column[t]]));
    C result;
    round_to(activate<Config::epilogue>(v), result);
    return result;
  }
  static TW_GPU Real combine(Real v, Real d) {
    if constexpr (gated<Config::epilogue>) return activate<gate_of<Config::epilogue>>(v) * d;
    else return multiplies ? v * d : v + d;
  }
  // The element of E for the accumulators of both B.
  template <class Sum> TW_GPU C both(Sum gate, Sum up) const {
    C result;
    round_to(combine(Real(x.alpha) * Real(gate), Real(up)), result);
    return result;
  }

 private:
  template <class T> static TW_GPU Real real(T x) {
    if constexpr (exact) return Real(x);
    else return Real(to_float(x));
  }
};

#endif
}  // namespace tw
