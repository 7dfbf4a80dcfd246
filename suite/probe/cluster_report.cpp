// Sorts the devices that ranks reported into classes. Devices are of one class when the words that
// describe them are equal: vendor, model and threads, turned into a short name without what makers
// write into every name. The rate of a class is the median of its devices', which one disturbed
// rank does not move; its memory is the smallest, which every device has.
#include "suite/probe/cluster_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "results/text/document.hpp"
#include "results/text/number_text.hpp"
#include "runners/cluster/cluster_json.hpp"

namespace heteroperf {
namespace {

/// Rates of products by precision; a probe of links alone has none.
std::string rates_text(const DeviceClass& device) {
  std::vector<std::string> texts;
  for (const auto& [precision, rate] : device.rates) {
    texts.push_back(fmt::format("{} {}", precision, with_prefix(rate.value(), operations_unit)));
  }
  return texts.empty() ? "rate not measured" : fmt::format("{}", fmt::join(texts, ", "));
}

/// "memory 12.3 GB/s, 84 rates of single operations".
std::string efficiency_text(const Cluster& cluster, const std::string& device_class) {
  std::string memory = "not measured";
  std::size_t operations = 0;
  for (const Efficiency& entry : cluster.efficiency) {
    if (entry.device_class != device_class) continue;
    if (entry.operation == "memory") {
      memory = with_prefix(entry.rate.value(), "B/s");
    }
    // Single operations have names such as conv2d/forward.
    operations += entry.operation.find('/') != std::string::npos ? 1 : 0;
  }
  return fmt::format("memory {}, {} rates of single operations", memory, operations);
}

/// A link joins two ranks, or any two members of two clusters, or of one.
std::string ends_text(const Link& link) {
  if (link.ranks)
    return fmt::format("rank {} - rank {}", link.ranks->first.value(), link.ranks->second.value());
  return link.from == link.to ? "inside " + link.from : link.from + " - " + link.to;
}

/// Words that makers write into every name they give.
constexpr std::array<const char*, 10> fillers{
    "AuthenticAMD", "GenuineIntel", "(R)", "(r)", "(TM)", "(tm)", "CPU", "Processor", "with", "@"};

/// The devices of one class.
struct Kind {
  DeviceClass device;
  std::vector<std::size_t> ranks;
  std::map<std::string, std::vector<double>> rates;
};

std::map<std::string, Kind> kinds_of(const std::vector<std::string>& readings) {
  std::map<std::string, Kind> kinds;
  for (std::size_t r = 0; r < readings.size(); ++r) {
    const auto json = Json::parse(readings[r]);
    DocumentProblems problems("device of rank " + std::to_string(r));
    const DeviceClass device = read_device_class(json.at("device"), "", problems);
    problems.throw_if_any();
    Kind& kind = kinds[json.at("kind")];
    kind.ranks.push_back(r);
    // The first device stands for its class.
    if (kind.ranks.size() == 1) kind.device = device;
    // A plan must fit every device of the class.
    kind.device.memory = std::min(kind.device.memory, device.memory);
    for (const auto& [precision, rate] : device.rates) {
      kind.rates[precision].push_back(rate.value());
    }
  }
  return kinds;
}

}  // namespace

std::string ranks_text(const RankCluster& cluster) {
  return joined(cluster.ranks, " ", [](RankId rank) { return std::to_string(rank.value()); });
}

std::string cluster_table(const Cluster& cluster, const std::string& reason) {
  std::string text = fmt::format("cluster {}: {} ranks\n", cluster.name, cluster.ranks.size());
  for (const DeviceClass& device : cluster.classes) {
    text += fmt::format("  class {} x {}: {} each, {}\n    {}\n", device.name, device.count,
                        rounded_byte_size(device.memory), rates_text(device),
                        efficiency_text(cluster, device.name));
  }
  const RankClusters clusters = cluster.rank_clusters();
  text += fmt::format("clusters ({}):\n", reason);
  for (const RankCluster& rank_cluster : clusters.clusters) {
    text += fmt::format("  {}: ranks {}\n", rank_cluster.label, ranks_text(rank_cluster));
  }
  return text +
         console_text(table_of("", cluster.links,
                               {{{"", "link", Unit::none}, ends_text},
                                {{"", "latency", Unit::seconds},
                                 [](const Link& link) { return link.curve.latency().value(); }},
                                {{"", "bandwidth", Unit::bytes_per_second}, [](const Link& link) {
                                   return link.curve.bandwidth().value();
                                 }}}));
}

std::string cluster_json_text(const Cluster& cluster) { return to_json(cluster).dump(2) + "\n"; }

// "GenuineIntel Intel(R) Xeon(R) CPU @ 2.80GHz 1 thread" becomes "intel-xeon-2-80ghz-1-thread".
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

std::string cpu_class_name(const RankDescriptor& host, int threads) {
  return class_name(fmt::format("{} {} {}", host.vendor, host.model, plural(threads, "thread")));
}

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
      // The entry repeats the rate with its date, which the class itself does not have.
      cluster.efficiency.push_back(
          {name, "gemm", "square", precision, device.rates[precision], "measured " + when});
    }
    for (const std::size_t rank : kind.ranks) cluster.ranks[rank].device_class = name;
    cluster.classes.push_back(std::move(device));
  }
}

}  // namespace heteroperf
