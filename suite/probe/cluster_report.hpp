#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

namespace heteroperf {

/// The cluster file as text, which --cluster reads.
std::string cluster_json_text(const Cluster& cluster);
/// "0 1 4": the ranks of a cluster.
std::string ranks_text(const RankCluster& cluster);
/// Classes, clusters, cards and links as tables.
std::string cluster_table(const Cluster& cluster, const std::string& reason);

/// Makes a name, of letters, digits and single dashes, of what makers call a device.
std::string class_name(std::string kind);
/// The name that `probe` gives the class of a host's CPUs, of which a rank has `threads`.
std::string cpu_class_name(const RankDescriptor& host, int threads);
/// One rank's device as it tells the others; `kind` is equal for devices of one class.
std::string device_reading_text(const std::string& kind, const DeviceClass& device);
/// Makes a class of every kind among the ranks' readings, rates being the median of its devices',
/// and the efficiency entries that say when they were measured.
void fill_classes(const std::vector<std::string>& readings, const std::string& when,
                  Cluster& cluster);

}  // namespace heteroperf
