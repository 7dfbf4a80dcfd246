#include "runners/comm/hybrid/device_group.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"
#include "runners/comm/hybrid/hybrid_setup.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {
namespace {

/// A call of the native library is worth so many chunks of a bridge.
constexpr std::size_t chunks_per_segment = 16;
/// Of all_to_all, that are under way at once.
constexpr std::size_t exchange_steps = 4;

/// The integers' averages are sums of 64 bits, which no native library makes of smaller ones.
bool needs_wide_sums(DataType type, Reduction reduction) {
  return partial_type(type, reduction) == DataType::i64 && type != DataType::i64;
}

DeviceBytes device_bytes_of(ConstBuffer values) {
  // The relay of a send only reads.
  return {static_cast<std::byte*>(const_cast<void*>(values.data)), values.bytes()};
}

/// Of the same group over the hosts; models do not know about copies.
HybridConfig host_config(const HybridConfig& config) {
  HybridConfig host;
  host.clusters = config.clusters;
  host.wire = config.wire;
  host.rules = config.rules;
  host.segment = config.segment;
  host.window = config.window;
  return host;
}

}  // namespace

/// All messages under way; whoever waits for one lets all of them go on.
class DeviceGroup::Progress {
 public:
  Progress(Communicator& world, DeviceCopier& copier, const RelayConfig& config)
      : messages(world, copier, config) {}

  void add(const std::shared_ptr<Transfer>& transfer) { inside_.push_back(transfer); }
  void turn() {
    messages.progress();
    std::erase_if(inside_, [](const std::weak_ptr<Transfer>& one) {
      const auto transfer = one.lock();
      return !transfer || transfer->test();
    });
  }

  RelayMessages messages;

 private:
  std::vector<std::weak_ptr<Transfer>> inside_;
};

class DeviceGroup::InsideOrAcross final : public Transfer {
 public:
  InsideOrAcross(std::shared_ptr<Progress> progress, std::shared_ptr<Transfer> transfer)
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

DeviceGroup::DeviceGroup(std::unique_ptr<Communicator> world, std::unique_ptr<Communicator> inside,
                         HybridConfig config)
    : world_(*world),
      inside_(std::move(inside)),
      config_(std::move(config)),
      stage_(*inside_->memory().copier(), config_.staging.timeout_s),
      scratch_(inside_->memory()) {
  host_ = make_hybrid_communicator(std::move(world), nullptr, host_config(config_));
  config_.staging.chunk = chunk_bytes();
  progress_ = std::make_shared<Progress>(world_, *inside_->memory().copier(), config_.staging);
  if (!is_one_cluster()) plans_.emplace(config_.clusters, rank(), InsideStage::collectives);
}

DeviceGroup::~DeviceGroup() = default;

std::string DeviceGroup::path() const {
  if (is_one_cluster()) return inside_->path();
  return fmt::format("{} inside clusters, staged over {} between them", inside_->path(),
                     world_.path());
}

Bytes DeviceGroup::chunk_bytes() const {
  if (config_.segment > Bytes(0)) return config_.segment;
  if (config_.staging.chunk > Bytes(0)) return config_.staging.chunk;
  return best_chunk(Bytes(std::uint64_t{1} << 26), config_.staging.costs);
}

std::size_t DeviceGroup::chunk_elements(DataType type, WireFormat wire) const {
  return segment_elements(config_.staging.chunk.value(), type, wire);
}

Choice DeviceGroup::choice(Bytes size, DataType type, Reduction reduction) const {
  Choice chosen = host_->choice(size, type, reduction);
  if (is_one_cluster() || !uses_bridges(chosen.algorithm)) return chosen;
  chosen.segment = chunk_bytes();
  return chosen;
}

BridgeTraffic DeviceGroup::traffic() const {
  const BridgeTraffic host = host_->traffic();
  return {host.logical + traffic_.logical, host.wire + traffic_.wire};
}

DevicePipeline DeviceGroup::pipeline(const LanePlan& plan,
                                     std::span<const VectorSegment> segments) {
  return {*inside_, plans_->routes(), plan, segments};
}

void DeviceGroup::sum(DevicePipeline pipeline, Reduction reduction, WireFormat wire,
                      BridgeScheme scheme) {
  const DataType type = pipeline.mine.type;
  const StagedBridgeConfig config{
      type, reduction, wire, scheme, chunk_elements(type, wire), config_.clusters.clusters.size()};
  try {
    StagedBridge bridge({world_, *memory().copier(), config_.staging, {}}, config, slots_,
                        traffic_);
    pipeline.sum(reduction, bridge, config.chunk, scratch_);
  } catch (...) {
    slots_.abandon();
    throw;
  }
}

void DeviceGroup::copy(DevicePipeline pipeline) {
  pipeline.copy(progress_->messages, config_.clusters.clusters.size(), traffic_);
}

void DeviceGroup::copy_own(ConstBuffer from, MutableBuffer to) {
  if (from.count == 0 || from.data == to.data) return;
  const Outgoing out{from, inside_->rank()};
  const Incoming in{to, inside_->rank()};
  inside_->exchange({&out, 1}, {&in, 1});
}

void DeviceGroup::all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) {
  HETEROPERF_EXPECT(mine.count == result.count && mine.type == result.type);
  const WireFormat wire = bridge_wire(config_, mine.type, reduction);
  if (mine.count == 0) return;
  const Choice chosen = choice(Bytes(mine.bytes()), mine.type, reduction);
  if (is_one_cluster() && chosen.algorithm == Algorithm::native) {
    return inside_->all_reduce(mine, result, reduction);
  }
  if (!uses_bridges(chosen.algorithm) || needs_wide_sums(mine.type, reduction) ||
      is_one_cluster()) {
    const MutableBuffer host = stage_.read(mine);
    host_->all_reduce(host, host, reduction);
    return stage_.write(host, result);
  }
  const LanePlan& plan = plans_->all_reduce(chosen.algorithm);
  const std::size_t segment = chunks_per_segment * chunk_elements(mine.type, wire);
  DevicePipeline call = pipeline(plan, plans_->cut(plan, mine.count, segment));
  call.mine = mine;
  call.result = result;
  sum(call, reduction, wire, bridge_scheme(config_.clusters.clusters.size(), wire));
}

void DeviceGroup::reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  HETEROPERF_EXPECT(rank() != root || (mine.count == result.count && mine.type == result.type));
  const WireFormat wire = bridge_wire(config_, mine.type, reduction);
  if (mine.count == 0) return;
  if (is_one_cluster()) return inside_->reduce(mine, result, root, reduction);
  const bool is_root = rank() == root;
  if (needs_wide_sums(mine.type, reduction)) {
    const MutableBuffer host = stage_.read(mine);
    host_->reduce(host, is_root ? host : MutableBuffer(), root, reduction);
    if (is_root) stage_.write(host, result);
    return;
  }
  const LanePlan& plan = plans_->reductions();
  const std::size_t segment = chunks_per_segment * chunk_elements(mine.type, wire);
  DevicePipeline call = pipeline(
      plan, plans_->cut(plan, mine.count, segment, static_cast<std::size_t>(root.value())));
  call.mine = mine;
  call.result = is_root ? result : MutableBuffer(nullptr, 0, mine.type);
  sum(call, reduction, wire, BridgeScheme::everybody);
}

void DeviceGroup::broadcast(MutableBuffer values, RankId root) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  if (values.count == 0) return;
  if (is_one_cluster()) return inside_->broadcast(values, root);
  const LanePlan& plan = plans_->broadcasts();
  const std::size_t segment = chunks_per_segment * chunk_elements(values.type, WireFormat::fp32);
  DevicePipeline call = pipeline(
      plan, plans_->cut(plan, values.count, segment, static_cast<std::size_t>(root.value())));
  call.result = values;
  copy(call);
}

void DeviceGroup::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  HETEROPERF_EXPECT(counts.size() == ranks() && mine.count == counts[self()]);
  HETEROPERF_EXPECT(mine.type == all.type && all.count == total_of(counts));
  if (is_one_cluster()) return inside_->all_gather(mine, all, counts);
  if (all.count == 0) return;
  copy_own(mine, part_of(all, block_of(counts, self())));
  const LanePlan& plan = plans_->broadcasts();
  const std::size_t segment = chunks_per_segment * chunk_elements(all.type, WireFormat::fp32);
  DevicePipeline call = pipeline(plan, plans_->cut_blocks(plan, counts, segment));
  call.result = all;
  copy(call);
}

void DeviceGroup::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                 Reduction reduction) {
  HETEROPERF_EXPECT(counts.size() == ranks() && mine.count == counts[self()]);
  HETEROPERF_EXPECT(mine.type == all.type && all.count == total_of(counts));
  const WireFormat wire = bridge_wire(config_, all.type, reduction);
  if (is_one_cluster()) return inside_->reduce_scatter(all, mine, counts, reduction);
  if (all.count == 0) return;
  if (needs_wide_sums(all.type, reduction)) {
    const MutableBuffer host = stage_.read(all), block = stage_.room(mine);
    host_->reduce_scatter(host, block, counts, reduction);
    return stage_.write(block, mine);
  }
  const LanePlan& plan = plans_->reductions();
  const std::size_t segment = chunks_per_segment * chunk_elements(all.type, wire);
  DevicePipeline call = pipeline(plan, plans_->cut_own_block(plan, counts, segment, self()));
  call.mine = all;
  call.result = mine;
  sum(call, reduction, wire, BridgeScheme::everybody);
}

/// Inside the cluster as one group of the library's messages; then what crosses, in steps that are
/// permutations of the ranks, some of them at once. The earliest step of all can always end.
void DeviceGroup::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                             Counts from_each) {
  HETEROPERF_EXPECT(to_each.size() == ranks() && from_each.size() == ranks());
  HETEROPERF_EXPECT(mine.type == theirs.type && mine.count == total_of(to_each) &&
                    theirs.count == total_of(from_each) && to_each[self()] == from_each[self()]);
  if (is_one_cluster()) return inside_->all_to_all(mine, to_each, theirs, from_each);
  const auto id = [](std::size_t rank) { return RankId(static_cast<std::int32_t>(rank)); };
  const Routes& routes = plans_->routes();
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (const RankId member : routes.members()) {
    const auto rank = static_cast<std::size_t>(member.value());
    const RankId peer = routes.inside_rank(member);
    if (to_each[rank] > 0) sends.push_back({part_of(mine, block_of(to_each, rank)), peer});
    if (from_each[rank] > 0) receives.push_back({part_of(theirs, block_of(from_each, rank)), peer});
  }
  inside_->exchange(sends, receives);
  TransferRing transfers(2 * exchange_steps);
  for (std::size_t step = 1; step < ranks(); ++step) {
    const std::size_t from = (self() + ranks() - step) % ranks(), to = (self() + step) % ranks();
    const bool comes = !routes.is_inside(id(from)) && from_each[from] > 0;
    const bool goes = !routes.is_inside(id(to)) && to_each[to] > 0;
    transfers.push(comes ? start_across(part_of(theirs, block_of(from_each, from)), id(from),
                                        message_tags::all_to_all)
                         : nullptr);
    transfers.push(
        goes ? start_across(part_of(mine, block_of(to_each, to)), id(to), message_tags::all_to_all)
             : nullptr);
  }
  transfers.wait_all();
}

std::unique_ptr<Transfer> DeviceGroup::start_across(MutableBuffer values, RankId from, int tag) {
  return progress_->messages.start_receive(device_bytes_of(values), from, tag);
}

std::unique_ptr<Transfer> DeviceGroup::start_across(ConstBuffer values, RankId to, int tag) {
  traffic_.logical += Bytes(values.bytes());
  traffic_.wire += Bytes(values.bytes());
  return progress_->messages.start_send(device_bytes_of(values), to, tag);
}

std::unique_ptr<Transfer> DeviceGroup::followed(std::unique_ptr<Transfer> transfer, bool inside) {
  const std::shared_ptr<Transfer> shared = std::move(transfer);
  if (inside) progress_->add(shared);
  return std::make_unique<InsideOrAcross>(progress_, shared);
}

std::unique_ptr<Transfer> DeviceGroup::start_send(ConstBuffer values, RankId to, int tag) {
  check_users_tag(tag, message_tags::first_reserved);
  if (is_one_cluster()) return inside_->start_send(values, to, tag);
  const Routes& routes = plans_->routes();
  const bool inside = routes.is_inside(to);
  return followed(inside ? inside_->start_send(values, routes.inside_rank(to), tag)
                         : start_across(values, to, tag),
                  inside);
}

std::unique_ptr<Transfer> DeviceGroup::start_receive(MutableBuffer values, RankId from, int tag) {
  check_users_tag(tag, message_tags::first_reserved);
  if (is_one_cluster()) return inside_->start_receive(values, from, tag);
  const Routes& routes = plans_->routes();
  const bool inside = routes.is_inside(from);
  return followed(inside ? inside_->start_receive(values, routes.inside_rank(from), tag)
                         : start_across(values, from, tag),
                  inside);
}

std::unique_ptr<Communicator> DeviceGroup::split(int colour, int key) {
  auto group = world_.split(colour, key);
  auto part = inside_->split(colour, group->rank().value());
  HybridConfig config = restrict_to(config_, *group, rank());
  return make_hybrid_communicator(std::move(group), std::move(part), std::move(config));
}

}  // namespace heteroperf
