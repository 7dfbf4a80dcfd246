#include "runners/comm/nccl/nccl_group.hpp"

#include <filesystem>

#include "metrics/base/error.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

// A NCCL group needs two things from the ranks' host world: a device for every rank, for which the
// ranks of a host agree on their places, and NCCL's unique id, which the group's first rank makes
// and sends to the others.

namespace heteroperf {
namespace {

constexpr bool nccl_built = HETEROPERF_WITH_NCCL != 0;
constexpr const char* driver = "/dev/nvidiactl";

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
  if (nccl_built && !std::filesystem::exists(driver)) {
    status.reason = std::string("no NVIDIA driver is loaded (") + driver + " is missing)";
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

}  // namespace heteroperf
