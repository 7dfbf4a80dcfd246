// A pipeline of segments: the machine below the tree collectives and the hybrid communicator.
//
// A segment passes through up to four *stages*. It is summed up the tree of each cluster; the tops
// send their contributions over the bridge and *combine* those that arrive; with the scheme
// `scatter` they then *collect* the parts that other tops have summed; the result goes down the
// trees. Every rank takes the stages in one fixed order: in step i it sums segment i, combines
// segment i - C, collects segment i - C', and passes down segment i - D. The distances C, C' and D
// (the *lags*) are chosen so that `window` segments are on every wire at once.
//
// Receives are posted ahead of their step. A rank waits only for what other ranks do in earlier
// steps, so no circle of ranks can wait for each other. Nothing is polled between the waits: sends
// and receives that were started make progress whenever the rank waits for any of them. Memory is
// some slots of one segment each, however long the vector is.
#include "runners/comm/collectives/segment_pipeline.hpp"

#include <algorithm>
#include <cstdint>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

template <class Range, class Measure>
std::size_t largest_of(const Range& range, Measure measure) {
  std::size_t largest = 1;
  for (const auto& entry : range) largest = std::max<std::size_t>(largest, measure(entry));
  return largest;
}

bool overlap(ConstBuffer a, ConstBuffer b) {
  const auto begin = [](ConstBuffer x) { return reinterpret_cast<std::uintptr_t>(x.data); };
  return begin(a) < begin(b) + b.bytes() && begin(b) < begin(a) + a.bytes();
}

/// One run of a pipeline on one rank. `g` numbers segments; an *ordinal* numbers those segments in
/// which this rank has the part in question.
class Pipeline {
 public:
  Pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic)
      : call_(call),
        traffic_(traffic),
        reduction_(undivided(call.reduction.value_or(Reduction::sum))),
        in_place_(call.reduction && overlap(call.input, call.result)),
        window_(call.window),
        combine_lag_(call.reduction && call.clusters > 1 ? call.window * call.lanes : 0),
        collect_lag_(call.scheme == BridgeScheme::scatter ? 2 * combine_lag_ : combine_lag_),
        down_lag_(call.reduction ? collect_lag_ + call.window : 0),
        children_(largest_of(call.roles, [](const SegmentRole& r) { return r.children.size(); })),
        child_receives_(window_ * children_),
        up_sends_(2 * window_),
        result_receives_(down_lag_ + window_ + 1),
        down_sends_(2 * window_ *
                    largest_of(call.roles, [](const SegmentRole& r) { return r.targets.size(); })),
        final_sends_(window_) {
    const std::size_t largest =
        largest_of(call.segments, [](const VectorSegment& s) { return s.count; });
    const DataType type = call.reduction ? call.input.type : call.result.type;
    slot_bytes_ = (largest * size_of(type) / cache_line_bytes + 1) * cache_line_bytes;
    children_memory_ = scratch.slot(scratch_slots::children, window_ * children_ * slot_bytes_);
    staging_memory_ = scratch.slot(scratch_slots::staging, window_ * slot_bytes_);
    final_memory_ = scratch.slot(scratch_slots::final_sums, window_ * slot_bytes_);
    const std::size_t tops =
        largest_of(call.roles, [](const SegmentRole& r) { return r.bridge.tops.size(); });
    if (tops < 2) return;
    bridge_.emplace(
        call.group,
        BridgeConfig{type, *call.reduction, call.wire, call.scheme, largest, tops, combine_lag_},
        scratch, traffic);
  }

  void run() {
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

 private:
  std::size_t count() const { return call_.segments.size(); }
  const VectorSegment& segment(std::size_t g) const { return call_.segments[g]; }
  const SegmentRole& role(std::size_t g) const { return call_.roles[segment(g).role]; }
  ConstBuffer input(std::size_t g) const {
    return call_.input.part(segment(g).begin, segment(g).count);
  }
  MutableBuffer result(std::size_t g) const {
    return call_.result.part(segment(g).result_begin, segment(g).count);
  }
  std::byte* child_slot(std::size_t ordinal, std::size_t child) const {
    return children_memory_ + (ordinal % window_ * children_ + child) * slot_bytes_;
  }

  void sum_up(std::size_t step) {
    expect_children(std::min(count(), step + window_));
    if (bridge_) expect_bridge(std::min(count(), step + combine_lag_ + 1));
    if (role(step).parent) return pass_up(step);
    sum_at_top(step);
  }

  void expect_children(std::size_t end) {
    for (; next_child_ < end; ++next_child_) {
      const SegmentRole& part = role(next_child_);
      if (part.children.empty()) continue;
      const std::size_t ordinal = children_expected_++;
      for (std::size_t child = 0; child < children_; ++child) {
        const MutableBuffer slot(child_slot(ordinal, child), segment(next_child_).count,
                                 call_.input.type);
        child_receives_.push(
            child < part.children.size()
                ? receive_some(call_.group, slot, part.children[child], message_tags::up)
                : nullptr);
      }
    }
  }

  void expect_bridge(std::size_t end) {
    for (; next_bridge_ < end; ++next_bridge_) {
      const BridgeRole& part = role(next_bridge_).bridge;
      if (part.active()) bridge_->expect(part, segment(next_bridge_).count);
    }
  }

  /// into = the values of this rank and of its children, added in this order.
  void sum_inside(std::size_t g, void* into) {
    const ConstBuffer local = input(g);
    const std::size_t children = role(g).children.size();
    if (children == 0) return convert(local, {into, local.count, local.type});
    const std::size_t ordinal = children_summed_++;
    sources_.assign(1, local.data);
    for (std::size_t child = 0; child < children; ++child) {
      child_receives_.wait(ordinal * children_ + child);
      sources_.push_back(child_slot(ordinal, child));
    }
    reduce_in_order(sources_, {&into, 1}, local.count, local.type, reduction_);
  }

  void pass_up(std::size_t g) {
    ConstBuffer sum = input(g);
    if (!role(g).children.empty()) {
      void* const slot = staging_memory_ + up_sends_.pushed() % window_ * slot_bytes_;
      if (up_sends_.pushed() >= window_) up_sends_.wait(up_sends_.pushed() - window_);
      sum_inside(g, slot);
      sum.data = slot;
    }
    up_sends_.push(send_some(call_.group, sum, *role(g).parent, message_tags::up));
  }

  void sum_at_top(std::size_t g) {
    const SegmentRole& part = role(g);
    if (part.bridge.active()) {
      sum_inside(g, bridge_->place());
      return bridge_->contribute(part.bridge, segment(g).count);
    }
    const MutableBuffer done = result(g);
    void* const into = call_.input.type == done.type ? done.data : final_memory_;
    sum_inside(g, into);
    finish({into, done.count, call_.input.type}, done, *call_.reduction, call_.group.size());
    send_result(g, done);
  }

  void combine(std::size_t g) {
    const SegmentRole& part = role(g);
    if (!part.bridge.active()) return;
    MutableBuffer into;
    if (part.keeps_result) {
      into = result(g);
    } else {
      final_sends_.make_room();
      into = {final_memory_ + final_sends_.pushed() % window_ * slot_bytes_, segment(g).count,
              call_.input.type};
    }
    if (!bridge_->combine(part.bridge, into) || part.keeps_result) return;
    final_sends_.push(
        send_some(call_.group, ConstBuffer(into), part.targets.front(), message_tags::down));
  }

  void collect(std::size_t g) {
    const SegmentRole& part = role(g);
    if (!part.bridge.active() || !part.keeps_result) return;
    bridge_->collect(part.bridge);
    send_result(g, result(g));
  }

  /// Posts the receives of results. A result may overwrite this rank's input, so in place they come
  /// only after the input is summed or sent.
  void expect_results(std::size_t step) {
    const std::size_t begin = in_place_ ? down_lag_ / 2 : 0;
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

  void pass_down(std::size_t g) {
    const SegmentRole& part = role(g);
    if (part.source) result_receives_.wait(results_passed_++);
    // The top of a sum has sent its results as soon as it had them.
    if (part.source || !call_.reduction) send_result(g, result(g));
  }

  void send_result(std::size_t g, MutableBuffer values) {
    const SegmentRole& part = role(g);
    for (std::size_t k = 0; k < part.targets.size(); ++k) {
      down_sends_.push(
          send_some(call_.group, ConstBuffer(values), part.targets[k], message_tags::down));
      if (k < part.crossing) traffic_.add(values.bytes(), values.bytes());
    }
  }

  const PipelineCall& call_;
  BridgeTraffic& traffic_;
  Reduction reduction_;
  bool in_place_;
  std::size_t window_, combine_lag_, collect_lag_, down_lag_;
  std::size_t children_, slot_bytes_;  ///< the most children of any role; bytes of a slot
  std::byte* children_memory_;
  std::byte* staging_memory_;
  std::byte* final_memory_;
  TransferRing child_receives_, up_sends_, result_receives_, down_sends_, final_sends_;
  std::optional<SegmentBridge> bridge_;
  std::vector<const void*> sources_;
  // The next segment to look at, and the ordinals so far.
  std::size_t next_child_ = 0, next_bridge_ = 0, next_result_ = 0;
  std::size_t children_expected_ = 0, children_summed_ = 0, results_passed_ = 0;
  std::size_t parents_seen_ = 0;
};

}  // namespace

void run_pipeline(const PipelineCall& call, Scratch& scratch, BridgeTraffic& traffic) {
  HETEROPERF_EXPECT(call.window > 0 && call.lanes > 0);
  if (call.segments.empty()) return;
  const OperationScope operation(call.group);
  Pipeline(call, scratch, traffic).run();
}

TreePlace tree_place(std::span<const RankId> members, RankId self, RankId top, std::size_t arity) {
  std::vector<RankId> order{top};
  std::ranges::remove_copy(members, std::back_inserter(order), top);
  const auto place = static_cast<std::size_t>(std::ranges::find(order, self) - order.begin());
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
