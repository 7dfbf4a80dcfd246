#include "runners/comm/nccl/device_world.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "runners/cluster/shared_module.hpp"

// Ranks whose devices have one vendor and one library talk over that library. Between unlike
// devices there is no library, so they are different clusters, and the hybrid communicator carries
// the data between clusters by way of the hosts.
//
// A NCCL group needs two things from the ranks' host world: a device for every rank, for which the
// ranks of a host agree on their places, and NCCL's unique id, which the group's first rank makes
// and sends to the others.

namespace heteroperf {
namespace {

constexpr bool nccl_built = HETEROPERF_WITH_NCCL != 0;

NcclBackend& load_nccl() {
  if constexpr (!nccl_built) {
    throw SystemError("not built with NCCL", "", "Configure with -DHETEROPERF_NCCL=ON.",
                      ErrorKind::environment);
  }
  const SharedModule module = SharedModule::open("nccl", Visibility::global);
  return *module.symbol<HeteroperfNcclEntry>("heteroperf_nccl_backend")();
}

/// The number of ranks on this rank's host, and this rank's place among them.
struct HostPlace {
  int index = 0, ranks = 0;
};

HostPlace place_on_host(Communicator& world) {
  const std::string host = host_id();
  const auto hosts = gather_texts(world, host);
  HostPlace place;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] != host) continue;
    if (RankId(r) < world.rank()) ++place.index;
    ++place.ranks;
  }
  return place;
}

/// The watch over a control channel that knows about failures and nothing else.
class FailureWatch final : public PeerWatch {
 public:
  explicit FailureWatch(std::shared_ptr<ControlChannel> control) : control_(std::move(control)) {}
  std::optional<RankFailure> failure_among(std::span<const RankId>) const override {
    return control_->failure();
  }

 private:
  std::shared_ptr<ControlChannel> control_;
};

/// True for ranks that can be in one native group.
bool are_like(const RankDescriptor& a, const RankDescriptor& b) {
  return a.vendor == b.vendor && a.library == b.library;
}

std::string text_of(RankId rank, const RankDescriptor& device) {
  return fmt::format("rank {} is {} {} over {}", rank.value(), device.vendor, device.model,
                     device.library);
}

void check_labels(const RankClusters& clusters, const std::vector<RankDescriptor>& ranks) {
  ProblemList problems;
  for (const RankCluster& cluster : clusters.clusters) {
    const RankId first = cluster.ranks.front();
    const RankDescriptor& model = ranks[first.index()];
    const auto unlike = std::ranges::find_if_not(
        cluster.ranks, [&](RankId rank) { return are_like(model, ranks[rank.index()]); });
    if (unlike == cluster.ranks.end()) continue;
    problems.add(fmt::format("cluster {} has unlike devices", cluster.label),
                 text_of(first, model) + ", " + text_of(*unlike, ranks[(*unlike).index()]),
                 "Give each kind a label of its own.");
  }
  problems.throw_if_any();
}

/// One cluster for every kind of device and library, in the order of its first rank.
RankClusters clusters_by_kind(const std::vector<RankDescriptor>& ranks) {
  RankClusters result;
  std::vector<std::vector<BridgeCandidate>> candidates;
  std::vector<std::string> kinds;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::string kind = ranks[r].vendor + " " + ranks[r].library;
    const std::size_t k = std::ranges::find(kinds, kind) - kinds.begin();
    if (k == kinds.size()) {
      kinds.push_back(kind);
      result.clusters.push_back({fmt::format("c{}", k), {}, {}});
      candidates.emplace_back();
    }
    result.clusters[k].ranks.push_back(RankId(r));
    candidates[k].push_back({RankId(r), ranks[r].cards});
  }
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    result.clusters[k].bridges = choose_bridges(candidates[k], most_bridges);
  }
  result.reason = fmt::format(
      "{}: {}",
      kinds.size() == 1 ? "one kind of device and library" : "unlike devices or libraries",
      fmt::join(kinds, ", "));
  return result;
}

}  // namespace

std::shared_ptr<NcclLibrary> open_nccl_device(World& world) {
  NcclBackend& backend = load_nccl();
  std::string reason;
  const int devices = backend.devices(reason);
  if (devices == 0) {
    throw SystemError("there is no device for NCCL", reason, "Use --transport threads or mpi.",
                      ErrorKind::environment);
  }
  Communicator& ranks = *world.communicator;
  const HostPlace place = place_on_host(ranks);
  const int sharing = (place.ranks + devices - 1) / devices;
  return backend.open(place.index % devices, ranks.rank().value(), sharing);
}

std::shared_ptr<PeerWatch> watch_of(const World& world) {
  if (auto watch = std::dynamic_pointer_cast<PeerWatch>(world.control)) return watch;
  return std::make_shared<FailureWatch>(world.control);
}

std::unique_ptr<Communicator> make_nccl_group(World& world, std::shared_ptr<NcclLibrary> library,
                                              Communicator& part) {
  NcclId id{};
  if (part.rank() == RankId(0)) id = library->unique_id();
  part.broadcast(MutableBuffer(id.data(), id.size(), DataType::u8), RankId(0));
  const std::int32_t rank = world.communicator->rank().value();
  std::vector<std::int32_t> ranks(part.size());
  part.all_gather(std::span(&rank, 1), std::span(ranks));
  return make_nccl_communicator(std::move(library), id, part.rank(), {ranks.begin(), ranks.end()},
                                watch_of(world));
}

BackendStatus nccl_status() {
  BackendStatus status;
  status.built = nccl_built;
  status.version = HETEROPERF_NCCL_VERSION;
  // The driver is looked for first, because loading the library takes longer than everything else
  // that a report about a machine needs.
  if (nccl_built && !has_nvidia_driver()) {
    status.reason = no_nvidia_driver;
    return status;
  }
  try {
    NcclBackend& backend = load_nccl();
    status.version = backend.version();
    status.usable = backend.devices(status.reason) > 0;
  } catch (const Error& error) {
    status.reason = error.what();
  }
  return status;
}

RankDescriptor describe_device(NcclLibrary& library, RankDescriptor host) {
  const DeviceIdentity device = library.device();
  host.vendor = device.vendor;
  host.model = device.model;
  host.library_version = library.version();
  host.library = "nccl " + host.library_version.substr(0, host.library_version.find('.'));
  return host;
}

DeviceWorld make_device_world(World& world, std::shared_ptr<NcclLibrary> library,
                              const RankDescriptor& host, const std::vector<std::string>& labels) {
  Communicator& ranks = *world.communicator;
  DeviceWorld devices;
  devices.descriptors = gather_descriptors(ranks, describe_device(*library, host));
  devices.clusters = labels.empty() ? clusters_by_kind(devices.descriptors)
                                    : clusters_by_label(labels, ranks.size());
  check_labels(devices.clusters, devices.descriptors);
  const auto part = ranks.split(static_cast<int>(devices.clusters.cluster_of(ranks.rank())), 0);
  devices.inside = make_nccl_group(world, std::move(library), *part);
  return devices;
}

MeasuredDevices measure_devices(World& world, DeviceWorld& devices,
                                const AgglomerationConfig& config, const LinkSweep& sweep) {
  Communicator& hosts = *world.communicator;
  const RankClusters& kinds = devices.clusters;
  const LinkGroup native{*devices.inside, hosts,
                         kinds.clusters[kinds.cluster_of(hosts.rank())].ranks};
  MeasuredDevices measured;
  measured.clusters = discover_clusters(native, devices.descriptors, config);
  const auto group = make_device_group(world, devices, {});
  measured.file = measure_links({*group, hosts}, measured.clusters, devices.descriptors, sweep);
  return measured;
}

std::unique_ptr<Communicator> make_device_group(World& world, DeviceWorld& devices,
                                                HybridConfig config) {
  if (devices.clusters.clusters.size() == 1 && config.rules.empty()) {
    return std::move(devices.inside);
  }
  config.clusters = devices.clusters;
  auto hosts = world.communicator->split(0, 0);
  return make_hybrid_communicator(std::move(hosts), std::move(config), std::move(devices.inside));
}

}  // namespace heteroperf
