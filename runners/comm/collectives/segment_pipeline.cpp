#include "runners/comm/collectives/segment_pipeline.hpp"

#include <algorithm>
#include <cstdint>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/operation_scope.hpp"

namespace heteroperf {
namespace {

template <class Measure>
std::size_t largest_of(std::span<const SegmentRole> roles, Measure measure) {
  std::size_t largest = 1;
  for (const SegmentRole& role : roles) largest = std::max<std::size_t>(largest, measure(role));
  return largest;
}

std::size_t largest_segment(std::span<const VectorSegment> segments) {
  std::size_t largest = 1;
  for (const VectorSegment& one : segments) largest = std::max(largest, one.count);
  return largest;
}

bool overlap(ConstBuffer a, ConstBuffer b) {
  const auto begin = [](ConstBuffer x) { return reinterpret_cast<std::uintptr_t>(x.data); };
  return begin(a) < begin(b) + b.bytes() && begin(b) < begin(a) + a.bytes();
}

/// One run of a pipeline.
class Pipeline {
 public:
  Pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic);
  void run();

 private:
  std::size_t count() const { return call_.segments.size(); }
  const VectorSegment& segment(std::size_t g) const { return call_.segments[g]; }
  const SegmentRole& role(std::size_t g) const { return call_.roles[segment(g).role]; }
  ConstBuffer mine(std::size_t g) const {
    return call_.mine.part(segment(g).begin, segment(g).count);
  }
  MutableBuffer result(std::size_t g) const {
    return call_.result.part(segment(g).result_begin, segment(g).count);
  }
  std::byte* child_slot(std::size_t ordinal, std::size_t child) const {
    return children_memory_ + (ordinal % window_ * children_ + child) * slot_bytes_;
  }

  void sum_up(std::size_t step);
  void expect_children(std::size_t end);
  void expect_bridge(std::size_t end);
  void sum_inside(std::size_t g, void* into);
  void sum_by_collective(std::size_t g);
  void sum_at_top(std::size_t g);
  void pass_up(std::size_t g);
  void combine(std::size_t g);
  void collect(std::size_t g);
  void expect_results(std::size_t step);
  void pass_down(std::size_t g);
  void send_result(std::size_t g, MutableBuffer values);

  const PipelineCall& call_;
  BridgeTraffic& traffic_;
  Reduction reduction_;  ///< without the division
  bool in_place_;
  std::size_t window_, combine_lag_, collect_lag_, down_lag_, result_lag_;
  std::size_t children_, slot_bytes_;
  std::byte* children_memory_;
  std::byte* staging_memory_;
  std::byte* final_memory_;
  TransferRing child_receives_, up_sends_, result_receives_, down_sends_, final_sends_;
  std::optional<SegmentBridge> bridge_;
  std::vector<const void*> sources_;
  // Next segment to look at, and how many of those before it were this rank's.
  std::size_t next_child_ = 0, next_bridge_ = 0, next_result_ = 0;
  std::size_t children_expected_ = 0, children_summed_ = 0, results_passed_ = 0;
  std::size_t parents_seen_ = 0;
};

Pipeline::Pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic)
    : call_(call),
      traffic_(traffic),
      reduction_(call.reduction.value_or(Reduction::sum)),
      in_place_(call.reduction && overlap(call.mine, call.result)),
      window_(call.window),
      combine_lag_(call.reduction && call.clusters > 1 ? call.window * call.lanes : 0),
      collect_lag_(call.scheme == BridgeScheme::scatter ? 2 * combine_lag_ : combine_lag_),
      down_lag_(call.reduction ? collect_lag_ + call.window : 0),
      result_lag_(down_lag_ / 2),
      children_(largest_of(call.roles, [](const SegmentRole& r) { return r.children.size(); })),
      child_receives_(window_ * children_),
      up_sends_(2 * window_),
      result_receives_(down_lag_ + window_ + 1),
      down_sends_(2 * window_ *
                  largest_of(call.roles, [](const SegmentRole& r) { return r.targets.size(); })),
      final_sends_(window_) {
  if (reduction_ == Reduction::average) reduction_ = Reduction::sum;
  const std::size_t largest = largest_segment(call.segments);
  const DataType type = call.reduction ? call.mine.type : call.result.type;
  slot_bytes_ = (largest * size_of(type) / cache_line_bytes + 1) * cache_line_bytes;
  children_memory_ = scratch.slot(scratch_slots::children, window_ * children_ * slot_bytes_);
  staging_memory_ = scratch.slot(scratch_slots::staging, window_ * slot_bytes_);
  final_memory_ = scratch.slot(scratch_slots::final_sums, window_ * slot_bytes_);
  const std::size_t tops =
      largest_of(call.roles, [](const SegmentRole& r) { return r.bridge.tops.size(); });
  if (tops > 1) {
    bridge_.emplace(
        call.group,
        BridgeConfig{type, *call.reduction, call.wire, call.scheme, largest, combine_lag_, tops},
        scratch, traffic);
  }
}

void Pipeline::run() {
  for (std::size_t step = 0; step < count() + down_lag_; ++step) {
    if (call_.reduction && step < count()) sum_up(step);
    expect_results(step);
    const auto stage = [&](std::size_t lag, void (Pipeline::*work)(std::size_t)) {
      if (step >= lag && step - lag < count()) (this->*work)(step - lag);
    };
    if (bridge_) stage(combine_lag_, &Pipeline::combine);
    if (bridge_) stage(collect_lag_, &Pipeline::collect);
    stage(down_lag_, &Pipeline::pass_down);
  }
  up_sends_.wait_all();
  if (bridge_) bridge_->finish();
  final_sends_.wait_all();
  down_sends_.wait_all();
}

void Pipeline::sum_up(std::size_t step) {
  expect_children(std::min(count(), step + window_));
  if (bridge_) expect_bridge(std::min(count(), step + combine_lag_ + 1));
  if (role(step).inside_up) return sum_by_collective(step);
  if (role(step).parent) return pass_up(step);
  sum_at_top(step);
}

void Pipeline::expect_children(std::size_t end) {
  for (; next_child_ < end; ++next_child_) {
    const SegmentRole& part = role(next_child_);
    if (part.children.empty()) continue;
    const std::size_t ordinal = children_expected_++;
    for (std::size_t child = 0; child < children_; ++child) {
      const MutableBuffer slot(child_slot(ordinal, child), segment(next_child_).count,
                               call_.mine.type);
      child_receives_.push(
          child < part.children.size()
              ? receive_some(call_.group, slot, part.children[child], message_tags::up)
              : nullptr);
    }
  }
}

void Pipeline::expect_bridge(std::size_t end) {
  for (; next_bridge_ < end; ++next_bridge_) {
    const BridgeRole& part = role(next_bridge_).bridge;
    if (part.active()) bridge_->expect(part, segment(next_bridge_).count);
  }
}

/// into = this rank's part and its children's, in this order.
void Pipeline::sum_inside(std::size_t g, void* into) {
  const ConstBuffer own = mine(g);
  const std::size_t children = role(g).children.size();
  if (children == 0) return convert(own, {into, own.count, own.type});
  const std::size_t ordinal = children_summed_++;
  sources_.assign(1, own.data);
  for (std::size_t child = 0; child < children; ++child) {
    child_receives_.wait(ordinal * children_ + child);
    sources_.push_back(child_slot(ordinal, child));
  }
  reduce_in_order(sources_, {&into, 1}, own.count, own.type, reduction_);
}

void Pipeline::pass_up(std::size_t g) {
  ConstBuffer sum = mine(g);
  if (!role(g).children.empty()) {
    void* const slot = staging_memory_ + up_sends_.pushed() % window_ * slot_bytes_;
    if (up_sends_.pushed() >= window_) up_sends_.wait(up_sends_.pushed() - window_);
    sum_inside(g, slot);
    sum.data = slot;
  }
  up_sends_.push(send_some(call_.group, sum, *role(g).parent, message_tags::up));
}

void Pipeline::sum_at_top(std::size_t g) {
  const SegmentRole& part = role(g);
  if (part.bridge.active()) {
    sum_inside(g, bridge_->place());
    return bridge_->contribute(part.bridge, segment(g).count);
  }
  const MutableBuffer done = result(g);
  void* const into = call_.mine.type == done.type ? done.data : final_memory_;
  sum_inside(g, into);
  finish({into, done.count, call_.mine.type}, done, *call_.reduction, call_.group.size());
  send_result(g, done);
}

void Pipeline::sum_by_collective(std::size_t g) {
  const SegmentRole& part = role(g);
  const bool top = *part.inside_up == call_.inside->rank();
  MutableBuffer into(nullptr, 0, call_.mine.type);
  if (top) {
    into = {part.bridge.active() ? bridge_->place() : result(g).data, segment(g).count,
            call_.mine.type};
  }
  call_.inside->reduce(mine(g), into, *part.inside_up, reduction_);
  if (!top) return;
  if (part.bridge.active()) return bridge_->contribute(part.bridge, segment(g).count);
  finish(into, result(g), *call_.reduction, call_.group.size());
}

void Pipeline::combine(std::size_t g) {
  const SegmentRole& part = role(g);
  if (!part.bridge.active()) return;
  MutableBuffer into;
  if (part.keeps == SegmentRole::Keeps::result) {
    into = result(g);
  } else {
    final_sends_.make_room();
    into = {final_memory_ + final_sends_.pushed() % window_ * slot_bytes_, segment(g).count,
            call_.mine.type};
  }
  if (!bridge_->combine(part.bridge, into)) return;
  if (part.keeps == SegmentRole::Keeps::nothing) {
    final_sends_.push(
        send_some(call_.group, ConstBuffer(into), part.targets.front(), message_tags::down));
  }
}

/// What combine() left to do for a whole result.
void Pipeline::collect(std::size_t g) {
  const SegmentRole& part = role(g);
  if (!part.bridge.active() || part.keeps == SegmentRole::Keeps::nothing) return;
  bridge_->collect(part.bridge);
  send_result(g, result(g));
}

/// A result may overwrite this rank's part: only after that is summed or sent.
void Pipeline::expect_results(std::size_t step) {
  const std::size_t begin = in_place_ ? result_lag_ : 0;
  const std::size_t ahead = call_.reduction ? 1 : window_;
  const std::size_t end = step < begin ? 0 : std::min(count(), step - begin + ahead);
  for (; next_result_ < end; ++next_result_) {
    const SegmentRole& part = role(next_result_);
    if (part.parent) {
      if (in_place_ && part.children.empty()) up_sends_.wait(parents_seen_);
      ++parents_seen_;
    }
    if (!part.source) continue;
    result_receives_.push(
        receive_some(call_.group, result(next_result_), *part.source, message_tags::down));
  }
}

void Pipeline::pass_down(std::size_t g) {
  const SegmentRole& part = role(g);
  if (part.source) result_receives_.wait(results_passed_++);
  const bool top_inside = part.inside_down && *part.inside_down == call_.inside->rank();
  if (part.inside_down && !top_inside) call_.inside->broadcast(result(g), *part.inside_down);
  // The top of a sum has sent its results as soon as it had them.
  if (part.source || !call_.reduction) send_result(g, result(g));
  if (top_inside) call_.inside->broadcast(result(g), *part.inside_down);
}

void Pipeline::send_result(std::size_t g, MutableBuffer values) {
  const SegmentRole& part = role(g);
  for (std::size_t k = 0; k < part.targets.size(); ++k) {
    down_sends_.push(
        send_some(call_.group, ConstBuffer(values), part.targets[k], message_tags::down));
    if (k >= part.crossing) continue;
    traffic_.logical += Bytes(values.bytes());
    traffic_.wire += Bytes(values.bytes());
  }
}

}  // namespace

void run_pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic) {
  HETEROPERF_EXPECT(call.window > 0 && call.lanes > 0);
  if (call.segments.empty()) return;
  const OperationScope operation(call.group);
  Pipeline(call, scratch, traffic).run();
}

TreePlace tree_place(std::span<const RankId> members, RankId self, RankId top, std::size_t arity) {
  std::vector<RankId> order{top};
  for (RankId member : members) {
    if (member != top) order.push_back(member);
  }
  const auto place =
      static_cast<std::size_t>(std::find(order.begin(), order.end(), self) - order.begin());
  HETEROPERF_EXPECT(place < order.size());
  TreePlace result;
  if (place > 0) result.parent = order[(place - 1) / arity];
  const std::size_t first = std::min(order.size(), arity * place + 1);
  const std::size_t last = std::min(order.size(), first + arity);
  result.children.assign(order.begin() + static_cast<std::ptrdiff_t>(first),
                         order.begin() + static_cast<std::ptrdiff_t>(last));
  return result;
}

}  // namespace heteroperf
