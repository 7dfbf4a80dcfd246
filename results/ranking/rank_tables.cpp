// Reads the small CSV tables that people write by hand beside their records: facts about runs that
// no record knows. A meter outside of the program measured the power, its mean in watts and the
// level of the measurement, of which a higher one covers more of the system and of the run. The
// availability says in one of three words if other people can have such a system. The form is
// strict: a fixed header, as many cells in each row, no quotes, a run once. A hand-written table
// that is read generously puts a number at the wrong run in silence, so anything else is refused
// with the file and the line. Line ends of Windows and empty lines are allowed, as editors add
// them.
//
// AIPerf, another benchmark of AI training, prints its score into its results.txt, a text for
// people of which only the two lines with scores are looked for. AIPerf counts operations by
// another convention and over whole epochs, so its score is shown beside our own without a rank and
// with a remark that says why.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ranges>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/ranking/ranking.hpp"

namespace heteroperf {
namespace {

using Cells = std::vector<std::string>;

Cells cells_of(const std::string& line) {
  Cells cells;
  for (const auto cell : std::views::split(line, ',')) cells.emplace_back(cell.begin(), cell.end());
  return cells;
}

/// Reads a table by run_id, its first column. `value_of(cells, refuse)` makes the value of a row or
/// calls `refuse(why)`, which throws UserError: "FILE, line N: no `what` (why) A line is `header`:
/// `rest`."
template <class Value, class ValueOf>
std::map<std::string, Value> read_run_table(const std::filesystem::path& file, const char* what,
                                            const std::string& header, const char* rest,
                                            ValueOf value_of) {
  std::istringstream text(read_text_file(file));
  std::map<std::string, Value> table;
  const std::size_t width = cells_of(header).size();
  std::size_t number = 0;
  const auto refuse = [&](const std::string& why) {
    throw UserError(
        fmt::format("{}, line {}: no {}", file.string(), std::max<std::size_t>(1, number), what),
        why, fmt::format("A line is {}{}.", header, rest));
  };
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1 && line != header) refuse("the first line is not " + header);
    if (number == 1 || line.empty()) continue;
    const Cells cells = cells_of(line);
    if (cells.size() != width) refuse(fmt::format("'{}' has not {} values", line, width));
    const Value value = value_of(cells, refuse);
    if (!table.emplace(cells[0], value).second) refuse(cells[0] + " stands there twice");
  }
  if (number == 0) refuse("the file is empty");
  return table;
}

// ---------------------------------------------------------------- AIPerf

constexpr double gflops = 1e9;

/// The number of the first "<label> : 1234.5 GFLOPS", as report.py of AIPerf prints it.
std::optional<double> score_of(const std::string& text, const std::string& label) {
  const std::string before = label + " : ";
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at)) {
    at += before.size();
    const char* const number = text.c_str() + at;
    char* end = nullptr;
    const double value = std::strtod(number, &end) * gflops;
    // strtod also reads "inf", "nan" and hexadecimal numbers, which no score is.
    const bool decimal = number[0] >= '0' && number[0] <= '9' &&
                         number + std::strspn(number, "0123456789.eE+-") == end;
    if (decimal && std::isfinite(value) &&
        text.compare(static_cast<std::size_t>(end - text.c_str()), 7, " GFLOPS") == 0)
      return value;
  }
  return std::nullopt;
}

}  // namespace

AvailabilityTable read_availability_table(const std::filesystem::path& file) {
  return read_run_table<SystemAvailability>(
      file, "availability", "run_id,availability", ": available, preview or research",
      [](const Cells& cells, const auto& refuse) {
        const auto known = find_value<SystemAvailability>(cells[1]);
        if (!known) refuse("'" + cells[1] + "' is none");
        return *known;
      });
}

PowerTable read_power_table(const std::filesystem::path& file) {
  return read_run_table<MeasuredPower>(
      file, "measured power", "run_id,watts,level", ", the level 1, 2 or 3",
      [](const Cells& cells, const auto& refuse) {
        const std::string &number = cells[1], &level = cells[2];
        char* end = nullptr;
        const double watts = std::strtod(number.c_str(), &end);
        const bool whole = !number.empty() && end == number.c_str() + number.size();
        if (!whole || !std::isfinite(watts) || watts <= 0) refuse("watts are above 0");
        if (level != "1" && level != "2" && level != "3") refuse("'" + level + "' is no level");
        return MeasuredPower{watts, static_cast<PowerLevel>(level[0] - '0')};
      });
}

PublishedScore read_aiperf_results(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  const auto score = score_of(text, "Final Score");
  if (!score) {
    throw UserError(file.string() + " is no results.txt of AIPerf",
                    "it has no line \"Final Score : <number> GFLOPS\"");
  }
  PublishedScore published;
  published.source = file.string();
  published.ops_per_second = *score;
  published.regulated = score_of(text, "Final Regulated Score");
  published.remark = "counted by AIPerf's own convention over whole epochs: not comparable";
  // A failed run of AIPerf still prints a score; the reader must know.
  if (text.find("Test failed") != std::string::npos) published.remark += "; its own test failed";
  return published;
}

}  // namespace heteroperf
