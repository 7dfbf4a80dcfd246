// Measures collectives at every size on one communicator. Two communicators take part. The
// *harness* is the world as it was joined; barriers, gathers of results and votes go over it. The
// *group* under test is built from it in layers: paced links where a cluster is emulated, checksums
// and agreement checks where they are wanted, and on top the hybrid that splits ranks into clusters
// joined by bridges.
//
// Each size is timed out of place and, where the collective has that form, in place. A deadline
// guards every call: it expects a time, from the cost model or from a first call, and names the
// operation that hangs. Checks use fresh inputs with values whose sums are exact, so every element
// has one right answer; a compressed wire has a bound in its place. Traffic between clusters is
// counted in one call of its own, outside the timing.
#include "suite/probe/comm_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/id.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/checked/checked_communicator.hpp"
#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/discovery/cost_probe.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "suite/program/signals.hpp"

namespace heteroperf {
namespace {

constexpr double giga = 1e9;
/// The division of an average rounds once more than its sum.
constexpr int average_ulps = 2;

/// Sums over all ranks; exact up to 2^63.
std::uint64_t total(Communicator& group, std::uint64_t count) {
  auto value = static_cast<std::int64_t>(count);
  group.all_reduce(std::span(&value, 1));
  return static_cast<std::uint64_t>(value);
}

/// The time of an operation that nobody can predict: a twentieth of what 100 Mbit/s would take,
/// which the deadline multiplies again.
Seconds slowest(Bytes bytes) { return Seconds(static_cast<double>(bytes.value()) / 12.5e6 / 20); }

bool is_on_devices(const CommRequest& request) {
  return request.session.transport == Transport::nccl;
}

/// A collective has one where its output can lie in its input's memory.
bool has_in_place_form(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::all_gather || collective == Collective::reduce;
}

}  // namespace

CommSession::CommSession(const CommRequest& request, World& world)
    : request_(request),
      world_(world),
      deadline_(*world.control, world.communicator->rank(), world.communicator->size(),
                [] { return stop_signal() != nullptr; }) {
  check_fit();
  descriptors_ = gather_descriptors(harness(), describe_rank(harness()));
  if (is_on_devices(request)) {
    // The driver tells where a device's memory ends.
    build_on_devices();
  } else {
    check_memory();
    build_hybrid();
  }
}

/// Everything about the request that depends on the number of ranks.
void CommSession::check_fit() const {
  const int ranks = harness().size();
  ProblemList problems;
  if (request_.shape.root.value() >= ranks) {
    problems.add(fmt::format("--root {} is no rank", request_.shape.root.value()),
                 fmt::format("there are {}", ranks));
  }
  if (request_.shape.collective == Collective::send_receive && ranks < 2) {
    problems.add("sendrecv needs two ranks", "", "Give --ranks 2 or more.");
  }
  // The factor is 0 where nothing has to travel.
  if (request_.least_busbw && bus_factor(request_.shape.collective, ranks) == 0) {
    problems.add("--min-bw needs two ranks", "the busbw of one rank is 0",
                 "Give --ranks 2 or more.");
  }
  if (!request_.labels.empty() && request_.labels.size() != static_cast<std::size_t>(ranks)) {
    problems.add(fmt::format("--clusters gives {} labels", request_.labels.size()),
                 fmt::format("there are {} ranks", ranks), "Give one label per rank.");
  }
  if (request_.pace && request_.pace->ranks.size() != static_cast<std::size_t>(ranks)) {
    problems.add(fmt::format("the --pace file has {} ranks", request_.pace->ranks.size()),
                 fmt::format("there are {} here", ranks), "Give --ranks as many as the file has.");
  }
  problems.throw_if_any();
}

HybridConfig CommSession::hybrid_config() const {
  HybridConfig config;
  config.clusters = clusters_;
  config.wire = request_.wire;
  config.rules = request_.rules;
  config.staging.timeout_s = request_.session.comm.timeout_s;
  return config;
}

/// GPUs join by NCCL inside a cluster; between clusters the hybrid carries their data through the
/// hosts.
void CommSession::build_on_devices() {
  const auto library = open_nccl_device(world_);
  const RankDescriptor host = descriptors_[harness().rank().index()];
  DeviceWorld devices = make_device_world(world_, library, host, request_.labels);
  descriptors_ = devices.descriptors;
  clusters_ = devices.clusters;
  group_ = make_device_group(world_, devices, hybrid_config());
  hybrid_ = dynamic_cast<HybridCommunicator*>(group_.get());
}

void CommSession::build_hybrid() {
  auto base = harness().split(0, harness().rank().value());
  // Pacing lies at the bottom, so that checks travel over modelled links too.
  if (request_.pace) {
    base = make_paced_communicator(std::move(base), *request_.pace, world_.control);
    paced_ = base.get();
  }
  if (request_.checksum) base = make_checked_communicator(std::move(base), Checks::payload);
  if (!request_.labels.empty()) {
    clusters_ = clusters_by_label(request_.labels, harness().size());
  } else if (request_.pace) {
    clusters_ = request_.pace->rank_clusters();
  } else {
    // Over the layers below, so that paced links form the clusters that they model.
    clusters_ = discover_clusters(*base, descriptors_);
  }
  auto inside =
      base->split(static_cast<int>(clusters_.cluster_of(base->rank())), base->rank().value());
  HybridConfig config = hybrid_config();
  if (request_.shape.collective == Collective::all_reduce && harness().size() > 1) {
    // Only an all-reduce chooses between algorithms, and only it needs the model.
    model_ = measure_cost_model(*base, *inside, clusters_, request_.sizes.back());
    config.model = model_;
  }
  auto hybrid = make_hybrid_communicator(std::move(base), std::move(config), std::move(inside));
  hybrid_ = hybrid.get();
  group_ = std::move(hybrid);
}

/// Refuses buffers that a host does not have. All ranks find the same, because the tightest host
/// decides.
void CommSession::check_memory() const {
  CaseShape shape = request_.shape;
  shape.bytes = request_.sizes.back();
  const std::string& host = descriptors_[harness().rank().index()].host;
  const auto here = static_cast<std::uint64_t>(
      std::count_if(descriptors_.begin(), descriptors_.end(),
                    [&](const RankDescriptor& rank) { return rank.host == host; }));
  // All ranks of a host need their buffers at the same time.
  const std::uint64_t need = memory_of(shape, harness().size()).value() * here;
  const Machine machine = probe_machine();
  const Bytes available = machine.memory_available.value.value_or(Bytes(~std::uint64_t{0}));
  std::int64_t missing = need > available.value() ? 1 : 0;
  harness().all_reduce(std::span(&missing, 1), Reduction::max);
  if (missing == 0) return;
  throw UserError(
      fmt::format("-e {} needs {} of buffers on a host", byte_size_text(request_.sizes.back()),
                  rounded_byte_size(Bytes(need))),
      rounded_byte_size(available) + " are available here",
      "Give a smaller -e or fewer ranks per host.");
}

CommReport CommSession::heading() const {
  CommReport report;
  report.request = request_;
  report.ranks = harness().size();
  const bool on_devices = is_on_devices(request_);
  report.transport = on_devices ? to_string(Transport::nccl) : harness().transport();
  report.path = on_devices ? group_->path() : harness().path();
  report.clusters = clusters_;
  for (const RankDescriptor& rank : descriptors_) {
    report.hosts.push_back(rank.host);
    if (!on_devices) continue;
    report.devices.push_back(
        fmt::format("{} {}, {} ({})", rank.vendor, rank.model, rank.library, rank.library_version));
  }
  return report;
}

CommResult CommSession::measure(Bytes size) {
  CaseShape shape = request_.shape;
  shape.bytes = size;
  CommResult result;
  result.elements = elements_of(shape, harness().size());
  result.bytes = Bytes(result.elements * size_of(shape.type));
  // Only an all-reduce has algorithms to choose from.
  result.choice.reason = "the transport's own";
  if (hybrid_ != nullptr && shape.collective == Collective::all_reduce) {
    result.choice = hybrid_->choice(result.bytes, shape.type, shape.reduction);
  }
  result.wire = wire_of(shape, result.choice);
  result.timing = time(shape, result);
  if (request_.check && result.wire != WireFormat::fp32) {
    result.largest_error = deviation_.largest;
    // The mean is over the elements of all ranks.
    const auto elements = static_cast<double>(result.elements) * harness().size();
    result.rms_error = std::sqrt(deviation_.sum_of_squares / std::max(elements, 1.0));
  }
  if (has_in_place_form(shape.collective)) {
    shape.in_place = true;
    result.in_place = time(shape, result);
  }
  if (clusters_.clusters.size() > 1) {
    CollectiveCase test(*group_, shape);
    // Fresh values in every case, so that a result of the last one cannot pass for this one's.
    test.fill(++seed_);
    measure_traffic(test, result);
  }
  return result;
}

WireFormat CommSession::wire_of(const CaseShape& shape, const Choice& choice) const {
  if (clusters_.clusters.size() < 2) return WireFormat::fp32;
  return shape.collective == Collective::all_reduce ? choice.wire : request_.wire;
}

/// Times one case. A call takes what its slowest rank takes.
CommTiming CommSession::time(const CaseShape& shape, const CommResult& result) {
  CollectiveCase test(*group_, shape);
  CommTiming timing;
  const auto& predicted = result.choice.predicted;
  const std::string operation =
      fmt::format("{} of {} bytes", to_string(shape.collective), test.bytes().value());
  const auto call = [&] {
    deadline_.begin();
    test.run();
  };
  test.fill(++seed_);
  deadline_.expect(operation, strict_limit(predicted.value_or(slowest(test.bytes()))));
  // Without a prediction a first call tells what to expect of the others.
  const CallTime first = time_calls(harness(), call, {1, 1, Seconds(0)});
  deadline_.expect(operation, strict_limit(predicted.value_or(first.median)));
  timing.time = time_calls(harness(), call, {request_.warmup, request_.iterations, Seconds(0.5)});
  deadline_.end();
  timing.algbw = static_cast<double>(test.bytes().value()) / timing.time.median.value() / giga;
  // The factor of nccl-tests, which makes collectives comparable.
  timing.busbw = timing.algbw * bus_factor(shape.collective, harness().size());
  if (request_.check) timing.wrong = wrong_elements(test, tolerance(result.wire));
  return timing;
}

std::uint64_t CommSession::wrong_elements(CollectiveCase& test, const Tolerance& tolerance) {
  test.fill(++seed_);
  harness().barrier();
  deadline_.begin();
  test.run();
  deadline_.end();
  deviation_ = test.check(tolerance);
  double largest = deviation_.largest, squares = deviation_.sum_of_squares;
  harness().all_reduce(std::span(&largest, 1), Reduction::max);
  harness().all_reduce(std::span(&squares, 1));
  deviation_ = {total(harness(), deviation_.wrong), largest, squares};
  return deviation_.wrong;
}

/// Sums are exact; averages round once; a compressed wire rounds every cluster's contribution and
/// the sum that is handed on.
Tolerance CommSession::tolerance(WireFormat wire) const {
  Tolerance tolerance;
  const bool average = request_.shape.reduction == Reduction::average;
  if (average) tolerance.ulps = average_ulps;
  if (wire == WireFormat::fp32) return tolerance;
  const ExactValues values{request_.shape.type, harness().size(), 1};
  const double sum = values.largest() * (average ? 1 : harness().size());
  const double step = wire == WireFormat::bf16 ? 0x1.0p-8 : 1.0 / 254;
  tolerance.absolute = sum * step;
  return tolerance;
}

void CommSession::measure_traffic(CollectiveCase& test, CommResult& result) {
  const BridgeTraffic before = hybrid_->traffic();
  deadline_.begin();
  test.run();
  deadline_.end();
  const BridgeTraffic after = hybrid_->traffic();
  std::vector<std::int64_t> sent(harness().size());
  const auto sent_here = static_cast<std::int64_t>(after.wire.value() - before.wire.value());
  harness().all_gather(std::span(&sent_here, 1), std::span(sent));
  BridgeTraffic traffic;
  traffic.logical = Bytes(total(harness(), after.logical.value() - before.logical.value()));
  double busiest = 0;
  for (const RankCluster& cluster : clusters_.clusters) {
    std::uint64_t bytes = 0;
    for (const RankId rank : cluster.ranks) {
      bytes += static_cast<std::uint64_t>(sent[rank.index()]);
    }
    traffic.wire += Bytes(bytes);
    // Without a measured rate the bytes are told, not the utilization.
    if (!model_ || model_->bridge_rate <= BytesPerSecond(0)) continue;
    const double rate = model_->bridge_rate.value() * static_cast<double>(cluster.bridges.size());
    busiest = std::max(busiest, static_cast<double>(bytes) / rate);
  }
  // The transport's own collectives do not tell what they send.
  if (traffic.logical == Bytes(0)) return;
  result.traffic = traffic;
  if (busiest > 0) result.link_utilization = busiest / result.timing.time.median.value();
}

std::optional<PaceReport> CommSession::pace() const {
  if (paced_ == nullptr) return std::nullopt;
  PaceReport all = pace_report(*paced_).value();
  all.waits = total(harness(), all.waits);
  all.late_waits = total(harness(), all.late_waits);
  double lag_s = all.greatest_lag.value();
  harness().all_reduce(std::span(&lag_s, 1), Reduction::max);
  all.greatest_lag = Seconds(lag_s);
  // True for all where it is true for one.
  all.cards_divided = total(harness(), all.cards_divided ? 1 : 0) > 0;
  return all;
}

}  // namespace heteroperf
