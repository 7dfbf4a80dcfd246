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
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  if (!line.empty() && line.back() == ',') cells.emplace_back();
  return cells;
}

/// The finite number that a whole cell is.
std::optional<double> number_in(const std::string& cell) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// A column of a trace: the time, devices of a zone, or nothing where it has no heading.
struct TraceColumn {
  std::string heading, device, zone;
  bool is_time() const { return heading == "Timestamp"; }
};

/// A trace whose columns are not understood is read no further.
std::vector<TraceColumn> columns_of(const std::string& line, const std::string& file) {
  ProblemList problems;
  bool any = false;
  std::vector<TraceColumn> columns;
  for (const std::string& heading : cells_of(line)) {
    const std::size_t bar = heading.find('_');
    columns.push_back(
        {heading, heading.substr(0, bar), bar == std::string::npos ? "" : heading.substr(bar + 1)});
    if (heading.empty() || columns.back().is_time()) continue;
    any = true;
    if (!columns.back().device.empty() && !columns.back().zone.empty()) continue;
    problems.add(fmt::format("{}: the column \"{}\" is no device and zone", file, heading),
                 "as in \"A100-40_us-central1-a\"");
  }
  if (!any) problems.add(fmt::format("{} names no device in its first line", file));
  problems.throw_if_any();
  return columns;
}

/// Reads a cell: a time, or a whole number of devices. False for any other.
bool read_cell(const TraceColumn& column, const std::string& cell, SailorAvailability& row) {
  const std::optional<double> value = number_in(cell);
  if (!value) return false;
  if (column.is_time()) {
    row.time_s = *value;
    return true;
  }
  row.devices[{column.device, column.zone}] =
      static_cast<int>(std::clamp(*value, 0.0, most_of_a_row));
  return *value >= 0 && *value <= most_of_a_row && *value == std::floor(*value);
}

/// Adds up devices by place.
class CountedDevices {
 public:
  explicit CountedDevices(const SailorTables& tables)
      : tables_(tables), devices_(tables.places().size(), 0) {}

  void add(const std::string& device, const std::string& zone, std::int64_t count) {
    try {
      int& sum = devices_[tables_.place(device, zone)];
      // Counts are held at the bound instead of overflowing.
      sum = static_cast<int>(std::min(most_devices, sum + count));
    } catch (const UserError& error) {
      if (!unknown_.insert(device).second) return;
      for (const Problem& p : error.problems()) problems_.add(p.problem, p.why, p.suggestion);
    }
  }
  /// Takes the label as the zone where the inputs have that place, else the inputs' own zone.
  void add_labelled(const std::string& device, const std::string& label, std::int64_t count) {
    add(device, tables_.find_place(device, label) >= 0 ? label : "", count);
  }

  /// Adds "A100-40=32,V100-16@zone=96".
  void add_list(const std::string& text) {
    for (const std::string& item : cells_of(text)) {
      const std::string name = item.substr(0, item.find('='));
      const auto number = name == item
                              ? std::nullopt
                              : parse_integer(std::string_view(item).substr(name.size() + 1));
      if (!number || *number < 0 || *number > most_devices) {
        problems_.add(fmt::format("--cluster has \"{}\"", item),
                      fmt::format("a device and 0 to {} of it, as in A100-40=32", most_devices));
        continue;
      }
      const std::string device = name.substr(0, name.find('@'));
      add(device, device == name ? "" : name.substr(device.size() + 1), *number);
    }
  }

  /// Adds the row of a trace that follows its name, "trace.csv:1", or the first.
  void add_trace(const std::string& text) {
    const std::size_t end = text.rfind(".csv") + 4;
    const auto row = end == text.size() ? std::optional<long long>(0)
                                        : parse_integer(std::string_view(text).substr(end + 1));
    const auto rows = read_sailor_trace(text.substr(0, end));
    if (!row || *row < 0 || *row >= std::ssize(rows)) {
      throw UserError(fmt::format("--cluster {} names no row", text),
                      fmt::format("the trace has rows 0 to {}", rows.size() - 1));
    }
    for (const auto& [key, number] : rows[*row].devices) {
      if (number > 0) add_labelled(key.first, key.second, number);
    }
  }

  SailorDevices take() {
    problems_.throw_if_any();
    return std::move(devices_);
  }

 private:
  const SailorTables& tables_;
  SailorDevices devices_;
  std::set<std::string> unknown_;
  ProblemList problems_;
};

/// True for "….csv" and "….csv:ROW".
bool is_trace(const std::string& text) {
  const std::size_t suffix = text.rfind(".csv");
  return suffix != std::string::npos && (suffix + 4 == text.size() || text[suffix + 4] == ':');
}

}  // namespace

// Bad rows are noted, up to twenty.
std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::istringstream in(read_text_file(file));
  std::string line;
  std::getline(in, line);
  const std::vector<TraceColumn> columns = columns_of(line, name);
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
      if (columns[i].heading.empty() || read_cell(columns[i], cells[i], row)) continue;
      problems.add(
          fmt::format("{}: line {}: \"{}\" is {}", name, number, columns[i].heading, cells[i]),
          columns[i].is_time() ? "must be a number" : "must be a whole number of devices");
    }
  }
  if (rows.empty()) problems.add(fmt::format("{} has no rows", name));
  problems.throw_if_any();
  return rows;
}

SailorDevices sailor_devices(const SailorTables& tables, const std::string& cluster) {
  CountedDevices count(tables);
  if (is_trace(cluster)) {
    count.add_trace(cluster);
  } else if (cluster.find('=') != std::string::npos) {
    count.add_list(cluster);
  } else {
    for (const RankPlace& rank : find_machine(cluster).ranks) {
      count.add_labelled(rank.device_class, rank.cluster, 1);
    }
  }
  return count.take();
}

}  // namespace heteroperf
