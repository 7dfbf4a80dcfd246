#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// One rank's description of itself, as the other ranks get it.
struct RankDescriptor {
  std::string vendor;  ///< who made the device: "GenuineIntel", "nvidia"
  std::string model;   ///< the name of the device
  /// The native collective library and its major version: "threads", "mpi 4", "nccl 2".
  std::string library;
  std::string host;                ///< host name and boot id; HETEROPERF_HOST_ID overrides it
  std::vector<NetworkCard> cards;  ///< names are unique per host ("host/eth0"); nearest first
  std::string label;               ///< explicit cluster label, "" for none
  std::string library_version{};   ///< "2.28.9", for readers; "" when it is not known
  /// The cores that all ranks of the host share. It matters where the time of a message shows who
  /// had to wait for a core; 0: it does not (modelled links), or it is not known.
  std::uint32_t host_cores = 0;
  friend bool operator==(const RankDescriptor&, const RankDescriptor&) = default;
};

/// Describes this process: the first CPU model, the host id, cards that are up with their speed.
RankDescriptor describe_this_rank(const std::string& library, const std::string& label);

/// Returns HETEROPERF_HOST_ID, else "name:" and the first part of the boot id, which tells hosts of
/// one name apart. A process in a namespace with a host name of its own is on a host of its own.
std::string host_id(const SystemFiles& files = SystemFiles());

/// Writes one line of JSON; bytes that are not UTF-8 are replaced.
std::string descriptor_text(const RankDescriptor& descriptor);
/// Throws UserError with everything wrong; `origin` begins its messages.
RankDescriptor parse_descriptor(const std::string& text, const std::string& origin);

/// Returns everybody's descriptor, in rank order. Collective. Throws SystemError on every rank,
/// naming the rank whose descriptor makes no sense.
std::vector<RankDescriptor> gather_descriptors(Communicator& world, const RankDescriptor& local);

}  // namespace heteroperf
