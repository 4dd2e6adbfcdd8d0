// What epilogues are called, in kernels for every device: the values of a signature's `epilogue`.
#pragma once

namespace tw {

// The last three multiply: an activation of the sum by D0, or by a second sum.
enum class Epilogue {
  PassThrough,
  MultiDAdd,
  MultiDMultiply,
  Relu,
  Gelu,
  FastGelu,
  Silu,
  Sigmoid,
  Tanh,
  SiluAndMul,
  GeluAndMul,
  FastGeluAndMul
};

// Whether an activation of the sum is multiplied, and which: for the host, and for everybody.
constexpr bool gates(Epilogue kind) { return kind >= Epilogue::SiluAndMul; }
template <Epilogue Kind> constexpr bool gated = Kind >= Epilogue::SiluAndMul;
template <Epilogue Kind> constexpr Epilogue gate_of = Kind == Epilogue::SiluAndMul   ? Epilogue::Silu
                                                      : Kind == Epilogue::GeluAndMul ? Epilogue::Gelu
                                                                                     : Epilogue::FastGelu;

}  // namespace tw
