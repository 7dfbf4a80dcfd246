#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heteroperf {

/// A way to make the products of matrices of float32 on the host; all other products are
/// LibTorch's. Which is fastest depends on processor and shape: MKL takes no AVX-512 path on AMD's,
/// where the other two reach twice its rate.
enum class ProductWay {
  mkl,     ///< aten::mm: LibTorch's BLAS, which is MKL in the packages for x86
  onednn,  ///< the oneDNN inside LibTorch; for float32 it needs AVX-512
  own      ///< operators/product.cpp, for every instruction set
};
constexpr std::array<const char*, 3> value_names(ProductWay) { return {"mkl", "onednn", "own"}; }
constexpr std::size_t product_ways = value_names(ProductWay{}).size();

/// The rate of a product depends on this besides the machine: {rows, inner} · {inner, columns}, and
/// which operand lies transposed in memory.
struct ProductShape {
  std::int64_t rows = 0, inner = 0, columns = 0;
  bool a_transposed = false, b_transposed = false;

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
  /// 2 per multiply-add.
  double operations() const;
};
/// "2048x256x768nt": rows, inner extent, columns; n or t for either operand.
std::string to_string(const ProductShape& shape);

/// The way of one product.
struct ProductChoice {
  ProductShape shape;
  ProductWay way = ProductWay::mkl;
  friend bool operator==(const ProductChoice&, const ProductChoice&) = default;
};

/// The way of every product of a training. The ways sum in different orders, so the choice changes
/// the last bits of a result and is part of a run: whoever repeats one takes the same.
class ProductChoices {
 public:
  /// One way for all products.
  explicit ProductChoices(ProductWay way = ProductWay::mkl) : way_(way) {}
  explicit ProductChoices(std::vector<ProductChoice> choices);

  /// The way that was chosen for this shape, else for the nearest one: first of those whose
  /// operands lie in the same way, then where the logarithms of the three extents differ least.
  ProductWay way_for(const ProductShape& shape) const;
  const std::vector<ProductChoice>& choices() const { return choices_; }
  /// Some product takes this way.
  bool takes(ProductWay way) const;

  /// "own", or "mkl:64x64x64nn/own:2048x256x768nt,2048x768x256nn": a word for any shell.
  std::string text() const;
  /// Throws UserError that names the part that is wrong.
  static ProductChoices parse(std::string_view text);

 private:
  ProductWay way_ = ProductWay::mkl;  ///< where there are no choices
  std::vector<ProductChoice> choices_;
};

/// The seconds of the fastest call by way; 0 where this machine lacks it.
using ProductTimes = std::array<double, product_ways>;
/// The fastest way, or mkl where no other one is faster by more than 3 %.
ProductWay faster_way(const ProductTimes& seconds);

}  // namespace heteroperf
