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

/// Reads a trace line by line. Column headings say device and zone, so a bad heading ends the
/// reading at once; bad rows are noted, up to twenty.
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

  /// A cell is a time, a whole number of devices, or in a column without a heading.
  void read_cell(const std::string& heading, const std::string& cell, SailorAvailability& row) {
    if (heading.empty()) return;
    const std::optional<double> value = number_in(cell);
    const bool time = heading == "Timestamp";
    const bool count =
        value && *value >= 0 && *value <= most_of_a_row && *value == std::floor(*value);
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

/// Adds up devices by place.
class CountedDevices {
 public:
  explicit CountedDevices(const SailorTables& tables)
      : tables_(tables), devices_(tables.places().size(), 0) {}

  void add(const std::string& device, const std::string& zone, std::int64_t count) {
    try {
      int& sum = devices_[at_index(tables_.place(device, zone))];
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
    for (const auto& [key, number] : rows[at_index(*row)].devices) {
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

std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file) {
  std::istringstream in(read_text_file(file));
  return TraceReader(file.string()).read(in);
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
