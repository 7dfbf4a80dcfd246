#include "metrics/base/quantity.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>

namespace heteroperf {
namespace {

constexpr std::array<char, 4> units{'K', 'M', 'G', 'T'};

/// Returns the power of 1024 that the text after the digits means; empty when it means none.
std::optional<int> power_of(std::string_view unit) {
  if (unit.empty() || unit == "B") return 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (std::toupper(static_cast<unsigned char>(unit[0])) != units[i]) continue;
    const std::string_view rest = unit.substr(1);
    if (rest.empty() || rest == "B" || rest == "iB") return static_cast<int>(i) + 1;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Bytes> parse_byte_size(std::string_view text) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const auto power = power_of(text.substr(static_cast<std::size_t>(stop - text.data())));
  if (!power || value > (UINT64_MAX >> (10 * *power))) return std::nullopt;
  return Bytes(value << (10 * *power));
}

std::string byte_size_text(Bytes size) {
  std::uint64_t value = size.value();
  std::size_t power = 0;
  while (value != 0 && value % 1024 == 0 && power < units.size()) {
    value /= 1024;
    ++power;
  }
  return std::to_string(value) + (power == 0 ? std::string() : std::string(1, units[power - 1]));
}

std::string rounded_byte_size(double bytes) {
  std::size_t power = 0;
  for (; bytes >= 1024 && power < units.size(); ++power) bytes /= 1024;
  return power == 0 ? fmt::format("{:.4g} B", bytes)
                    : fmt::format("{:.4g} {}iB", bytes, units[power - 1]);
}

}  // namespace heteroperf
