// Pipelines pool after pool, by beam search.
//
// A *node* is a partial pipeline: the layers before `first` are open, the pools of the order before
// `at` are used up, and `left` devices of the pool at hand are free. Each round adds one stage in
// front of every node of the beam and keeps the twelve best. The first round that covers all layers
// ends the search, so the pipeline has as few stages as the beam finds. Layers are covered from the
// last to the first, since the number of stages that follow decides how many micro-batches a stage
// keeps.
//
// A node's *worth* is the work that its free devices could do within the period if nothing were
// lost, over the work that is open. Below 1 it cannot be finished and is dropped. Stages therefore
// differ in their devices: a stage takes just as many replicas as a micro-batch needs, and its last
// samples may be taken by the next pool, which a filling by equal shares would never find.
#include "runners/plan/search/pipeline_beam.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t beam_width = 12;
constexpr int most_stages = 128;
/// Into as many equal stages what is left of a pool may be thought to go.
constexpr int most_shares = 8;
/// tighten() ends when the periods on both sides are so close.
constexpr double tight = 1.002;

/// One fill of a pipeline: all of it shares the order of pools, the period and the rules.
class BeamFill {
 public:
  BeamFill(const StageFiller& filler, const std::vector<int>& order, double period_s,
           const FillRules& rules, std::uint64_t& tried)
      : filler_(filler),
        problem_(filler.scorer().problem()),
        sums_(filler.scorer().sums()),
        order_(order),
        period_s_(period_s),
        rules_(rules),
        tried_(tried) {}

  std::optional<PipelineDraft> run() {
    nodes_.assign(1, Node());
    nodes_[0].first = problem_.layers;
    nodes_[0].left = problem_.pools[order_.front()].devices;
    if (worth(nodes_[0]) < 1 - 1e-9) return std::nullopt;
    std::vector<int> beam{0};
    for (; !beam.empty() && in_flight_ <= most_stages; ++in_flight_) {
      next_.clear();
      for (const int parent : beam) extend(parent);
      // Ties go by the rest of the state and then by number, so that the search is deterministic.
      const auto better = [&](int a, int b) {
        const Node &x = nodes_[a], &y = nodes_[b];
        return std::tuple(-x.worth, x.first, x.at, x.left, a) <
               std::tuple(-y.worth, y.first, y.at, y.left, b);
      };
      std::ranges::sort(next_, better);
      if (!next_.empty() && nodes_[next_[0]].first == 0) return draft(next_[0]);
      beam.clear();
      for (const int candidate : next_) {
        const Node& x = nodes_[candidate];
        // Nodes of the same state have the same worth, so they are neighbours in the order.
        const bool known = !beam.empty() && nodes_[beam.back()].first == x.first &&
                           nodes_[beam.back()].at == x.at && nodes_[beam.back()].left == x.left;
        if (!known) beam.push_back(candidate);
        if (beam.size() == beam_width) break;
      }
    }
    return std::nullopt;
  }

 private:
  struct Node {
    int parent = -1;
    int first = 0;     ///< layers before it are open
    int at = 0;        ///< pools of the order before it are used up
    int left = 0;      ///< devices of the pool at hand
    double worth = 0;  ///< rate of the free devices over the open work
    DraftStage stage = {};
  };
  struct Reach {
    int first = 0;
    Recomputation recomputation = Recomputation::none;
  };

  bool in_time(const ReplicaGroup& group, LayerSums::Range range,
               Recomputation recomputation) const {
    return sums_.work(group, range, recomputation).total() <= period_s_ * sum_slack;
  }

  bool has_memory(const ReplicaGroup& group, LayerSums::Range range,
                  Recomputation recomputation) const {
    const double limit = problem_.pools[group.pool].memory_bytes;
    if (limit <= 0) return true;
    LayerSums::Holding holding = rules_.holding(recomputation, in_flight_);
    if (rules_.zero_stage == 1) holding.state_replicas = group.replicas;
    return sums_.memory(group.degree, group.samples, range, holding) <= limit;
  }

  /// The longest range before `end`; an empty one where not even a layer goes.
  Reach reach(const ReplicaGroup& group, int end) const {
    Reach best{end, Recomputation::none};
    // The first layer from which on a range is good, of those from `low` on.
    const auto first_good = [end](int low, const auto& good) {
      int fails = low - 1, best_first = end;
      while (best_first - fails > 1) {
        const int first = fails + (best_first - fails) / 2;
        (good(first) ? best_first : fails) = first;
      }
      return best_first;
    };
    // More recomputation keeps less and takes longer: a later kind is of use only where it reaches
    // further.
    for (const Recomputation r : recomputations) {
      const int by_time = first_good(0, [&](int first) { return in_time(group, {first, end}, r); });
      // Recomputing takes longer.
      if (by_time >= best.first) break;
      const bool all = has_memory(group, {by_time, end}, r);
      const int good = all ? by_time : first_good(by_time + 1, [&](int first) {
        return has_memory(group, {first, end}, r);
      });
      if (good < best.first) best = {good, r};
      if (all) break;
    }
    return best;
  }

  std::int64_t most_samples(ReplicaGroup group, LayerSums::Range range,
                            Recomputation recomputation) const {
    std::int64_t good = 0, fails = std::min(problem_.most_samples, rules_.samples) + 1;
    while (fails - good > 1) {
      group.samples = good + (fails - good) / 2;
      const bool fits = sums_.known(group.pool, group.degree, group.samples) &&
                        in_time(group, range, recomputation) &&
                        has_memory(group, range, recomputation);
      (fits ? good : fails) = group.samples;
    }
    return good;
  }

  /// The worth is above 1 where the free devices could do the open layers if nothing were lost.
  double worth(const Node& node) const {
    if (node.first == 0) return infinite;
    double samples = 0;
    for (std::size_t i = node.at; i < order_.size(); ++i) {
      const std::size_t pool = order_[i];
      const double devices =
          i == static_cast<std::size_t>(node.at) ? node.left : problem_.pools[pool].devices;
      const double time = filler_.device_seconds()[pool][node.first];
      samples += devices * period_s_ / std::max(time, 1e-300);
    }
    return samples / static_cast<double>(rules_.samples);
  }

  void push(Node&& node) {
    node.worth = worth(node);
    if (node.worth < 1 - 1e-9) return;
    next_.push_back(static_cast<int>(nodes_.size()));
    nodes_.push_back(std::move(node));
  }

  /// Samples that the pool at hand has no devices for go to the next one, and the one after it.
  bool add_others(Node& node, std::int64_t open) const {
    const LayerSums::Range range{node.stage.first, node.stage.end};
    while (open > 0) {
      if (++node.at >= static_cast<int>(order_.size())) return false;
      const int pool = order_[node.at];
      node.left = problem_.pools[pool].devices;
      ReplicaGroup best{pool, 0, 0, 0};
      for (std::size_t d = 0; d < problem_.degrees.size(); ++d) {
        const int degree = problem_.degrees[d];
        if (degree > problem_.pools[pool].devices_per_node || degree > node.left) break;
        ReplicaGroup group{pool, static_cast<int>(d), problem_.groups_of(pool, node.left, degree),
                           1};
        group.samples = most_samples(group, range, node.stage.recomputation);
        if (group.samples * best.replicas * problem_.degrees[best.degree] <=
            best.samples * best.replicas * degree) {
          if (best.samples > 0) continue;
        }
        best = group;
      }
      if (best.samples == 0) return false;
      const int degree = problem_.degrees[best.degree];
      // No more replicas than the open samples need.
      best.replicas = static_cast<int>(
          std::min<std::int64_t>(best.replicas, (open + best.samples - 1) / best.samples));
      open -= best.replicas * best.samples;
      node.left -= best.replicas * degree;
      node.stage.groups.push_back(best);
    }
    return true;
  }

  void add(int parent, const ReplicaGroup& group) {
    ++tried_;
    const Node& before = nodes_[parent];
    const Reach there = reach(group, before.first);
    if (there.first == before.first) return;
    Node node{.parent = parent,
              .first = there.first,
              .at = before.at,
              .left = before.left - group.replicas * problem_.degrees[group.degree]};
    node.stage = {.first = there.first,
                  .end = before.first,
                  .recomputation = there.recomputation,
                  .warm_up = in_flight_ - 1};
    if (group.replicas > 0) node.stage.groups.push_back(group);
    // The pool may not have taken the whole micro-batch.
    if (!add_others(node, rules_.samples - group.replicas * group.samples)) return;
    push(std::move(node));
  }

  /// All free devices of all pools in the first stage.
  void finish_with_all(int parent) {
    const Node& before = nodes_[parent];
    DeviceCounts devices(problem_.pools.size(), 0);
    for (std::size_t i = before.at; i < order_.size(); ++i) {
      const std::size_t pool = order_[i];
      devices[pool] =
          i == static_cast<std::size_t>(before.at) ? before.left : problem_.pools[pool].devices;
    }
    const auto stage =
        filler_.fill_range(devices, {0, before.first}, in_flight_, period_s_, rules_);
    if (!stage) return;
    push({.parent = parent, .at = static_cast<int>(order_.size()), .stage = *stage});
  }

  /// Few samples to a replica, or what makes the pool's devices come out even.
  void extend(int parent) {
    finish_with_all(parent);
    const int at = nodes_[parent].at, left = nodes_[parent].left;
    if (at >= static_cast<int>(order_.size())) return;
    const int pool = order_[at];
    for (std::size_t d = 0; d < problem_.degrees.size(); ++d) {
      const int degree = problem_.degrees[d];
      if (degree > problem_.pools[pool].devices_per_node || degree > left) break;
      const int available = problem_.groups_of(pool, left, degree);
      if (available == 0) continue;
      std::vector<std::int64_t> sizes{1, 2, 3, 4};
      for (int shares = 1; shares <= most_shares; ++shares) {
        // With these samples the devices left make so many equal stages.
        sizes.push_back((rules_.samples * shares + available - 1) / available);
      }
      std::ranges::sort(sizes);
      sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
      for (const std::int64_t samples : sizes) {
        if (samples > rules_.samples || samples > problem_.most_samples) break;
        if (!sums_.known(pool, static_cast<int>(d), samples)) continue;
        const std::int64_t needed = (rules_.samples + samples - 1) / samples;
        add(parent, {pool, static_cast<int>(d),
                     static_cast<int>(std::min<std::int64_t>(available, needed)), samples});
      }
    }
    // Or the next pool begins a stage of its own.
    if (at + 1 >= static_cast<int>(order_.size())) return;
    Node node = nodes_[parent];
    node.at = at + 1;
    node.left = problem_.pools[order_[at + 1]].devices;
    node.worth = worth(node);
    if (node.worth < 1 - 1e-9) return;
    nodes_.push_back(std::move(node));
    extend(static_cast<int>(nodes_.size()) - 1);
  }

  PipelineDraft draft(int last) const {
    PipelineDraft result;
    result.micro_batches = rules_.micro_batches;
    result.zero_stage = rules_.zero_stage;
    for (int at = last; nodes_[at].parent >= 0; at = nodes_[at].parent) {
      DraftStage stage = nodes_[at].stage;
      stage.groups = ordered_groups(std::move(stage.groups));
      result.stages.push_back(std::move(stage));
    }
    return result;
  }

  const StageFiller& filler_;
  const PlanningProblem& problem_;
  const LayerSums& sums_;
  const std::vector<int>& order_;
  double period_s_;
  const FillRules& rules_;
  std::uint64_t& tried_;
  int in_flight_ = 1;
  std::vector<Node> nodes_;
  std::vector<int> next_;
};

}  // namespace

std::optional<PipelineDraft> PipelineBeam::fill(const std::vector<int>& order, double period_s,
                                                const FillRules& rules) {
  return BeamFill(filler_, order, period_s, rules, tried_).run();
}

bool PipelineBeam::tighten(const std::vector<int>& order, double least_s, double most_s,
                           const FillRules& rules,
                           const std::function<void(PipelineDraft&&)>& visit) {
  std::optional<PipelineDraft> pipeline_draft = fill(order, most_s, rules);
  if (!pipeline_draft) return false;
  visit(std::move(*pipeline_draft));
  double low = least_s, high = most_s;
  while (high > low * tight) {
    const double middle = std::sqrt(low * high);
    pipeline_draft = fill(order, middle, rules);
    (pipeline_draft ? high : low) = middle;
    if (pipeline_draft) visit(std::move(*pipeline_draft));
  }
  return true;
}

}  // namespace heteroperf
