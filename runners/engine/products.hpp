#pragma once

#include <array>

namespace heteroperf {

/// A way to make the products of matrices of float32 on the host; all other products are
/// LibTorch's. Which is fastest depends on the processor: MKL takes no AVX-512 path on AMD's, where
/// the other two reach twice its rate. The ways sum in different orders, so the last bits of a
/// training depend on its way, which is therefore part of the configuration.
enum class ProductWay {
  mkl,     ///< aten::mm: LibTorch's BLAS, which is MKL in the packages for x86
  onednn,  ///< of the oneDNN inside LibTorch; of float32 only with AVX-512
  own      ///< operators/product.cpp, for every instruction set
};
constexpr std::array<const char*, 3> value_names(ProductWay) { return {"mkl", "onednn", "own"}; }

}  // namespace heteroperf
