#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// What one rank tells the others about itself.
struct RankDescriptor {
  std::string vendor;  ///< of the device: "GenuineIntel", "nvidia"
  std::string model;   ///< of the device
  std::string
      library;  ///< native collective library and its major version: "threads", "mpi 4", "nccl 2"
  std::string host;                ///< host name and boot id; HETEROPERF_HOST_ID overrides it
  std::vector<NetworkCard> cards;  ///< names are unique per host ("host/eth0"); nearest first
  std::string label;               ///< explicit cluster label, "" for none
  std::string library_version{};   ///< "2.28.9", for readers; "" when it is not known
  /// Of the host, for all of its ranks, where the time of a message tells who had to wait for one;
  /// 0: that cannot be (modelled links), or it is not known.
  std::uint32_t host_cores = 0;
  friend bool operator==(const RankDescriptor&, const RankDescriptor&) = default;
};

/// Of this process: first CPU model, host id, cards that are up with their speed.
RankDescriptor describe_this_rank(const std::string& library, const std::string& label);

/// HETEROPERF_HOST_ID, else "name:" and the first part of the boot id, which tells hosts of one
/// name apart. Whoever runs in a namespace with a host name of its own is a host of its own.
std::string host_id(const SystemFiles& files = SystemFiles());

}  // namespace heteroperf
