#include "runners/plan/sailor/sailor_trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {
namespace {

constexpr double most_devices = 1'000'000;

std::vector<std::string> cells_of(std::string line) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  if (!line.empty() && line.back() == ',') cells.emplace_back();
  return cells;
}

std::optional<double> number_in(const std::string& cell) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

class TraceReader {
 public:
  explicit TraceReader(std::string name) : name_(std::move(name)) {}

  std::vector<SailorAvailability> read(std::istream& in) {
    std::string line;
    std::getline(in, line);
    read_heading(cells_of(line));
    while (problems_.problems().size() < 20 && std::getline(in, line)) {
      ++line_;
      if (!line.empty()) read_row(cells_of(line));
    }
    if (rows_.empty()) problems_.add(fmt::format("{} has no rows", name_));
    problems_.throw_if_any();
    return std::move(rows_);
  }

 private:
  void read_heading(const std::vector<std::string>& cells) {
    headings_ = cells;
    bool any = false;
    for (const std::string& heading : headings_) {
      if (heading.empty() || heading == "Timestamp") continue;
      any = true;
      const std::size_t bar = heading.find('_');
      if (bar != std::string::npos && bar > 0 && bar + 1 < heading.size()) continue;
      problems_.add(fmt::format("{}: the column \"{}\" is no device and zone", name_, heading),
                    "as in \"A100-40_us-central1-a\"");
    }
    if (!any) problems_.add(fmt::format("{} names no device in its first line", name_));
    problems_.throw_if_any();
  }

  void read_row(const std::vector<std::string>& cells) {
    if (cells.size() != headings_.size()) {
      problems_.add(fmt::format("{}: line {} has {} cells", name_, line_, cells.size()),
                    fmt::format("the first line has {}", headings_.size()));
      return;
    }
    SailorAvailability row;
    for (std::size_t i = 0; i < cells.size(); ++i) read_cell(headings_[i], cells[i], row);
    rows_.push_back(std::move(row));
  }

  void read_cell(const std::string& heading, const std::string& cell, SailorAvailability& row) {
    if (heading.empty()) return;
    const std::optional<double> value = number_in(cell);
    const bool time = heading == "Timestamp";
    const bool count =
        value && *value >= 0 && *value <= most_devices && *value == std::floor(*value);
    if (!value || (!time && !count)) {
      problems_.add(fmt::format("{}: line {}: \"{}\" is {}", name_, line_, heading, cell),
                    time ? "must be a number" : "must be a whole number of devices");
      return;
    }
    if (time) {
      row.time_s = *value;
      return;
    }
    const std::size_t bar = heading.find('_');
    row.devices[{heading.substr(0, bar), heading.substr(bar + 1)}] = static_cast<int>(*value);
  }

  std::string name_;
  std::vector<std::string> headings_;
  int line_ = 1;
  std::vector<SailorAvailability> rows_;
  ProblemList problems_;
};

}  // namespace

std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file) {
  std::istringstream in(read_text_file(file));
  return TraceReader(file.string()).read(in);
}

}  // namespace heteroperf
