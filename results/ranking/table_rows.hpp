#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace heteroperf {

/// The place of a row in its file, for messages about what is wrong with it. It refers to texts of
/// read_table_rows() and lives no longer than the call that gets it.
class TableRow {
 public:
  TableRow(const std::filesystem::path& file, const std::string& what, const std::string& form,
           std::size_t line)
      : file_(file), what_(what), form_(form), line_(line) {}
  /// Throws UserError: "FILE, line N: no `what` (why) A line is `form`."
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const std::filesystem::path& file_;
  const std::string &what_, &form_;
  std::size_t line_;
};

/// Reads a CSV file without quotes: `header`, then for each row as many cells. Throws UserError
/// with file and line on anything else, an empty file included; empty lines are left out.
void read_table_rows(
    const std::filesystem::path& file, const std::string& what, const std::string& header,
    const std::string& form,
    const std::function<void(const std::vector<std::string>& cells, const TableRow& row)>& take);

}  // namespace heteroperf
