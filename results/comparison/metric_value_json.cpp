// A metric's value as JSON must lose no digit. Most readers of JSON keep numbers as doubles, which
// hold whole numbers up to 2^53 only, so operation counts and anything larger are written as
// decimal strings and all others as numbers.

#include "results/comparison/metric_value_json.hpp"

#include <fmt/format.h>

#include "results/text/text_escapes.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// True for a whole number that readers would round, as they keep numbers as doubles.
bool is_beyond_doubles(const Json& number) {
  constexpr std::uint64_t most = std::uint64_t{1} << 53;
  return number.is_number_unsigned() && number.get<std::uint64_t>() > most;
}

/// An exact value as the record has it: a number where that loses nothing, else its text.
Json stored_number(const MetricValue& value) {
  const Json number = Json::parse(value.text, nullptr, false);
  if (!number.is_number()) return *value.number;
  // Digits that no integer holds are read as a double.
  const bool rounded = is_whole_count(value.text) && number.is_number_float();
  return rounded || is_beyond_doubles(number) ? Json(value.text) : number;
}

}  // namespace

Json metric_value_json(const ComparedMetric& metric, MetricKind kind, const MetricValue& value) {
  if (!value.number) return utf8_text(value.text);
  if (metric.unit == std::string("op")) {
    return is_whole_count(value.text) ? value.text : fmt::format("{:.0f}", *value.number);
  }
  return kind == MetricKind::exact ? stored_number(value) : Json(*value.number);
}

}  // namespace heteroperf
