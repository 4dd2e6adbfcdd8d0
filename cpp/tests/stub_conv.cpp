// A library with one convolution of fp32 that says it is of a GPU and runs on the host, for a stub of the driver.  It takes
// dense channels-last memory at whole 16 bytes alone.  STUB_SPEC: its spec; STUB_DIRECTION: 0 forward, 1 and 2 the
// gradients for x and for w.
#include <tilewright/conv_args.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr int kStrides = TW_CONV_SPATIAL + 2;

bool dense(const void *at, const int64_t *strides, const int64_t *pixels, int64_t channels) {
  int64_t step = 1;
  bool same = reinterpret_cast<uintptr_t>(at) % 16 == 0;
  const int64_t sizes[] = {1, pixels[0], pixels[1], pixels[2], channels};
  for (int i = kStrides - 1; i >= 0; --i) same = same && strides[i] == step, step *= sizes[i];
  return same;
}

int check(const void *args, char *why, size_t bytes) {
  const auto &c = *static_cast<const tw_conv_args *>(args);
  if (dense(c.x, c.x_strides, c.size, c.groups * c.channels) && dense(c.w, c.w_strides, c.window, c.channels) &&
      dense(c.y, c.y_strides, c.out, c.groups * c.filters))
    return 0;
  return std::snprintf(why, bytes, "memory that is not dense"), TW_LIMIT;
}

float &number(void *array, const int64_t *s, int64_t first, const int64_t *p, int64_t last) {
  return static_cast<float *>(array)[first * s[0] + p[0] * s[1] + p[1] * s[2] + p[2] * s[3] + last * s[4]];
}

// What one tap adds to the result, of one filter and one channel of its group; or, `clear`, zeros where it adds.
void term(const tw_conv_args &c, bool clear, int64_t image, const int64_t *out, const int64_t *tap, int64_t filter) {
  int64_t in[TW_CONV_SPATIAL];
  for (int i = 0; i < TW_CONV_SPATIAL; ++i) {
    in[i] = out[i] * c.stride[i] - c.before[i] + tap[i] * c.dilation[i];
    if (in[i] < 0 || in[i] >= c.size[i]) return;
  }
  for (int64_t own = 0; own < c.channels; ++own) {
    float &x = number(c.x, c.x_strides, image, in, filter / c.filters * c.channels + own);
    float &w = number(c.w, c.w_strides, filter, tap, own), &y = number(c.y, c.y_strides, image, out, filter);
    float &written = STUB_DIRECTION == 0 ? y : STUB_DIRECTION == 1 ? x : w;
    if (clear) written = 0;
    else written += STUB_DIRECTION == 0 ? x * w : STUB_DIRECTION == 1 ? y * w : x * y;
  }
}

void each(const tw_conv_args &c, bool clear) {
  const int64_t pixels = c.out[0] * c.out[1] * c.out[2], taps = c.window[0] * c.window[1] * c.window[2];
  for (int64_t image = 0; image < c.batch; ++image)
    for (int64_t pixel = 0; pixel < pixels; ++pixel)
      for (int64_t at = 0; at < taps; ++at) {
        const int64_t out[] = {pixel / c.out[2] / c.out[1], pixel / c.out[2] % c.out[1], pixel % c.out[2]};
        const int64_t tap[] = {at / c.window[2] / c.window[1], at / c.window[2] % c.window[1], at % c.window[2]};
        for (int64_t filter = 0; filter < c.groups * c.filters; ++filter) term(c, clear, image, out, tap, filter);
      }
}

// D tensors are added.
void add_ds(const tw_conv_args &c) {
  const int64_t pixels = c.out[0] * c.out[1] * c.out[2];
  for (int64_t at = 0; at < c.batch * pixels * c.groups * c.filters; ++at) {
    const int64_t filter = at % (c.groups * c.filters), all = at / (c.groups * c.filters), pixel = all % pixels;
    const int64_t out[] = {pixel / c.out[2] / c.out[1], pixel / c.out[2] % c.out[1], pixel % c.out[2]};
    for (int d = 0; d < TW_CONV_MAX_D; ++d)
      if (c.d[d])
        number(c.y, c.y_strides, all / pixels, out, filter) +=
            number(const_cast<void *>(c.d[d]), c.d_strides[d], all / pixels, out, filter);
  }
}

int64_t workspace(const void *, int64_t) { return 100; }

int launch(const void *args, void *scratch, void *) {
  const auto &c = *static_cast<const tw_conv_args *>(args);
  std::memset(scratch, 0x77, 100);
  each(c, true), each(c, false);
  add_ds(c);
  return TW_OK;
}

const tw_kernel kernel = {"{\"spec\": " STUB_SPEC "}", check, workspace, launch, nullptr, nullptr, 0};

}  // namespace

extern "C" __attribute__((visibility("default"))) int64_t tw_abi_version(void) { return TW_ABI_VERSION; }
extern "C" __attribute__((visibility("default"))) const tw_kernel *tw_kernels(int64_t *count) {
  return *count = 1, &kernel;
}
