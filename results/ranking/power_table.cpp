#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "metrics/error.hpp"
#include "results/ranking/ranking.hpp"
#include "results/run_folder.hpp"

namespace heteroperf {
namespace {

constexpr const char* header = "run_id,watts,level";

[[noreturn]] void refuse(const std::filesystem::path& file, std::size_t line,
                         const std::string& why) {
  throw UserError(fmt::format("{}, line {}: no measured power", file.string(), line), why,
                  fmt::format("A line is {}, the level 1, 2 or 3.", header));
}

/// The number that is all of the text; NaN where it is none.
double whole_number_of(const std::string& text) {
  try {
    std::size_t used = 0;
    const double value = std::stod(text, &used);
    return used == text.size() ? value : std::nan("");
  } catch (const std::exception&) {
    return std::nan("");
  }
}

}  // namespace

PowerTable read_power_table(const std::filesystem::path& file) {
  std::istringstream text(read_text_file(file));
  PowerTable table;
  std::size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1) {
      if (line != header) refuse(file, 1, fmt::format("the first line is not {}", header));
      continue;
    }
    if (line.empty()) continue;
    const std::size_t first = line.find(','), second = line.find(',', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      refuse(file, number, fmt::format("'{}' has fewer than three values", line));
    }
    const std::string run_id = line.substr(0, first), level = line.substr(second + 1);
    const double watts = whole_number_of(line.substr(first + 1, second - first - 1));
    if (!std::isfinite(watts) || watts <= 0) refuse(file, number, "watts are above 0");
    if (level != "1" && level != "2" && level != "3") {
      refuse(file, number, fmt::format("'{}' is no level", level));
    }
    const MeasuredPower power{watts, static_cast<PowerLevel>(level[0] - '0')};
    if (!table.emplace(run_id, power).second) refuse(file, number, run_id + " stands there twice");
  }
  if (number == 0) refuse(file, 1, "the file is empty");
  return table;
}

}  // namespace heteroperf
