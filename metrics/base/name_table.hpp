#pragma once

#include <array>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// One row of a table of an enum's values and their names, as users and files write them. A table
/// that says more has rows of its own with these two members.
template <class Enum>
struct Named {
  Enum value;
  const char* name;
};

/// Every value of the enum must have a row.
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

/// In the order of the table.
template <class Row, std::size_t size>
constexpr auto values_of(const Row (&table)[size]) {
  std::array<decltype(Row::value), size> values{};
  for (std::size_t i = 0; i < size; ++i) values[i] = table[i].value;
  return values;
}

/// The value of that name. Throws unknown_name().
template <class Table>
auto parse_name(const Table& table, const std::string& what, const std::string& name) {
  for (const auto& row : table) {
    if (name == row.name) return row.value;
  }
  throw unknown_name(what, name, names_of(table));
}

}  // namespace heteroperf
