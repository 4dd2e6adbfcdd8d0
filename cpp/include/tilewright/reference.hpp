// References in float64 for checks: plain loops over the operands as a problem lays them out.
#pragma once
#include <tilewright/reference_attention.hpp>
#include <tilewright/tilewright.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace tw {
namespace reference {

// A number of fp8 by its bits; of the fnuz types, the one with a sign and nothing else is NaN, and there is no infinity.
inline double fp8(Dtype type, int bits) {
  const bool fnuz = type == Dtype::fp8_e4m3fnuz || type == Dtype::fp8_e5m2fnuz;
  const int fraction_bits = type == Dtype::fp8_e4m3 || type == Dtype::fp8_e4m3fnuz ? 3 : 2;
  const int low = bits & ((1 << fraction_bits) - 1), exponent = (bits & 127) >> fraction_bits;
  const int bias = (1 << (6 - fraction_bits)) - (fnuz ? 0 : 1), most = (1 << (7 - fraction_bits)) - 1;
  const double sign = bits & 128 ? -1 : 1, nan = std::numeric_limits<double>::quiet_NaN();
  if (fnuz && bits == 128) return nan;
  if (type == Dtype::fp8_e4m3 && (bits & 127) == 127) return nan;
  if (type == Dtype::fp8_e5m2 && exponent == most) return low ? nan : sign * HUGE_VAL;
  const double fraction = double(low) / double(1 << fraction_bits);
  return sign * std::ldexp(exponent ? 1 + fraction : fraction, (exponent ? exponent : 1) - bias);
}

// An element of an array of any type.
inline double element(const void *array, Dtype type, int64_t index) {
  if (type == Dtype::fp32 || type == Dtype::tf32) return static_cast<const float *>(array)[index];
  if (type == Dtype::int8) return static_cast<const int8_t *>(array)[index];
  if (type == Dtype::int32) return static_cast<const int32_t *>(array)[index];
  if (type != Dtype::fp16 && type != Dtype::bf16) return fp8(type, static_cast<const uint8_t *>(array)[index]);
  const uint32_t bits = static_cast<const uint16_t *>(array)[index];
  if (type == Dtype::bf16) {
    const uint32_t whole = bits << 16;
    float value;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }
  const int exponent = int(bits >> 10 & 31);
  const double fraction = double(bits & 1023) / 1024, sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign * std::ldexp(exponent ? 1 + fraction : fraction, exponent ? exponent - 15 : -14);
}

inline double activated(Epilogue epilogue, double x) {
  switch (epilogue) {
    case Epilogue::relu:
      return x > 0 ? x : 0;
    case Epilogue::gelu:
    case Epilogue::gelu_and_mul:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Epilogue::fastgelu:
    case Epilogue::fastgelu_and_mul:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Epilogue::silu:
    case Epilogue::silu_and_mul:
      return x / (1 + std::exp(-x));
    case Epilogue::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Epilogue::tanh:
      return std::tanh(x);
    default:
      return x;
  }
}

// A sum with D tensors: added and activated, or multiplied by.
inline double fused(Epilogue epilogue, double sum, const double *d, int64_t count) {
  if (is_gate(epilogue)) return activated(epilogue, sum) * d[0];
  for (int64_t i = 0; i < count; ++i) sum = epilogue == Epilogue::multiply ? sum * d[i] : sum + d[i];
  return activated(epilogue, sum);
}

// E of a GEMM, matrix after matrix, rows of n.
inline std::vector<double> gemm(const GemmProblem &p, const GemmOperands &o) {
  const tw_gemm_args x = p.args(o);
  std::vector<double> e;
  e.reserve(size_t(x.batch * x.m * x.n));
  const auto a = [&](int64_t t, int64_t i, int64_t l) {
    return element(x.a, p.dtype_a(), t * x.a_batch_stride + (p.a_rows() ? i * x.a_stride + l : l * x.a_stride + i));
  };
  const auto b = [&](const void *at, int64_t t, int64_t l, int64_t j) {
    return element(at, p.dtype_b(), t * x.b_batch_stride + (p.b_rows() ? l * x.b_stride + j : j * x.b_stride + l));
  };
  for (int64_t t = 0; t < x.batch; ++t)
    for (int64_t i = 0; i < x.m; ++i)
      for (int64_t j = 0; j < x.n; ++j) {
        double sum = 0, up = 0, d[TW_MAX_D] = {};
        for (int64_t l = 0; l < x.k; ++l) {
          sum += a(t, i, l) * b(x.b, t, l, j);
          if (p.dual()) up += a(t, i, l) * b(x.b_up, t, l, j);
        }
        sum *= x.alpha;
        if (x.beta != 0) sum += x.beta * element(x.c, p.dtype_c(), t * x.c_batch_stride + i * x.c_stride + j);
        for (int64_t n = 0; n < p.num_d(); ++n)
          d[n] = element(x.d[n], p.dtype_d(), t * x.d_batch_stride[n] + i * x.d_row_stride[n] + j * x.d_col_stride[n]);
        if (p.dual()) d[0] = up;
        e.push_back(fused(p.epilogue(), sum, d, p.num_d()));
      }
  return e;
}

namespace detail_conv {

inline int64_t at(const int64_t *strides, int64_t first, const int64_t *pixel, int64_t last) {
  return first * strides[0] + pixel[0] * strides[1] + pixel[1] * strides[2] + pixel[2] * strides[3] + last * strides[4];
}

// Calls body(image, out, in, tap) for every pair of an output and an input pixel that a tap joins.
template <class Body> void each(const tw_conv_args &c, Body body) {
  for (int64_t image = 0; image < c.batch; ++image)
    for (int64_t o0 = 0; o0 < c.out[0]; ++o0)
      for (int64_t o1 = 0; o1 < c.out[1]; ++o1)
        for (int64_t o2 = 0; o2 < c.out[2]; ++o2)
          for (int64_t t0 = 0; t0 < c.window[0]; ++t0)
            for (int64_t t1 = 0; t1 < c.window[1]; ++t1)
              for (int64_t t2 = 0; t2 < c.window[2]; ++t2) {
                const int64_t out[] = {o0, o1, o2}, tap[] = {t0, t1, t2};
                int64_t in[3];
                bool inside = true;
                for (int i = 0; i < 3; ++i) {
                  in[i] = out[i] * c.stride[i] - c.before[i] + tap[i] * c.dilation[i];
                  inside = inside && in[i] >= 0 && in[i] < c.size[i];
                }
                if (inside) body(image, out, in, tap);
              }
}

}  // namespace detail_conv

// The written operand of a convolution, in the order of its shape: image (filter), spatial, channel.
inline std::vector<double> conv(const ConvProblem &p, const ConvOperands &o) {
  using detail_conv::at;
  const tw_conv_args c = p.args(o);
  const ConvDirection direction = p.direction();
  const auto volume = [](const int64_t *s) { return s[0] * s[1] * s[2]; };
  const auto place = [](const int64_t *sizes, const int64_t *pixel) {
    return (pixel[0] * sizes[1] + pixel[1]) * sizes[2] + pixel[2];
  };
  const int64_t channels = c.groups * c.channels, filters = c.groups * c.filters;
  std::vector<double> result(size_t(direction == ConvDirection::forward ? c.batch * volume(c.out) * filters
                                    : direction == ConvDirection::backward_data
                                        ? c.batch * volume(c.size) * channels
                                        : filters * volume(c.window) * c.channels));
  detail_conv::each(c, [&](int64_t image, const int64_t *out, const int64_t *in, const int64_t *tap) {
    for (int64_t filter = 0; filter < filters; ++filter)
      for (int64_t own = 0; own < c.channels; ++own) {
        const int64_t channel = filter / c.filters * c.channels + own;
        const auto x = [&] { return element(c.x, p.dtype(), at(c.x_strides, image, in, channel)); };
        const auto w = [&] { return element(c.w, p.dtype(), at(c.w_strides, filter, tap, own)); };
        const auto y = [&] { return element(c.y, p.dtype(), at(c.y_strides, image, out, filter)); };
        if (direction == ConvDirection::forward)
          result[size_t((image * volume(c.out) + place(c.out, out)) * filters + filter)] += x() * w();
        else if (direction == ConvDirection::backward_data)
          result[size_t((image * volume(c.size) + place(c.size, in)) * channels + channel)] += y() * w();
        else result[size_t((filter * volume(c.window) + place(c.window, tap)) * c.channels + own)] += x() * y();
      }
  });
  if (direction != ConvDirection::forward) return result;
  size_t index = 0;
  for (int64_t image = 0; image < c.batch; ++image)
    for (int64_t pixel = 0; pixel < volume(c.out); ++pixel)
      for (int64_t filter = 0; filter < filters; ++filter, ++index) {
        const int64_t where[] = {pixel / (c.out[1] * c.out[2]), pixel / c.out[2] % c.out[1], pixel % c.out[2]};
        double d[TW_CONV_MAX_D] = {};
        for (int64_t n = 0; n < p.num_d(); ++n)
          d[n] = element(c.d[n], p.dtype_d(), at(c.d_strides[n], image, where, filter));
        result[index] = fused(p.epilogue(), result[index], d, p.num_d());
      }
  return result;
}

// The largest |actual - expected| over the largest |expected|; infinite where something is not a number.
inline double error(const void *actual, Dtype type, const std::vector<double> &expected) {
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::fabs(element(actual, type, int64_t(i)) - expected[i]);
    if (!(difference <= worst)) worst = std::isfinite(difference) ? difference : HUGE_VAL;
    largest = std::fabs(expected[i]) > largest ? std::fabs(expected[i]) : largest;
  }
  return worst / largest;
}

}  // namespace reference
}  // namespace tw
