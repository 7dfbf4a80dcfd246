// Which way the products of a training take, as a value and as the text of the key
// `engine.products`. The engine measures (probe/choose_products.cpp); this is what a run keeps.
#include "runners/engine/products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "workloads/graph/node_rules.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t extents_of(ProductKind kind) {
  return is_convolution(kind) ? ProductShape::most_extents : is_attention(kind) ? 5 : 3;
}

/// The sum over the extents of the logarithm's difference; another kind is farther than any
/// extents, and matrices, images and attention are infinitely far from each other.
double distance(const ProductShape& a, const ProductShape& b) {
  constexpr double other_kind = 1e3;
  if (is_convolution(a.kind) != is_convolution(b.kind) ||
      is_attention(a.kind) != is_attention(b.kind)) {
    return std::numeric_limits<double>::infinity();
  }
  double sum = a.kind == b.kind ? 0 : other_kind;
  for (std::size_t i = 0; i < extents_of(a.kind); ++i) {
    // A padding may be 0.
    sum += std::abs(std::log(static_cast<double>(std::max<std::int64_t>(a.extents[i], 1)) /
                             static_cast<double>(std::max<std::int64_t>(b.extents[i], 1))));
  }
  return sum;
}

[[noreturn]] void refuse(std::string_view part) {
  throw UserError(
      fmt::format("engine.products: '{}' names no way of products", part),
      "it is auto, mkl, onednn, own, libtorch, or a list WAY:SHAPE,SHAPE/WAY:SHAPE with "
      "shapes such as 2048x256x768nt",
      "Leave it out, or take it from the command that a record repeats its run with");
}

/// Cuts the text before the separator off `rest`; all of it where there is none. Nothing may end
/// with a separator.
std::string_view cut(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  if (rest.empty() || end == rest.size() - 1) refuse(rest);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

ProductWay parse_way(std::string_view name, std::string_view part) {
  const auto way = find_value<ProductWay>(std::string(name));
  if (!way) refuse(part);
  return *way;
}

}  // namespace

ProductShape ProductShape::of_matrices(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                                       bool a_transposed, bool b_transposed) {
  const int kind = (a_transposed ? 2 : 0) + (b_transposed ? 1 : 0);
  return {static_cast<ProductKind>(kind), {rows, inner, columns}};
}

ProductShape ProductShape::parse(std::string_view text) {
  // The extents stand before the last digit, the kind behind it.
  const std::size_t end = text.find_last_of("0123456789");
  if (end == std::string_view::npos) refuse(text);
  const auto kind = find_value<ProductKind>(std::string(text.substr(end + 1)));
  if (!kind) refuse(text);
  ProductShape shape;
  shape.kind = *kind;
  std::string_view extents = text.substr(0, end + 1);
  for (std::size_t i = 0; i < extents_of(*kind); ++i) {
    const std::string_view digits = cut(extents, 'x');
    const char* const last = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), last, shape.extents[i]);
    const bool may_be_none = is_convolution(*kind) && i + 2 >= extents_of(*kind);  // a padding
    if (error != std::errc() || stop != last || shape.extents[i] < (may_be_none ? 0 : 1)) {
      refuse(text);
    }
  }
  if (!extents.empty()) refuse(text);
  return shape;
}

double ProductShape::operations() const {
  const auto extent = [&](std::size_t i) { return static_cast<double>(extents[i]); };
  if (is_of_matrices(kind)) return 2 * extent(0) * extent(1) * extent(2);
  if (is_attention(kind)) {
    // Two products forward and four backward, of which causal ones need half.
    const double pairs = extent(3) * extent(3) / (kind == ProductKind::causal ? 2 : 1);
    return 6 * 2 * extent(0) * extent(1) * pairs * extent(4);
  }
  double terms = 1;  // of a result's image, by its windows and their taps
  for (std::size_t axis = 0; axis < 2; ++axis) {
    terms *= static_cast<double>(
        taps_inside(extents[2 + axis], extents[5 + axis], extents[7 + axis], extents[9 + axis]));
  }
  return 2 * extent(0) * terms * extent(1) * extent(4);
}

bool offers(const ProductShape& shape, ProductWay way) {
  const bool one_tap = shape.extents[5] == 1 && shape.extents[6] == 1;
  switch (way) {
    case ProductWay::own:
      return true;
    case ProductWay::libtorch:
      return !is_of_matrices(shape.kind) && !(shape.kind == ProductKind::conv_weight && one_tap);
    default:
      return !is_attention(shape.kind);
  }
}

ProductWay usual_way(const ProductShape& shape) {
  return offers(shape, ProductWay::libtorch) ? ProductWay::libtorch : ProductWay::mkl;
}

std::string to_string(const ProductShape& shape) {
  return fmt::format(
      "{}{}", fmt::join(shape.extents.begin(), shape.extents.begin() + extents_of(shape.kind), "x"),
      to_string(shape.kind));
}

ProductChoices::ProductChoices(std::vector<ProductChoice> choices) : choices_(std::move(choices)) {
  std::ranges::sort(choices_, {}, &ProductChoice::shape);
}

ProductWay ProductChoices::way_for(const ProductShape& shape) const {
  const ProductWay usual = usual_way(shape);
  ProductWay way = choices_.empty() ? way_ : usual;
  double nearest = std::numeric_limits<double>::infinity();
  for (const ProductChoice& choice : choices_) {
    const double apart = distance(choice.shape, shape);
    if (apart >= nearest) continue;
    nearest = apart;
    way = choice.way;
  }
  return offers(shape, way) ? way : usual;
}

bool ProductChoices::takes(ProductWay way) const {
  if (choices_.empty()) return way == way_;
  return std::ranges::find(choices_, way, &ProductChoice::way) != choices_.end();
}

std::string ProductChoices::text() const {
  if (choices_.empty()) return to_string(way_);
  std::string text;
  for (std::size_t w = 0; w < product_ways; ++w) {
    const auto way = static_cast<ProductWay>(w);
    std::string shapes;
    for (const ProductChoice& choice : choices_) {
      if (choice.way != way) continue;
      shapes += (shapes.empty() ? "" : ",") + to_string(choice.shape);
    }
    if (shapes.empty()) continue;
    text += fmt::format("{}{}:{}", text.empty() ? "" : "/", to_string(way), shapes);
  }
  return text;
}

ProductChoices ProductChoices::parse(std::string_view text) {
  if (text.find(':') == std::string_view::npos) return ProductChoices(parse_way(text, text));
  std::vector<ProductChoice> choices;
  while (!text.empty()) {
    std::string_view part = cut(text, '/');
    const ProductWay way = parse_way(cut(part, ':'), part);
    do {
      const std::string_view name = cut(part, ',');
      choices.push_back({ProductShape::parse(name), way});
      if (!offers(choices.back().shape, way)) refuse(name);
    } while (!part.empty());
  }
  return ProductChoices(std::move(choices));
}

ProductWay faster_way(const ProductShape& shape, const ProductTimes& seconds) {
  constexpr double clear_gain = 1.03;
  const auto usual = static_cast<std::size_t>(usual_way(shape));
  std::size_t fastest = usual;
  for (std::size_t w = 0; w < product_ways; ++w) {
    const bool clear = seconds[w] > 0 && seconds[w] * clear_gain < seconds[usual];
    if (clear && seconds[w] < seconds[fastest]) fastest = w;
  }
  return static_cast<ProductWay>(fastest);
}

}  // namespace heteroperf
