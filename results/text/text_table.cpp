// Tables of text for a terminal and for Markdown. Widths are counted in characters, not in bytes,
// so that "±" or "×" does not shift a column; characters that are wider than one place are not
// known. Columns without any text are left out.
#include "results/text/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

/// The width of well-formed text: every byte but those that continue a character.
std::size_t places_in(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  HETEROPERF_EXPECT(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = line_text(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::vector<std::string>> TextTable::lines() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines.front().push_back(column.name);
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  return lines;
}

/// Two spaces part the columns, and none stand at the end of a line.
std::string TextTable::text(const std::string& indent) const {
  const std::vector<std::vector<std::string>> lines = this->lines();
  std::vector<std::size_t> widths(columns_.size());
  for (const auto& cells : lines) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      widths[i] = std::max(widths[i], places_in(cells[i]));
  }
  std::string all;
  for (const auto& cells : lines) {
    std::string line = indent;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string padding(widths[i] - places_in(cells[i]), ' ');
      line += line.size() == indent.size() ? "" : "  ";
      line += columns_[i].side == CellSide::left ? cells[i] + padding : padding + cells[i];
    }
    all += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return all;
}

/// The second line says on which side the cells of each column stand.
std::string TextTable::markdown() const {
  const std::vector<std::vector<std::string>> lines = this->lines();
  const auto row_of = [&](const auto& cell_of) {
    std::string row = "|";
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      // A column with a name always has text.
      const bool has_text = std::any_of(lines.begin(), lines.end(),
                                        [&](const auto& cells) { return !cells[i].empty(); });
      if (has_text) row += cell_of(i) + "|";
    }
    return row + '\n';
  };
  std::string all;
  for (const auto& cells : lines) {
    all += row_of([&](std::size_t i) { return fmt::format(" {} ", markdown_cell(cells[i])); });
    if (&cells != &lines.front()) continue;
    all += row_of([&](std::size_t i) {
      return std::string(columns_[i].side == CellSide::left ? "---" : "--:");
    });
  }
  return all;
}

}  // namespace heteroperf
