#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// A row of a table that gives an enum's values their names, as users and files write them. A table
/// that says more than the name has rows of its own type with these two members.
template <class Enum>
struct Named {
  Enum value;
  const char* name;
};

/// Finds the row of a value. Every value of the enum must have one.
template <class Table, class Enum>
constexpr const auto& row_of(const Table& table, Enum value) {
  for (const auto& row : table) {
    if (row.value == value) return row;
  }
  HETEROPERF_EXPECT(!"a value without a name");
  return *std::begin(table);
}

template <class Table, class Enum>
constexpr const char* name_of(const Table& table, Enum value) {
  return row_of(table, value).name;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

/// Lists the table's values in its order.
template <class Row, std::size_t size>
constexpr auto values_of(const Row (&table)[size]) {
  std::array<decltype(Row::value), size> values{};
  for (std::size_t i = 0; i < size; ++i) values[i] = table[i].value;
  return values;
}

/// Returns the name of a value whose enum has a `value_names(Enum)` beside it, which lists the
/// names in the order of the enum. JSON readers take the same list (strict_json.hpp).
template <class Enum>
requires requires(Enum value) { value_names(value); }
constexpr auto to_string(Enum value) { return value_names(value)[static_cast<std::size_t>(value)]; }

/// Finds the value of such an enum by its name; nothing where no value has it.
template <class Enum>
std::optional<Enum> find_value(const std::string& name) {
  const auto names = value_names(Enum{});
  const auto place = std::find(names.begin(), names.end(), name);
  if (place == names.end()) return std::nullopt;
  return static_cast<Enum>(place - names.begin());
}
/// As find_value(), but throws unknown_name() for a name that no value has.
template <class Enum>
Enum parse_value_name(const std::string& what, const std::string& name) {
  if (const auto value = find_value<Enum>(name)) return *value;
  const auto names = value_names(Enum{});
  throw unknown_name(what, name, {names.begin(), names.end()});
}

/// Finds the value with that name. Throws unknown_name(), which calls the table's subject `what`.
template <class Table>
auto parse_name(const Table& table, const std::string& what, const std::string& name) {
  for (const auto& row : table) {
    if (name == row.name) return row.value;
  }
  throw unknown_name(what, name, names_of(table));
}

}  // namespace heteroperf
