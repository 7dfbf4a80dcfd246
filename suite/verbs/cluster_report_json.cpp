#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "metrics/statistics.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "runners/cluster/machine_json.hpp"
#include "suite/verbs/cluster_report.hpp"

namespace heteroperf {
namespace {

/// What makers write into every name they give.
constexpr std::array<const char*, 10> fillers{
    "AuthenticAMD", "GenuineIntel", "(R)", "(r)", "(TM)", "(tm)", "CPU", "Processor", "with", "@"};

/// "GenuineIntel Intel(R) Xeon(R) CPU @ 2.80GHz 1 thread" as a name, letters, digits and single
/// dashes: "intel-xeon-2-80ghz-1-thread".
std::string class_name(std::string kind) {
  for (const std::string filler : fillers) {
    for (std::size_t at; (at = kind.find(filler)) != std::string::npos;) {
      kind.replace(at, filler.size(), " ");
    }
  }
  std::string name;
  for (const char c : kind) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "device" : name;
}

/// The devices of one class.
struct Kind {
  DeviceClass device;
  std::vector<std::size_t> ranks;
  std::map<std::string, std::vector<double>> rates;
};

std::map<std::string, Kind> kinds_of(const std::vector<std::string>& readings) {
  std::map<std::string, Kind> kinds;
  for (std::size_t r = 0; r < readings.size(); ++r) {
    const auto json = nlohmann::json::parse(readings[r]);
    const DeviceClass device =
        device_class_from_json(json.at("device"), "device of rank " + std::to_string(r));
    Kind& kind = kinds[class_name(json.at("kind"))];
    kind.ranks.push_back(r);
    if (kind.ranks.size() == 1) kind.device = device;
    kind.device.memory = std::min(kind.device.memory, device.memory);
    for (const auto& [precision, rate] : device.rates) {
      kind.rates[precision].push_back(rate.value());
    }
  }
  return kinds;
}

}  // namespace

std::string cluster_json_text(const Cluster& cluster) { return to_json(cluster).dump(2) + "\n"; }

std::string device_reading_text(const std::string& kind, const DeviceClass& device) {
  return nlohmann::json{{"kind", kind}, {"device", to_json(device)}}.dump();
}

void fill_classes(const std::vector<std::string>& readings, const std::string& when,
                  Cluster& cluster) {
  cluster.classes.clear();
  for (auto& [name, kind] : kinds_of(readings)) {
    DeviceClass device = kind.device;
    device.name = name;
    device.count = static_cast<int>(kind.ranks.size());
    device.rates.clear();
    for (const auto& [precision, rates] : kind.rates) {
      device.rates[precision] = OpsPerSecond(median(rates));
      cluster.efficiency.push_back(
          {name, "gemm", "square", precision, device.rates[precision], "measured " + when});
    }
    for (const std::size_t rank : kind.ranks) cluster.ranks[rank].device_class = name;
    cluster.classes.push_back(std::move(device));
  }
}

}  // namespace heteroperf
