#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heteroperf {

/// A computation that the host makes in one of several ways: a product of matrices, by the layout
/// of its operands in memory (n: row by row, t: transposed), a pass of a convolution of one group,
/// or both passes of attention, causal or not.
enum class ProductKind { nn, nt, tn, tt, conv, conv_input, conv_weight, causal, attention };
constexpr std::array<const char*, 9> value_names(ProductKind) {
  return {"nn", "nt", "tn", "tt", "conv", "convdx", "convdw", "causal", "attention"};
}
constexpr bool is_attention(ProductKind kind) { return kind >= ProductKind::causal; }
constexpr bool is_convolution(ProductKind kind) {
  return kind >= ProductKind::conv && !is_attention(kind);
}
constexpr bool is_of_matrices(ProductKind kind) { return kind < ProductKind::conv; }

/// A way to make a product. Which is fastest depends on processor and shape: MKL takes no AVX-512
/// path on AMD's, where the other two reach twice its rate, and LibTorch's convolutions are fast
/// on large images alone.
enum class ProductWay {
  mkl,      ///< aten::mm: LibTorch's BLAS, which is MKL in the packages for x86
  onednn,   ///< the oneDNN inside LibTorch; for float32 it needs AVX-512
  own,      ///< operators/own_*.cpp, for every instruction set
  libtorch  ///< aten::convolution, flash attention, of matrices mkl; others gather windows
};
constexpr std::array<const char*, 4> value_names(ProductWay) {
  return {"mkl", "onednn", "own", "libtorch"};
}
constexpr std::size_t product_ways = value_names(ProductWay{}).size();

/// The rate of a product depends on this besides the machine and the way.
struct ProductShape {
  static constexpr std::size_t most_extents = 11;

  ProductKind kind = ProductKind::nn;
  /// For matrices {rows, inner} · {inner, columns}: rows, inner, columns. For a convolution: batch,
  /// channels, height, width, channels of the result, and of the window its height and width,
  /// their strides and their paddings. Of attention: batch, heads, heads of keys, length, numbers
  /// per head. Zeros stand behind.
  std::array<std::int64_t, most_extents> extents{};

  static ProductShape of_matrices(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                                  bool a_transposed = false, bool b_transposed = false);
  /// Reads what to_string() writes. Throws UserError that names what is none.
  static ProductShape parse(std::string_view text);
  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
  /// 2 per multiply-add; those on the padding around images, which may be skipped, left out.
  double operations() const;
};
/// "2048x256x768nt", "32x64x8x8x64x3x3x1x1x1x1convdx".
std::string to_string(const ProductShape& shape);

/// True for the ways that there are for such a product on some machine. LibTorch's gradient of the
/// weights of 1x1 windows is none: the oneDNN in it, as of LibTorch 2.11, writes beyond its result
/// where channels do not fill vectors (with AVX2).
bool offers(const ProductShape& shape, ProductWay way);
/// The way to compare others with: LibTorch's own, or its product of gathered windows.
ProductWay usual_way(const ProductShape& shape);

/// The way of one product.
struct ProductChoice {
  ProductShape shape;
  ProductWay way = ProductWay::libtorch;
  friend bool operator==(const ProductChoice&, const ProductChoice&) = default;
};

/// The way of every product of a training. The ways sum in different orders, so the choice changes
/// the last bits of a result and is part of a run: whoever repeats one takes the same.
class ProductChoices {
 public:
  /// One way for all products.
  explicit ProductChoices(ProductWay way = ProductWay::libtorch) : way_(way) {}
  explicit ProductChoices(std::vector<ProductChoice> choices);

  /// The way that was chosen for this shape, else for the nearest one: first of those of its kind,
  /// then where the logarithms of the extents differ least. The usual one where none is near, or
  /// where the shape lacks the nearest one's.
  ProductWay way_for(const ProductShape& shape) const;
  const std::vector<ProductChoice>& choices() const { return choices_; }
  /// Some product takes this way.
  bool takes(ProductWay way) const;

  /// "own", or "mkl:64x64x64nn/own:2048x256x768nt,2048x768x256nn": a word for any shell.
  std::string text() const;
  /// Throws UserError that names the part that is wrong.
  static ProductChoices parse(std::string_view text);

 private:
  ProductWay way_ = ProductWay::libtorch;  ///< where there are no choices
  std::vector<ProductChoice> choices_;
};

/// The seconds of the fastest call by way; 0 where this machine or this shape lacks it.
using ProductTimes = std::array<double, product_ways>;
/// The fastest way, or the usual one where no other one is faster by more than 3 %.
ProductWay faster_way(const ProductShape& shape, const ProductTimes& seconds);

}  // namespace heteroperf
