// The hybrid communicator over device memory: the native library inside each cluster, staging
// through the hosts between clusters.
//
// Messages inside a cluster are the library's (nccl has no tags and matches them in the order of
// their start); those between clusters are relays and match by tag. Either kind makes progress in
// any wait of this group. A collective that cannot use the bridges goes by way of the hosts as a
// whole: the vector is copied to the host, the same group over the hosts does the work, and the
// result is copied back.
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"
#include "runners/comm/hybrid/device_pipeline.hpp"

namespace heteroperf {
namespace {

/// A segment, which is one call of the native library, has this many chunks of a bridge.
constexpr std::size_t chunks_per_segment = 16;
/// This many steps of an all_to_all are under way at once.
constexpr std::size_t exchange_steps = 4;

/// The configuration of the same group over the hosts, without a model: it knows nothing of copies.
HybridConfig without_model(HybridConfig config) {
  config.model.reset();
  return config;
}

/// All messages of a group that are under way. Whoever waits for one lets all of them go on.
class Progress {
 public:
  Progress(Communicator& world, DeviceCopier& copier, const RelayConfig& config)
      : messages(world, copier, config) {}

  void add(const std::shared_ptr<Transfer>& transfer) { inside_.push_back(transfer); }
  void turn() {
    messages.progress();
    std::erase_if(inside_, [](const std::weak_ptr<Transfer>& entry) {
      const auto transfer = entry.lock();
      return !transfer || transfer->test();
    });
  }

  RelayMessages messages;

 private:
  std::vector<std::weak_ptr<Transfer>> inside_;
};

/// A message inside or across, whose waits drive all messages of its group.
class DrivingTransfer final : public Transfer {
 public:
  DrivingTransfer(std::shared_ptr<Progress> progress, std::shared_ptr<Transfer> transfer)
      : progress_(std::move(progress)), transfer_(std::move(transfer)) {}

  bool test() override {
    if (ended_) return true;
    progress_->turn();
    return ended_ = transfer_->test();
  }
  void wait() override {
    for (Idle idle; !test();) idle.pause();
  }

 private:
  std::shared_ptr<Progress> progress_;
  std::shared_ptr<Transfer> transfer_;
  bool ended_ = false;
};

class DeviceGroup final : public HybridGroup {
 public:
  DeviceGroup(std::shared_ptr<Communicator> world, std::unique_ptr<Communicator> inside,
              HybridConfig config)
      : HybridGroup(std::move(world), std::move(config), InsideWork::library),
        host_(make_host_memory_group(world_, without_model(config_))),
        inside_(std::move(inside)),
        copier_(*inside_->memory().copier()),
        stage_(copier_, config_.staging.timeout_s),
        scratch_(inside_->memory()) {
    config_.staging.chunk = chunk_bytes();
    progress_ = std::make_shared<Progress>(*world_, copier_, config_.staging);
  }

  std::string path() const override {
    if (is_one_cluster()) return inside_->path();
    return fmt::format("{} inside clusters, staged over {} between them", inside_->path(),
                       world_->path());
  }
  BufferMemory& memory() override { return inside_->memory(); }

  using Communicator::all_reduce;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    HETEROPERF_EXPECT(input.count == result.count && input.type == result.type);
    const WireFormat wire = bridge_wire(input.type, reduction);
    if (input.count == 0) return;
    const Choice chosen = choice(Bytes(input.bytes()), input.type, reduction);
    if (is_one_cluster() && chosen.algorithm == Algorithm::native) {
      return inside_->all_reduce(input, result, reduction);
    }
    if (!uses_bridges(chosen.algorithm) || needs_wide_sums(input.type, reduction) ||
        is_one_cluster()) {
      const MutableBuffer host = stage_.read(input);
      host_->all_reduce(host, host, reduction);
      return stage_.write(host, result);
    }
    const std::size_t segment = segment_length(input.type, wire);
    sum({plans_->all_reduce(chosen.algorithm, input.count, segment), input, result, reduction, wire,
         bridge_scheme(cluster_count(), wire)});
  }

  /// Inside the cluster as one group of the library's messages; then across, in steps that are
  /// permutations of the ranks, some of them at once. The earliest unfinished step can always end.
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override;
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    check_users_tag(tag, message_tags::first_reserved);
    if (is_one_cluster()) return inside_->start_send(values, to, tag);
    if (!plans_->is_inside(to)) return driving(start_across(values, to, tag));
    return driving_inside(inside_->start_send(values, plans_->inside_rank(to), tag));
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    check_users_tag(tag, message_tags::first_reserved);
    if (is_one_cluster()) return inside_->start_receive(values, from, tag);
    if (!plans_->is_inside(from)) return driving(start_across(values, from, tag));
    return driving_inside(inside_->start_receive(values, plans_->inside_rank(from), tag));
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto group = world_->split(colour, key);
    auto part = inside_->split(colour, group->rank().value());
    HybridConfig config = config_of(*group);
    return make_hybrid_communicator(std::move(group), std::move(config), std::move(part));
  }

  Choice choice(Bytes size, DataType type, Reduction reduction) const override {
    Choice chosen = host_->choice(size, type, reduction);
    if (!is_one_cluster() && uses_bridges(chosen.algorithm)) chosen.segment = chunk_bytes();
    return chosen;
  }
  BridgeTraffic traffic() const override {
    const BridgeTraffic host = host_->traffic();
    return {host.logical + traffic_.logical, host.wire + traffic_.wire};
  }

 private:
  Bytes chunk_bytes() const {
    return config_.segment > Bytes(0) ? config_.segment : config_.staging.chunk;
  }
  std::size_t chunk_elements(DataType type, WireFormat wire) const {
    return segment_elements(config_.staging.chunk.value(), type, wire);
  }

  DeviceClusters parts() {
    return {*world_, *inside_, copier_, config_.staging, *plans_, cluster_count(), traffic_};
  }

  Communicator& native() override { return *inside_; }
  std::size_t segment_length(DataType type, WireFormat wire) const override {
    return chunks_per_segment * chunk_elements(type, wire);
  }
  void sum(const BridgedSum& call) override {
    try {
      sum_over_devices(parts(), call, chunk_elements(call.input.type, call.wire), slots_, scratch_);
    } catch (...) {
      slots_.abandon();
      throw;
    }
  }
  void copy(const CutVector& cut, MutableBuffer result, std::size_t) override {
    copy_over_devices(parts(), cut, result, progress_->messages);
  }
  /// The library copies device to device within a rank by a message to itself.
  void copy_block(ConstBuffer from, MutableBuffer to) override {
    if (from.count == 0 || from.data == to.data) return;
    const Outgoing out{from, inside_->rank()};
    const Incoming in{to, inside_->rank()};
    inside_->exchange({&out, 1}, {&in, 1});
  }
  void reduce_wide(ConstBuffer input, MutableBuffer result, RankId root,
                   Reduction reduction) override {
    const MutableBuffer host = stage_.read(input);
    host_->reduce(host, rank() == root ? host : MutableBuffer(), root, reduction);
    if (rank() == root) stage_.write(host, result);
  }
  void reduce_scatter_wide(ConstBuffer all, MutableBuffer result, Counts counts,
                           Reduction reduction) override {
    const MutableBuffer host = stage_.read(all), block = stage_.room(result);
    host_->reduce_scatter(host, block, counts, reduction);
    stage_.write(block, result);
  }

  /// Messages across clusters go by way of the hosts; messages inside are the library's. Both are
  /// driven by the waits of this group.
  std::unique_ptr<Transfer> start_across(MutableBuffer values, RankId from, int tag) {
    return progress_->messages.start_receive(device_bytes(values), from, tag);
  }
  std::unique_ptr<Transfer> start_across(ConstBuffer values, RankId to, int tag) {
    traffic_.add(values.bytes(), values.bytes());
    return progress_->messages.start_send(device_bytes(values), to, tag);
  }
  std::unique_ptr<Transfer> driving(std::shared_ptr<Transfer> transfer) {
    return std::make_unique<DrivingTransfer>(progress_, std::move(transfer));
  }
  std::unique_ptr<Transfer> driving_inside(std::shared_ptr<Transfer> transfer) {
    progress_->add(transfer);
    return driving(std::move(transfer));
  }

  const std::unique_ptr<HybridCommunicator> host_;  ///< the same group over the hosts
  const std::unique_ptr<Communicator> inside_;
  DeviceCopier& copier_;
  std::shared_ptr<Progress> progress_;
  SlotMemory slots_;
  HostStage stage_;
  DeviceScratch scratch_;
};

void DeviceGroup::all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                             Counts from_each) {
  check_exchange(*this, input, to_each, result, from_each);
  HETEROPERF_EXPECT(to_each[self()] == from_each[self()]);
  if (is_one_cluster()) return inside_->all_to_all(input, to_each, result, from_each);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (const RankId member : plans_->members()) {
    const auto rank = member.index();
    const RankId peer = plans_->inside_rank(member);
    if (to_each[rank] > 0) sends.push_back({part_of(input, block_of(to_each, rank)), peer});
    if (from_each[rank] > 0) receives.push_back({part_of(result, block_of(from_each, rank)), peer});
  }
  inside_->exchange(sends, receives);
  TransferRing transfers(2 * exchange_steps);
  for (std::size_t step = 1; step < ranks(); ++step) {
    const std::size_t from = (self() + ranks() - step) % ranks(), to = (self() + step) % ranks();
    const RankId source(static_cast<std::int32_t>(from)), target(static_cast<std::int32_t>(to));
    const bool comes = !plans_->is_inside(source) && from_each[from] > 0;
    const bool goes = !plans_->is_inside(target) && to_each[to] > 0;
    transfers.push(comes ? start_across(part_of(result, block_of(from_each, from)), source,
                                        message_tags::all_to_all)
                         : nullptr);
    transfers.push(
        goes ? start_across(part_of(input, block_of(to_each, to)), target, message_tags::all_to_all)
             : nullptr);
  }
  transfers.wait_all();
}

}  // namespace

std::unique_ptr<HybridCommunicator> make_device_memory_group(std::shared_ptr<Communicator> world,
                                                             std::unique_ptr<Communicator> inside,
                                                             HybridConfig config) {
  return std::make_unique<DeviceGroup>(std::move(world), std::move(inside), std::move(config));
}

}  // namespace heteroperf
