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

namespace heteroperf {
namespace {

/// The sum over the extents of the logarithm's difference; operands that lie otherwise are farther
/// than any extents.
double distance(const ProductShape& a, const ProductShape& b) {
  constexpr double other_layout = 1e3;
  const auto apart = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log(static_cast<double>(std::max<std::int64_t>(x, 1)) /
                             static_cast<double>(std::max<std::int64_t>(y, 1))));
  };
  return apart(a.rows, b.rows) + apart(a.inner, b.inner) + apart(a.columns, b.columns) +
         (a.a_transposed == b.a_transposed ? 0 : other_layout) +
         (a.b_transposed == b.b_transposed ? 0 : other_layout);
}

[[noreturn]] void refuse(std::string_view part) {
  throw UserError(fmt::format("engine.products: '{}' names no way of products", part),
                  "it is auto, mkl, onednn, own, or a list WAY:SHAPE,SHAPE/WAY:SHAPE with shapes "
                  "such as 2048x256x768nt",
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

bool parse_layout(char letter, std::string_view part) {
  if (letter != 'n' && letter != 't') refuse(part);
  return letter == 't';
}

ProductShape parse_shape(std::string_view part) {
  if (part.size() < 2) refuse(part);
  ProductShape shape;
  shape.a_transposed = parse_layout(part[part.size() - 2], part);
  shape.b_transposed = parse_layout(part.back(), part);
  std::string_view extents = part.substr(0, part.size() - 2);
  for (std::int64_t* extent : {&shape.rows, &shape.inner, &shape.columns}) {
    const std::string_view digits = cut(extents, 'x');
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, *extent);
    if (error != std::errc() || stop != end || *extent < 1) refuse(part);
  }
  if (!extents.empty()) refuse(part);
  return shape;
}

ProductWay parse_way(std::string_view name, std::string_view part) {
  const auto way = find_value<ProductWay>(std::string(name));
  if (!way) refuse(part);
  return *way;
}

}  // namespace

double ProductShape::operations() const {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(inner) *
         static_cast<double>(columns);
}

std::string to_string(const ProductShape& shape) {
  return fmt::format("{}x{}x{}{}{}", shape.rows, shape.inner, shape.columns,
                     shape.a_transposed ? 't' : 'n', shape.b_transposed ? 't' : 'n');
}

ProductChoices::ProductChoices(std::vector<ProductChoice> choices) : choices_(std::move(choices)) {
  std::ranges::sort(choices_, {}, &ProductChoice::shape);
}

ProductWay ProductChoices::way_for(const ProductShape& shape) const {
  double nearest = std::numeric_limits<double>::infinity();
  ProductWay way = way_;
  for (const ProductChoice& choice : choices_) {
    if (choice.shape == shape) return choice.way;
    const double apart = distance(choice.shape, shape);
    if (apart >= nearest) continue;
    nearest = apart;
    way = choice.way;
  }
  return way;
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
      choices.push_back({parse_shape(cut(part, ',')), way});
    } while (!part.empty());
  }
  return ProductChoices(std::move(choices));
}

ProductWay faster_way(const ProductTimes& seconds) {
  constexpr double clear_gain = 1.03;
  const double usual_s = seconds[static_cast<std::size_t>(ProductWay::mkl)];
  auto fastest = static_cast<std::size_t>(ProductWay::mkl);
  for (std::size_t w = 0; w < product_ways; ++w) {
    const bool clear = seconds[w] > 0 && seconds[w] * clear_gain < usual_s;
    if (clear && seconds[w] < seconds[fastest]) fastest = w;
  }
  return static_cast<ProductWay>(fastest);
}

}  // namespace heteroperf
