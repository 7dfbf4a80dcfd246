#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace heteroperf {

enum class CellSide { left, right };

/// Rows for a terminal, every column as wide as its widest cell, two spaces between; those without
/// any text are left out. Cells are made well-formed UTF-8 without line breaks; a character counts
/// one place.
class TextTable {
 public:
  struct Column {
    std::string name;
    CellSide side = CellSide::right;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns.
  void add(std::vector<std::string> cells);
  /// The names, then the rows, each after `indent` and with a line feed; no spaces at the end.
  std::string text(const std::string& indent = "") const;
  /// The same as a table of Markdown.
  std::string markdown() const;

 private:
  /// The names, then the rows.
  std::vector<std::vector<std::string>> lines() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace heteroperf
