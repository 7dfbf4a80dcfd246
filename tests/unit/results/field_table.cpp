#include "tests/unit/results/field_table.hpp"

#include <sstream>

#include "metrics/base/text_file.hpp"
#include "results/journal/journal.hpp"

namespace heteroperf {
namespace {

template <std::size_t index = 0>
void add_fields(std::vector<FieldRow>& rows) {
  if constexpr (index < std::variant_size_v<Event>) {
    using E = std::variant_alternative_t<index, Event>;
    E event{};
    const std::string line = kind_name(Event(E{}));
    visit_fields(event, [&](const std::string& name, const auto&) {
      rows.push_back({line, name, ""});
    });
    add_fields<index + 1>(rows);
  }
}

/// The cells of "| a | b |", without the spaces around them.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream text(row.substr(row.find('|') + 1));
  for (std::string cell; std::getline(text, cell, '|');) {
    const auto first = cell.find_first_not_of(' ');
    const auto last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

}  // namespace

std::vector<FieldRow> fields_in_readme() {
  const std::string text = read_text_file(HETEROPERF_RESULTS_README);
  const std::string heading = "\n| line | fields | is | how |\n";
  std::istringstream lines(text.substr(text.find(heading) + heading.size()));
  std::vector<FieldRow> rows;
  for (std::string line; std::getline(lines, line) && line.starts_with("|");) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() < 3 || cells[0].starts_with("-")) continue;
    std::istringstream fields(cells[1]);
    for (std::string field; fields >> field;) {
      rows.push_back({cells[0], field.substr(1, field.size() - 2), cells[2]});
    }
  }
  return rows;
}

std::vector<FieldRow> fields_of_events() {
  std::vector<FieldRow> rows;
  add_fields(rows);
  return rows;
}

}  // namespace heteroperf
