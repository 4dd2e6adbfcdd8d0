// What is fused into the epilogue of a tma_ws kernel whose results are stored by TMA: alpha, C, the D tensors and the
// activation, on the registers the accumulators are in.
//
// Rows and columns (biases) are fetched while the main loop runs: of a row each lane keeps two neighbours of every 64
// columns, which the lanes hand each other; of a column each keeps the elements of its own rows.  One whole matrix comes
// by TMA, into the buffers the results leave from; any other each warp carries there for its own rows.
#pragma once
#include <tilewright/cuda/gemm/tma_ws/splits.h>
#include <tilewright/cuda/primitives/wgmma.h>

namespace tw {

// A warpgroup's part of a tile, as the kernel counts rows and columns.
template <class Out> struct Part {
  int row, column, z;
  Out *e;
};

// Rows of results in shared memory, their 16-byte pieces swizzled as the tensor map says.
template <class S> struct Buffer {
  static TW_GPU char *piece(char *buffer, int row, int number) {
    const int swizzle = S::chunk_columns == 64 ? row & 7 : S::chunk_columns == 32 ? row >> 1 & 3 : row >> 2 & 1;
    return buffer + row * S::chunk_columns * 2 + ((number ^ swizzle) << 4);
  }
  // A lane's row of the two octets of a warp's 16 rows that matrices are stored to and read from.
  static TW_GPU char *at(char *buffer, const Warpgroup &me, int octet) {
    return piece(buffer, me.warp * 16 + me.lane % 16, octet + me.lane / 16);
  }
};

// Two neighbours as floats, from their bits.
struct Two {
  float left, right;
};
TW_GPU Two two(uint32_t word, bf16) { return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)}; }
TW_GPU Two two(uint32_t word, fp16) { return {to_float(fp16{uint16_t(word)}), to_float(fp16{uint16_t(word >> 16)})}; }
TW_GPU uint32_t bits_of(bf16 x) { return x.bits; }
TW_GPU uint32_t bits_of(fp16 x) { return x.bits; }
TW_GPU uint32_t bits_of(float x) { return __float_as_uint(x); }

// Two neighbouring results as one word.  The instruction that rounds them makes negative ones 0 besides.
template <class Config> TW_GPU uint32_t results(float x, float y) {
  if constexpr (Config::epilogue == Epilogue::Relu) return pair_at_least_0(typename Config::C{}, x, y);
  else return pair(typename Config::C{}, x, y);
}

// Config: C (the output type), D, epilogue, num_d.
template <class S, class Config> struct Fuse {
  using C = typename Config::C;
  using D = typename Config::D;
  static constexpr bool multiplies = Config::epilogue == Epilogue::MultiDMultiply;
  static constexpr int octets = S::chunk_columns / 8;
  static constexpr int pair_words = sizeof(D) / 2;  // of two neighbours of a D
  static constexpr int row_words = (S::BN + 63) / 64 * pair_words, column_words = 2 * S::blocks_m;
  static constexpr int words = row_words > column_words ? row_words : column_words;

  const TmaWsArgs &x;
  const Warpgroup &me;
  uint32_t kept[Config::num_d > 0 ? Config::num_d : 1][words];

  TW_GPU Fuse(const TmaWsArgs &args, const Warpgroup &group) : x(args), me(group) {}

  // Rows and columns for a tile, long before they are needed.
  TW_GPU void begin(const Part<C> &p) {
#pragma unroll
    for (int t = 0; t < Config::num_d; ++t) {
      const AuxOperand &aux = x.aux_operands[t + 1];
      const D *from = static_cast<const D *>(aux.at) + p.z * aux.batch_stride;
      if (aux.load_mode == LoadMode::row) {
#pragma unroll
        for (int i = 0; i < row_words / pair_words; ++i) keep_pair(kept[t], i, from, p.column + i * 64 + me.lane * 2);
      } else if (aux.load_mode == LoadMode::column) {
#pragma unroll
        for (int i = 0; i < column_words; ++i) {
          const int r = p.row + i / 2 * 64 + me.warp * 16 + i % 2 * 8 + me.lane / 4;
          kept[t][i] = r < x.m ? bits_of(from[r * aux.stride]) : 0;
        }
      }
    }
  }

  // Whether nothing is fused, or a bias and nothing else.
  static constexpr bool has_simple =
      Config::num_d == 0 || (Config::num_d == 1 && !multiplies && !gated<Config::epilogue>);
  // Nothing ever comes: convolutions have no C.
  static constexpr bool always_simple = Config::num_d == 0 && !takes_c<Config>;
  TW_GPU bool simple() const {
    return has_simple && x.first_aux != 0 && (Config::num_d == 0 || x.aux_operands[1].load_mode == LoadMode::row);
  }
  // The results of 64 rows and a buffer's columns from `column` on, in place of their accumulators; `results` makes the last of
  // them.
  TW_GPU void operator()(float (&d)[S::BN / 2], int i, int column, const Part<C> &p, char *buffer) const {
    float *v = &d[column / 2];
    all(v, float(x.finish.alpha), i, column, p, buffer);
    finish(v);
  }
  TW_GPU void simply(float (&d)[S::BN / 2], int column) const {
    const float alpha = float(x.finish.alpha);
    float *v = &d[column / 2];
    if constexpr (Config::num_d == 0) scale(v, alpha);
    else row(false, v, column, [=](float sum, float one) { return fmaf(alpha, sum, one); });
    finish(v);
  }

 private:
  static TW_GPU void scale(float *v, float alpha) {
#pragma unroll
    for (int j = 0; j < S::chunk_columns / 2; ++j) v[j] *= alpha;
  }
  static TW_GPU void finish(float *v) {
    if constexpr (Config::epilogue != Epilogue::PassThrough && Config::epilogue != Epilogue::Relu)
#pragma unroll
      for (int j = 0; j < S::chunk_columns / 2; ++j) v[j] = activate<Config::epilogue>(v[j]);
  }
  TW_GPU void all(float *v, float alpha, int i, int column, const Part<C> &p, char *buffer) const {
    scale(v, alpha);
#pragma unroll 1  // one piece of code for all of them: they are many and compile slowly
    for (int g = x.first_aux; g <= Config::num_d; ++g) {
      const AuxOperand &aux = x.aux_operands[g];
      const float scale = aux.scale;
      const auto combine = [=](float sum, float one) {
        if constexpr (gated<Config::epilogue>)
          return scale == 0 ? activate<gate_of<Config::epilogue>>(sum) * one : fmaf(scale, one, sum);
        else if constexpr (multiplies) return fmaf(sum, scale == 0 ? one : 1.0f, scale * one);
        else return fmaf(scale, one, sum);
      };
      if (Config::num_d > 0 && aux.load_mode == LoadMode::row) row(g == 2, v, column, combine);
      else if (Config::num_d > 0 && aux.load_mode == LoadMode::column) column_of(g == 2, v, i, combine);
      else if (sizeof(D) == 4 && g > 0) wide(aux, v, i, column, p, combine);
      else whole(aux, v, i, column, p, buffer, combine);
    }
  }
  TW_GPU void keep_pair(uint32_t (&to)[words], int i, const D *from, int c) const {
    if constexpr (sizeof(D) == 2) {  // in one word: put together out of two, it would be waited for here
      if (c + 1 < x.n && (reinterpret_cast<uintptr_t>(from + c) & 3) == 0) {
        to[i] = *reinterpret_cast<const uint32_t *>(from + c);
        return;
      }
    }
    const uint32_t left = c < x.n ? bits_of(from[c]) : 0, right = c + 1 < x.n ? bits_of(from[c + 1]) : 0;
    if constexpr (sizeof(D) == 4) to[2 * i] = left, to[2 * i + 1] = right;
    else to[i] = left | right << 16;
  }
  TW_GPU uint32_t word(bool second, int i) const {
    // Blended bit by bit: of a choice the compiler makes one of addresses, and the words leave their registers.
    const uint32_t one = kept[0][i], other = kept[Config::num_d == 2][i], mask = second ? ~0u : 0u;
    return one ^ ((one ^ other) & mask);
  }
  template <class Combine> TW_GPU void row(bool second, float *v, int column, Combine combine) const {
#pragma unroll
    for (int j = 0; j < octets; ++j) {
      const int octet = column / 8 + j, lane = octet % 8 * 4 + me.lane % 4, i = octet / 8;
      Two d;
      if constexpr (sizeof(D) == 4)
        d = {__uint_as_float(lane_at(word(second, i * 2), lane)),
             __uint_as_float(lane_at(word(second, i * 2 + 1), lane))};
      else d = two(lane_at(word(second, i), lane), D{});
      put(v + j * 4, d, d, combine);
    }
  }
  template <class Combine> TW_GPU void column_of(bool second, float *v, int i, Combine combine) const {
    const float upper = single(word(second, 2 * i)), lower = single(word(second, 2 * i + 1));
#pragma unroll
    for (int j = 0; j < octets; ++j) put(v + j * 4, {upper, upper}, {lower, lower}, combine);
  }
  static TW_GPU float single(uint32_t word) {
    if constexpr (sizeof(D) == 4) return __uint_as_float(word);
    else return two(word, D{}).left;
  }
  // A thread's accumulators of an octet: two neighbours in each of two rows, eight apart.
  template <class Combine> static TW_GPU void put(float *v, Two upper, Two lower, Combine combine) {
    v[0] = combine(v[0], upper.left), v[1] = combine(v[1], upper.right);
    v[2] = combine(v[2], lower.left), v[3] = combine(v[3], lower.right);
  }

  template <class Combine> TW_GPU void whole(const AuxOperand &aux, float *v, int i, int column, const Part<C> &p,
                                             char *buffer, Combine combine) const {
    if (aux.load_mode == LoadMode::carried) carry(aux, p, p.row + i * 64 + me.warp * 16, p.column + column, buffer);
#pragma unroll
    for (int j = 0; j < octets; j += 2) {
      uint32_t w[4];
      read_matrices(w, Buffer<S>::at(buffer, me, j));
      put(v + j * 4, two(w[0], C{}), two(w[1], C{}), combine);
      put(v + j * 4 + 4, two(w[2], C{}), two(w[3], C{}), combine);
    }
  }
  // A warp's 16 rows of a buffer, from memory.
  TW_GPU void carry(const AuxOperand &aux, const Part<C> &p, int row, int column, char *buffer) const {
    constexpr int pieces = 16 * octets;  // of 16 bytes
    const C *from = static_cast<const C *>(aux.at) + p.z * aux.batch_stride + row * aux.stride + column;
    __syncwarp();  // all have read what was there
    if (whole_at<8>(from) && aux.stride % 8 == 0) {
      const auto piece = [&](int at) {
        const int r = at / octets, q = at % octets;
        if (row + r < x.m && column + q * 8 < x.n)  // rows of E end with a piece
          *reinterpret_cast<Some<C, 8> *>(Buffer<S>::piece(buffer, me.warp * 16 + r, q)) =
              *reinterpret_cast<const Some<C, 8> *>(from + r * aux.stride + q * 8);
      };
      if constexpr (Config::num_d == 0) {  // a C that is aligned comes as boxes, unless it repeats itself
#pragma unroll 1
        for (int at = me.lane; at < pieces; at += 32) piece(at);
      } else {
#pragma unroll
        for (int at = me.lane; at < pieces; at += 32) piece(at);
      }
    } else {
#pragma unroll 1
      for (int at = me.lane; at < pieces * 8; at += 32) {
        const int r = at / S::chunk_columns, q = at % S::chunk_columns;
        if (row + r < x.m && column + q < x.n)
          reinterpret_cast<C *>(Buffer<S>::piece(buffer, me.warp * 16 + r, q / 8))[q % 8] = from[r * aux.stride + q];
      }
    }
    __syncwarp();
  }
  // A whole matrix of floats: too wide for the buffers.
  template <class Combine>
  TW_GPU void wide(const AuxOperand &aux, float *v, int i, int column, const Part<C> &p, Combine combine) const {
    const int r = p.row + i * 64 + me.warp * 16 + me.lane / 4, c = p.column + column + me.lane % 4 * 2;
    const float *from = static_cast<const float *>(aux.at) + p.z * aux.batch_stride + r * aux.stride + c;
#pragma unroll
    for (int j = 0; j < octets; ++j) {
      Two d[2];
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        const bool there = c + j * 8 < x.n && r + up * 8 < x.m;
        const float *at = from + up * 8 * aux.stride + j * 8;
        d[up] = there ? Two{at[0], at[1]} : Two{0, 0};
      }
      put(v + j * 4, d[0], d[1], combine);
    }
  }
};

}  // namespace tw
