#include "suite/verbs/cluster_report.hpp"

#include <fmt/format.h>

#include "metrics/base/byte_size.hpp"

namespace heteroperf {
namespace {

std::string rates_text(const DeviceClass& device) {
  std::vector<std::string> texts;
  for (const auto& [precision, rate] : device.rates) {
    texts.push_back(fmt::format("{} {:.1f} GOPS", precision, rate.value() * 1e-9));
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
      memory = fmt::format("{:.1f} GB/s", entry.rate.value() * 1e-9);
    }
    operations += entry.operation.find('/') != std::string::npos ? 1 : 0;
  }
  return fmt::format("memory {}, {} rates of single operations", memory, operations);
}

std::string ends_text(const Link& link) {
  if (link.ranks)
    return fmt::format("rank {} - rank {}", link.ranks->first.value(), link.ranks->second.value());
  return link.from == link.to ? "inside " + link.from : link.from + " - " + link.to;
}

}  // namespace

std::string cluster_table(const Cluster& cluster, const std::string& reason) {
  std::string text = fmt::format("cluster {}: {} ranks\n", cluster.name, cluster.ranks.size());
  for (const DeviceClass& device : cluster.classes) {
    text += fmt::format("  class {} x {}: {} each, {}\n    {}\n", device.name, device.count,
                        rounded_byte_size(device.memory), rates_text(device),
                        efficiency_text(cluster, device.name));
  }
  const RankClusters clusters = cluster.rank_clusters();
  text += fmt::format("clusters ({}):\n", reason);
  for (const RankCluster& one : clusters.clusters) {
    std::vector<int> ranks;
    for (const RankId rank : one.ranks) ranks.push_back(rank.value());
    text += fmt::format("  {}: ranks {}\n", one.label, fmt::join(ranks, " "));
  }
  text += fmt::format("{:<24} {:>14} {:>16}\n", "link", "latency", "bandwidth");
  for (const Link& link : cluster.links) {
    text += fmt::format("{:<24} {:>11.2f} us {:>11.3f} GB/s\n", ends_text(link),
                        link.curve.latency().value() * 1e6, link.curve.bandwidth().value() * 1e-9);
  }
  return text;
}

}  // namespace heteroperf
