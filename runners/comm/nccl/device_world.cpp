#include "runners/comm/nccl/device_world.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/error.hpp"
#include "runners/comm/discovery/discover.hpp"
#include "runners/comm/nccl/nccl_group.hpp"

namespace heteroperf {
namespace {

/// Ranks that can be in one native group.
bool are_like(const RankDescriptor& a, const RankDescriptor& b) {
  return a.vendor == b.vendor && a.library == b.library;
}

std::string name_of(const RankDescriptor& rank) {
  return fmt::format("{} {} over {}", rank.vendor, rank.model, rank.library);
}

void check_labels(const RankClusters& clusters, const std::vector<RankDescriptor>& ranks) {
  ProblemList problems;
  for (const RankCluster& cluster : clusters.clusters) {
    const RankId first = cluster.ranks.front();
    const RankDescriptor& model = ranks[static_cast<std::size_t>(first.value())];
    for (const RankId rank : cluster.ranks) {
      const RankDescriptor& other = ranks[static_cast<std::size_t>(rank.value())];
      if (are_like(model, other)) continue;
      problems.add(fmt::format("cluster {} has unlike devices", cluster.label),
                   fmt::format("rank {} is {}, rank {} is {}", first.value(), name_of(model),
                               rank.value(), name_of(other)),
                   "Give each kind a label of its own.");
      break;
    }
  }
  problems.throw_if_any();
}

/// The ranks like this one, in order.
std::vector<RankId> like(RankId self, const std::vector<RankDescriptor>& ranks) {
  std::vector<RankId> found;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (are_like(ranks[r], ranks[static_cast<std::size_t>(self.value())])) {
      found.emplace_back(static_cast<std::int32_t>(r));
    }
  }
  return found;
}

}  // namespace

RankDescriptor describe_device(NcclLibrary& library, RankDescriptor host) {
  const DeviceIdentity device = library.device();
  host.vendor = device.vendor;
  host.model = device.model;
  host.library_version = library.version();
  host.library = "nccl " + host.library_version.substr(0, host.library_version.find('.'));
  return host;
}

DeviceWorld make_device_world(World& world, std::shared_ptr<NcclLibrary> library,
                              const RankDescriptor& host, const std::vector<std::string>& labels,
                              const AgglomerationConfig& config) {
  Communicator& ranks = *world.communicator;
  const RankId self = ranks.rank();
  DeviceWorld devices;
  devices.descriptors = gather_descriptors(ranks, describe_device(*library, host));
  if (!labels.empty()) {
    devices.clusters = clusters_by_label(labels, ranks.size());
    check_labels(devices.clusters, devices.descriptors);
    const auto part = ranks.split(static_cast<int>(devices.clusters.cluster_of(self)), 0);
    devices.inside = make_nccl_group(world, std::move(library), *part);
    return devices;
  }
  const std::vector<RankId> members = like(self, devices.descriptors);
  const auto part = ranks.split(members.front().value(), 0);
  auto native = make_nccl_group(world, std::move(library), *part);
  devices.clusters = discover_clusters({*native, ranks, members}, devices.descriptors, config);
  const std::size_t cluster = devices.clusters.cluster_of(self);
  const bool is_whole = devices.clusters.clusters[cluster].ranks == members;
  devices.inside = is_whole ? std::move(native) : native->split(static_cast<int>(cluster), 0);
  return devices;
}

std::unique_ptr<Communicator> make_device_group(World& world, DeviceWorld& devices,
                                                HybridConfig config) {
  if (devices.clusters.clusters.size() == 1 && config.rules.empty()) {
    return std::move(devices.inside);
  }
  config.clusters = devices.clusters;
  auto hosts = world.communicator->split(0, 0);
  return make_hybrid_communicator(std::move(hosts), std::move(devices.inside), std::move(config));
}

}  // namespace heteroperf
