// `plan --import sailor:…` names its machine as a list of devices, as a row of a trace, or as a
// cluster; here all of them become counts of the places that Sailor's inputs know.
//
// A *trace* is a table of comma-separated values: a column per device and zone, a row per moment,
// and in each cell how many devices were available then. A *place* is a device in a zone. The
// labels of a cluster stand for zones where the inputs know such a place; otherwise all devices are
// taken to be in the inputs' own zone. Unknown devices are named once each, with the nearest known
// name.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ranges>
#include <set>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"
#include "runners/plan/rivals/sailor/sailor_tables.hpp"

namespace heteroperf {
namespace {

/// Counts stay below these bounds, whatever a file or the command line says.
constexpr std::int64_t most_devices = 1 << 20;
constexpr double most_of_a_row = 1'000'000;

/// Splits a line at its commas. A comma at the end begins another, empty cell.
std::vector<std::string> cells_of(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  std::vector<std::string> cells;
  for (const auto cell : std::views::split(line, ',')) cells.emplace_back(cell.begin(), cell.end());
  return cells;
}

/// Splits "A100-40_us-central1-a" at its first separator; the second part is empty without one.
std::pair<std::string, std::string> parts_of(const std::string& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  return {text.substr(0, end), text.substr(end).erase(0, 1)};
}

constexpr const char* time_heading = "Timestamp";

/// Notes the columns of a trace that are neither the time nor devices of a zone.
void check_columns(const std::vector<std::string>& columns, const std::string& file) {
  ProblemList problems;
  bool any = false;
  for (const std::string& heading : columns) {
    if (heading.empty() || heading == time_heading) continue;
    any = true;
    const auto [device, zone] = parts_of(heading, '_');
    if (!device.empty() && !zone.empty()) continue;
    problems.add(fmt::format("{}: the column \"{}\" is no device and zone", file, heading),
                 "as in \"A100-40_us-central1-a\"");
  }
  if (!any) problems.add(fmt::format("{} names no device in its first line", file));
  problems.throw_if_any();
}

/// Reads a cell: a finite time, or a whole number of devices. False for any other.
bool read_cell(const std::string& heading, const std::string& cell, SailorAvailability& row) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0' || !std::isfinite(value)) return false;
  if (heading == time_heading) {
    row.time_s = value;
    return true;
  }
  row.devices[parts_of(heading, '_')] = static_cast<int>(std::clamp(value, 0.0, most_of_a_row));
  return value >= 0 && value <= most_of_a_row && value == std::floor(value);
}

/// The row of a trace that follows its name, "trace.csv:1", or the first.
SailorAvailability trace_row(const std::string& text) {
  const std::size_t end = text.rfind(".csv") + 4;
  const auto row = end == text.size() ? std::optional<long long>(0)
                                      : parse_integer(std::string_view(text).substr(end + 1));
  const auto rows = read_sailor_trace(text.substr(0, end));
  if (row && *row >= 0 && *row < std::ssize(rows)) return rows[*row];
  throw UserError(fmt::format("--cluster {} names no row", text),
                  fmt::format("the trace has rows 0 to {}", rows.size() - 1));
}

/// True for "….csv" and "….csv:ROW".
bool is_trace(const std::string& text) {
  const std::size_t suffix = text.rfind(".csv");
  return suffix != std::string::npos && (suffix + 4 == text.size() || text[suffix + 4] == ':');
}

}  // namespace

// A trace whose columns are not understood is read no further. Bad rows are noted, up to twenty.
std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::istringstream in(read_text_file(file));
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> columns = cells_of(line);
  check_columns(columns, name);
  ProblemList problems;
  std::vector<SailorAvailability> rows;
  for (int number = 2; problems.problems().size() < 20 && std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != columns.size()) {
      problems.add(fmt::format("{}: line {} has {} cells", name, number, cells.size()),
                   fmt::format("the first line has {}", columns.size()));
      continue;
    }
    SailorAvailability& row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (columns[i].empty() || read_cell(columns[i], cells[i], row)) continue;
      problems.add(
          fmt::format("{}: line {}: \"{}\" is {}", name, number, columns[i], cells[i]),
          columns[i] == time_heading ? "must be a number" : "must be a whole number of devices");
    }
  }
  if (rows.empty()) problems.add(fmt::format("{} has no rows", name));
  problems.throw_if_any();
  return rows;
}

SailorDevices sailor_devices(const SailorTables& tables, const std::string& cluster) {
  SailorDevices devices(tables.places().size(), 0);
  std::set<std::string> unknown;
  ProblemList problems;
  const auto add = [&](const std::string& device, const std::string& zone, std::int64_t count) {
    if (tables.find_place(device, zone) < 0 && !unknown.insert(device).second) return;
    collect_problems(problems, [&] {
      int& sum = devices[tables.place(device, zone)];
      // Counts are held at the bound instead of overflowing.
      sum = static_cast<int>(std::min(most_devices, sum + count));
    });
  };
  // A label is a zone where the inputs have that place, else the inputs' own zone is meant.
  const auto add_labelled = [&](const std::string& device, const std::string& label, int count) {
    add(device, tables.find_place(device, label) >= 0 ? label : "", count);
  };
  if (is_trace(cluster)) {
    for (const auto& [key, count] : trace_row(cluster).devices) {
      if (count > 0) add_labelled(key.first, key.second, count);
    }
  } else if (cluster.find('=') != std::string::npos) {
    for (const std::string& item : cells_of(cluster)) {
      const auto [name, count] = parts_of(item, '=');
      const auto number = parse_integer(count);
      if (number && *number >= 0 && *number <= most_devices) {
        const auto [device, zone] = parts_of(name, '@');
        add(device, zone, *number);
        continue;
      }
      problems.add(fmt::format("--cluster has \"{}\"", item),
                   fmt::format("a device and 0 to {} of it, as in A100-40=32", most_devices));
    }
  } else {
    for (const RankPlace& rank : find_machine(cluster).ranks) {
      add_labelled(rank.device_class, rank.cluster, 1);
    }
  }
  problems.throw_if_any();
  return devices;
}

}  // namespace heteroperf
