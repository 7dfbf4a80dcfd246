#include "suite/verbs/sailor_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/plan/sailor/sailor_trace.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t most_devices = 1 << 20;

/// Adds up devices by place.
class CountedDevices {
 public:
  explicit CountedDevices(const SailorTables& tables)
      : tables_(tables), devices_(tables.places().size(), 0) {}

  void add(const std::string& device, const std::string& zone, std::int64_t count) {
    try {
      int& own = devices_[static_cast<std::size_t>(tables_.place(device, zone))];
      own = static_cast<int>(std::min<std::int64_t>(most_devices, own + count));
    } catch (const UserError& error) {
      if (!unknown_.insert(device).second) return;
      for (const Problem& p : error.problems()) problems_.add(p.problem, p.why, p.suggestion);
    }
  }
  /// The zone where the inputs have it, else their own.
  void add_labelled(const std::string& device, const std::string& label, std::int64_t count) {
    const auto& names = tables_.places();
    const bool zone = std::find(names.begin(), names.end(), device + "@" + label) != names.end();
    add(device, zone ? label : "", count);
  }
  ProblemList& problems() { return problems_; }
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

void add_list(const std::string& text, CountedDevices& count) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    const auto number = equals == std::string::npos
                            ? std::nullopt
                            : parse_integer(std::string_view(item).substr(equals + 1));
    if (!number || *number < 0 || *number > most_devices) {
      count.problems().add(
          fmt::format("--cluster has \"{}\"", item),
          fmt::format("a device and 0 to {} of it, as in A100-40=32", most_devices));
    } else {
      const std::string name = item.substr(0, equals);
      const std::size_t at = name.find('@');
      count.add(name.substr(0, at), at == std::string::npos ? "" : name.substr(at + 1), *number);
    }
    begin = end + 1;
  }
}

void add_trace(const std::string& text, CountedDevices& count) {
  const std::size_t end = text.rfind(".csv") + 4;
  const auto row = end == text.size() ? std::optional<long long>(0)
                                      : parse_integer(std::string_view(text).substr(end + 1));
  const auto rows = read_sailor_trace(text.substr(0, end));
  if (!row || *row < 0 || *row >= static_cast<std::int64_t>(rows.size())) {
    throw UserError(fmt::format("--cluster {} names no row", text),
                    fmt::format("the trace has rows 0 to {}", rows.size() - 1));
  }
  for (const auto& [key, number] : rows[static_cast<std::size_t>(*row)].devices) {
    if (number > 0) count.add_labelled(key.first, key.second, number);
  }
}

bool is_trace(const std::string& text) {
  const std::size_t found = text.rfind(".csv");
  return found != std::string::npos && (found + 4 == text.size() || text[found + 4] == ':');
}

}  // namespace

SailorDevices sailor_devices(const SailorTables& tables, const std::string& cluster) {
  CountedDevices count(tables);
  if (is_trace(cluster)) {
    add_trace(cluster, count);
  } else if (cluster.find('=') != std::string::npos) {
    add_list(cluster, count);
  } else {
    for (const RankPlace& rank : find_cluster(cluster).ranks) {
      count.add_labelled(rank.device_class, rank.cluster, 1);
    }
  }
  return count.take();
}

}  // namespace heteroperf
