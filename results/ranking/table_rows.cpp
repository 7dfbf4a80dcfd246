// Reads the small CSV tables that people write by hand beside their records. The form is strict: a
// fixed header, as many cells in each row, no quotes. A hand-written table that is read generously
// puts a number at the wrong run in silence, so anything else is refused with the file and the
// line. Line ends of Windows and empty lines are allowed, as editors add them.

#include "results/ranking/table_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace

void TableRow::refuse(const std::string& why) const {
  throw UserError(fmt::format("{}, line {}: no {}", file_.string(), line_, what_), why,
                  fmt::format("A line is {}.", form_));
}

void read_table_rows(
    const std::filesystem::path& file, const std::string& what, const std::string& header,
    const std::string& form,
    const std::function<void(const std::vector<std::string>& cells, const TableRow& row)>& take) {
  std::istringstream text(read_text_file(file));
  const std::size_t width = cells_of(header).size();
  std::size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    const TableRow row(file, what, form, ++number);
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1 && line != header) row.refuse("the first line is not " + header);
    if (number == 1 || line.empty()) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != width) {
      row.refuse(fmt::format("'{}' has not {} values", line, width));
    }
    take(cells, row);
  }
  if (number == 0) TableRow(file, what, form, 1).refuse("the file is empty");
}

}  // namespace heteroperf
