#include "runners/engine/gradient_reducer.hpp"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "metrics/error.hpp"
#include "runners/comm/concurrent_use.hpp"
#include "runners/engine/gradient_families.hpp"
#include "runners/engine/gradient_sum.hpp"
#include "runners/engine/optimizer_kernels.hpp"
#include "runners/engine/sum_queue.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t none = ~std::size_t{0};
/// Two per parameter, used again when far fewer are under way.
constexpr int tags = 3000;

using Group = std::vector<RankId>;
using ParameterKey = std::pair<NodeId, std::size_t>;

ParameterKey key_of(const HeldParameter& held) { return {held.node, held.index}; }

std::size_t index_of(const Group& group, RankId rank) {
  return static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
}

bool contains(const Group& group, RankId rank) { return index_of(group, rank) < group.size(); }

/// Different groups of several ranks, in the order of the families.
std::vector<Group> groups_of(const std::vector<GradientFamily>& families) {
  std::vector<Group> groups;
  for (const GradientFamily& family : families) {
    for (Group& group : family.groups()) {
      const bool known = std::find(groups.begin(), groups.end(), group) != groups.end();
      if (group.size() > 1 && !known) groups.push_back(std::move(group));
    }
  }
  return groups;
}

/// Communicators of the groups that `world`'s own rank is in. One split makes as many groups as
/// have no rank in common.
class Groups {
 public:
  Groups(Communicator& world, std::vector<Group> groups) {
    while (!groups.empty()) split_off(world, groups);
  }

  Communicator& find(const Group& group) const {
    const auto at = std::find(groups_.begin(), groups_.end(), group);
    HETEROPERF_EXPECT(at != groups_.end());
    return *communicators_[static_cast<std::size_t>(at - groups_.begin())];
  }
  std::vector<std::unique_ptr<Communicator>> release() { return std::move(communicators_); }

 private:
  void split_off(Communicator& world, std::vector<Group>& groups) {
    std::set<RankId> taken;
    std::vector<Group> later;
    int colour = world.size() + world.rank().value(), key = 0;
    for (std::size_t g = 0, number = 0; g < groups.size(); ++g) {
      Group& group = groups[g];
      if (std::any_of(group.begin(), group.end(), [&](RankId r) { return taken.contains(r); })) {
        later.push_back(std::move(group));
        continue;
      }
      taken.insert(group.begin(), group.end());
      if (contains(group, world.rank())) {
        colour = static_cast<int>(number);
        key = static_cast<int>(index_of(group, world.rank()));
        groups_.push_back(group);
      }
      ++number;
    }
    auto made = world.split(colour, key);
    if (colour < world.size()) communicators_.push_back(std::move(made));
    groups = std::move(later);
  }

  std::vector<Group> groups_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// Joins ranges that touch.
std::vector<ArenaRange> joined(std::vector<ArenaRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ArenaRange& a, const ArenaRange& b) { return a.begin < b.begin; });
  std::vector<ArenaRange> result;
  for (const ArenaRange& range : ranges) {
    if (range.count() == 0) continue;
    if (!result.empty() && result.back().end == range.begin) {
      result.back().end = range.end;
    } else {
      result.push_back(range);
    }
  }
  return result;
}

ArenaRange overlap(const ArenaRange& a, const ArenaRange& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// What one rank sums, in order, and what of its arena counts as its own.
struct SumPlan {
  struct Sum {
    std::unique_ptr<GradientSum> sum;
    std::vector<std::size_t> parameters;  ///< ordinals
  };
  std::vector<Sum> sums;
  std::vector<ArenaRange> owned, counted;
  /// By ordinal: the stages that use it, tied or not.
  std::vector<std::vector<int>> users;
  std::vector<bool> tied;  ///< by ordinal
};

class SumPlanner {
 public:
  SumPlanner(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan, RankId rank,
             const ParameterStore& store, const Groups& groups, std::size_t bucket_bytes)
      : graph_(graph),
        staged_(staged),
        plan_(plan),
        rank_(rank),
        store_(store),
        arenas_(store),
        groups_(groups),
        target_(plan.zero_stage > 0 ? SumTarget::own_part : SumTarget::all),
        bucket_elements_(static_cast<std::int64_t>(bucket_bytes / size_of(arenas_.type()))) {
    result_.users.resize(store.count());
    result_.tied.resize(store.count());
    for (const StagedGraph::Tied& tied : staged.tied) tied_keys_.emplace(tied.owner, 0);
  }

  SumPlan run(const std::vector<GradientFamily>& families) {
    for (const GradientFamily& family : families) {
      for (std::size_t c = 0; c < family.copies.size(); ++c) {
        if (contains(family.copies[c].ranks, rank_)) add(family, c);
      }
    }
    for (const std::vector<int>& users : result_.users) HETEROPERF_ENSURE(!users.empty());
    result_.owned = joined(std::move(result_.owned));
    result_.counted = joined(std::move(result_.counted));
    return std::move(result_);
  }

 private:
  using Ordinals = std::vector<std::size_t>;

  void add(const GradientFamily& family, std::size_t copy) {
    const std::size_t index = index_of(family.copies[copy].ranks, rank_);
    if (!family.uniform()) return add_resharded(family, copy, index);
    const Group group = family.groups()[index];
    for (const Ordinals& run : runs(family, copy, index)) {
      note_users(family, run);
      if (group.size() == 1) {
        add_own(run, copy, index);
      } else {
        add_buckets(groups_.find(group), run, copy, index);
      }
    }
  }

  /// What a rank of a copy holds of the family.
  std::vector<HeldParameter> held(const GradientFamily& family, const GradientFamily::Copy& copy,
                                  std::size_t index) {
    std::vector<HeldParameter> result;
    for (const HeldParameter& parameter : share(copy, index)) {
      const bool tied = tied_keys_.contains(key_of(parameter));
      const bool wanted = family.is_tied() ? parameter.node == staged_.tied[family.tied].owner &&
                                                 parameter.index == 0
                                           : !tied;
      if (wanted) result.push_back(parameter);
    }
    return result;
  }

  const std::vector<HeldParameter>& share(const GradientFamily::Copy& copy, std::size_t index) {
    const auto key = std::tuple(copy.stage, copy.ranks.size(), index);
    const auto known = shares_.find(key);
    if (known != shares_.end()) return known->second;
    RankRole role;
    role.parts.push_back({copy.stage, copy.stage, copy.replica, static_cast<int>(index)});
    return shares_.emplace(key, rank_share(graph_, staged_, plan_, role).parameters).first->second;
  }

  /// Parameters that lie one behind the other on every rank that holds them, in the order of
  /// summing: matrices from the last to the first, then the rest. Tied weights, which not every
  /// rank has in its arena at the same place, end a run.
  std::vector<Ordinals> runs(const GradientFamily& family, std::size_t copy, std::size_t index) {
    if (family.is_tied()) return {{store_.ordinal(staged_.tied[family.tied].owner, 0)}};
    std::vector<Ordinals> result;
    for (const bool matrices : {true, false}) {
      std::vector<Ordinals> found(1);
      for (const HeldParameter& parameter : share(family.copies[copy], index)) {
        if ((parameter.shape.size() > 1) != matrices) continue;
        if (tied_keys_.contains(key_of(parameter))) {
          found.emplace_back();
        } else {
          found.back().push_back(store_.ordinal(parameter.node, parameter.index));
        }
      }
      for (auto run = found.rbegin(); run != found.rend(); ++run) {
        if (!run->empty()) result.push_back(*run);
      }
    }
    return result;
  }

  void note_users(const GradientFamily& family, const Ordinals& run) {
    const std::vector<int> stages =
        family.is_tied() ? staged_.tied[family.tied].stages : std::vector<int>{family.stage};
    for (const std::size_t ordinal : run) {
      result_.users[ordinal] = stages;
      result_.tied[ordinal] = family.is_tied();
    }
  }

  /// With the gap behind it, which holds zeros.
  ArenaRange range_of(std::size_t ordinal) const {
    const bool last = ordinal + 1 == store_.count();
    return {store_.place(ordinal).offset,
            last ? store_.elements() : store_.place(ordinal + 1).offset};
  }
  ArenaRange range_of(const Ordinals& run) const {
    HETEROPERF_ENSURE(run.back() - run.front() + 1 == run.size());
    return {range_of(run.front()).begin, range_of(run.back()).end};
  }

  /// A whole parameter counts on the first rank of its tensor-parallel group alone.
  bool counts_here(std::size_t ordinal, std::size_t index) const {
    return index == 0 || !store_.place(ordinal).held.shard.whole();
  }

  void count(const Ordinals& run, const ArenaRange& own, std::size_t index) {
    for (const std::size_t ordinal : run) {
      if (counts_here(ordinal, index)) result_.counted.push_back(overlap(range_of(ordinal), own));
    }
  }

  void add_own(const Ordinals& run, std::size_t copy, std::size_t index) {
    result_.owned.push_back(range_of(run));
    if (copy == 0) count(run, range_of(run), index);
  }

  void add_buckets(Communicator& group, const Ordinals& run, std::size_t copy, std::size_t index) {
    Ordinals bucket;
    for (auto at = run.rbegin(); at != run.rend(); ++at) {
      bucket.insert(bucket.begin(), *at);
      if (range_of(bucket).count() < bucket_elements_ && at + 1 != run.rend()) continue;
      auto sum = std::make_unique<FlatSum>(group, arenas_, range_of(bucket), target_);
      const ArenaRange own = sum->owned().front();
      if (target_ == SumTarget::own_part || copy == 0) count(bucket, own, index);
      add_sum(std::move(sum), std::move(bucket));
      bucket.clear();
    }
  }

  void add_resharded(const GradientFamily& family, std::size_t copy, std::size_t index) {
    Communicator& group = groups_.find(family.groups().front());
    std::vector<HeldParameter> all = held(family, family.copies.front(), 0);
    std::stable_partition(all.begin(), all.end(),
                          [](const HeldParameter& p) { return p.shape.size() > 1; });
    const auto rest = std::find_if(all.begin(), all.end(),
                                   [](const HeldParameter& p) { return p.shape.size() <= 1; });
    std::reverse(all.begin(), rest);
    std::reverse(rest, all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const ReshardedSum::Copies holders = holders_of(family, key_of(all[i]));
      if (!holds(holders, group.rank())) continue;
      const std::size_t ordinal = store_.ordinal(all[i].node, all[i].index);
      note_users(family, {ordinal});
      auto sum =
          std::make_unique<ReshardedSum>(group, arenas_, range_of(ordinal),
                                         graph_.node(all[i].node).parameters[all[i].index].shape,
                                         holders, target_, 2 * static_cast<int>(i) % tags);
      if (target_ == SumTarget::own_part) {
        for (const ArenaRange& own : sum->owned()) result_.counted.push_back(own);
      } else if (copy == 0) {
        count({ordinal}, range_of(ordinal), index);
      }
      add_sum(std::move(sum), {ordinal});
    }
  }

  void add_sum(std::unique_ptr<GradientSum> sum, Ordinals parameters) {
    for (const ArenaRange& own : sum->owned()) result_.owned.push_back(own);
    result_.sums.push_back({std::move(sum), std::move(parameters)});
  }

  ReshardedSum::Copies holders_of(const GradientFamily& family, ParameterKey key) {
    ReshardedSum::Copies copies;
    std::int32_t number = 0;
    for (const GradientFamily::Copy& copy : family.copies) {
      auto& holders = copies.emplace_back();
      for (std::size_t i = 0; i < copy.ranks.size(); ++i, ++number) {
        for (const HeldParameter& parameter : held(family, copy, i)) {
          if (key_of(parameter) == key) holders.push_back({RankId(number), parameter.shard});
        }
      }
    }
    return copies;
  }

  static bool holds(const ReshardedSum::Copies& copies, RankId rank) {
    return std::any_of(copies.begin(), copies.end(), [&](const auto& holders) {
      return std::any_of(holders.begin(), holders.end(),
                         [&](const ReshardedSum::Holder& holder) { return holder.rank == rank; });
    });
  }

  const ModelGraph& graph_;
  const StagedGraph& staged_;
  const Plan& plan_;
  RankId rank_;
  const ParameterStore& store_;
  GradientArenas arenas_;
  const Groups& groups_;
  SumTarget target_;
  std::int64_t bucket_elements_;
  std::set<ParameterKey> tied_keys_;
  std::map<std::tuple<int, std::size_t, std::size_t>, std::vector<HeldParameter>> shares_;
  SumPlan result_;
};

}  // namespace

class GradientReducer::Implementation {
 public:
  Implementation(Communicator& world, const ModelGraph& graph, const StagedGraph& staged,
                 const Plan& plan, const RankShare& share, ParameterStore& store,
                 const ReductionConfig& config)
      : store_(store), sliced_(plan.zero_stage > 0) {
    const std::vector<GradientFamily> families = gradient_families(staged, plan);
    Groups groups(world, groups_of(families));
    SumPlan sums = SumPlanner(graph, staged, plan, world.rank(), store, groups, config.bucket_bytes)
                       .run(families);
    owned_ = sliced_ ? std::move(sums.owned) : std::vector<ArenaRange>{{0, store.elements()}};
    counted_ = std::move(sums.counted);
    note_parts(share, sums);

    std::vector<SumQueue::Entry> entries;
    sum_of_.assign(store.count(), none);
    for (SumPlan::Sum& sum : sums.sums) {
      for (const std::size_t ordinal : sum.parameters) sum_of_[ordinal] = entries.size();
      entries.push_back({std::move(sum.sum), sum.parameters.size()});
    }
    reason_ = config.overlap == ReductionConfig::Overlap::off ? "switched off"
              : entries.empty()                               ? "nothing is summed on this rank"
                                                              : one_thread_reason(world);
    queue_ = std::make_unique<SumQueue>(
        groups.release(), std::move(entries),
        reason_.empty() ? SumQueue::Runner::own_thread : SumQueue::Runner::caller, config.memory);
    begin_step();
  }

  void ready(std::size_t ordinal) {
    if (!shared_.at(ordinal)) set_final(ordinal);
  }
  void reduce(std::size_t part) {
    for (const std::size_t ordinal : parameters_of_.at(part)) set_final(ordinal);
  }
  void reduce_tied(std::size_t part) {
    for (const std::size_t ordinal : tied_of_.at(part)) {
      if (missing_parts_[ordinal] > 0 && --missing_parts_[ordinal] == 0) set_final(ordinal);
    }
  }
  void wait() {
    for (std::size_t ordinal = 0; ordinal < final_.size(); ++ordinal) set_final(ordinal);
    queue_->finish_step();
    begin_step();
  }
  void share_parameters() {
    if (!sliced_ || queue_->size() == 0) return;
    queue_->share();
    store_.publish();
  }

  const std::vector<ArenaRange>& owned() const { return owned_; }
  const std::vector<ArenaRange>& counted() const { return counted_; }
  double own_square_sum() const {
    double sum = 0;
    const at::Tensor& gradient = store_.reduced_gradient();
    AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "own_square_sum", [&] {
      const auto* data = gradient.const_data_ptr<scalar_t>();
      for (const ArenaRange& range : counted_) {
        sum += sum_of_squares(data + range.begin, range.count());
      }
    });
    return sum;
  }
  const SumQueue& queue() const { return *queue_; }
  const std::string& overlap_reason() const { return reason_; }

 private:
  void note_parts(const RankShare& share, const SumPlan& sums) {
    const std::size_t parts = share.parts.size();
    parameters_of_.resize(parts);
    tied_of_.resize(parts);
    shared_.resize(store_.count());
    parts_using_.resize(store_.count());
    for (std::size_t ordinal = 0; ordinal < store_.count(); ++ordinal) {
      for (std::size_t part = 0; part < parts; ++part) {
        const std::vector<int>& users = sums.users[ordinal];
        const int stage = share.parts[part].role.stage;
        if (std::find(users.begin(), users.end(), stage) == users.end()) continue;
        (sums.tied[ordinal] ? tied_of_ : parameters_of_)[part].push_back(ordinal);
        ++parts_using_[ordinal];
      }
      shared_[ordinal] = sums.tied[ordinal] || parts_using_[ordinal] > 1;
    }
  }

  void begin_step() {
    final_.assign(store_.count(), false);
    missing_parts_ = parts_using_;
  }

  void set_final(std::size_t ordinal) {
    if (final_.at(ordinal)) return;
    final_[ordinal] = true;
    if (sum_of_[ordinal] != none) queue_->parameter_final(sum_of_[ordinal]);
  }

  ParameterStore& store_;
  bool sliced_;
  std::vector<ArenaRange> owned_, counted_;
  std::vector<std::vector<std::size_t>> parameters_of_, tied_of_;  ///< ordinals, by part
  std::vector<std::size_t> sum_of_;                                ///< by ordinal
  std::vector<bool> shared_;  ///< by ordinal: no single part of this rank can call it final
  std::vector<int> parts_using_, missing_parts_;
  std::vector<bool> final_;
  std::string reason_;
  std::unique_ptr<SumQueue> queue_;
};

GradientReducer::GradientReducer(Communicator& world, const ModelGraph& graph,
                                 const StagedGraph& staged, const Plan& plan,
                                 const std::vector<RankRole>& roles, const RankShare& share,
                                 ParameterStore& store, const ReductionConfig& config) {
  HETEROPERF_EXPECT(static_cast<int>(roles.size()) == world.size());
  implementation_ =
      std::make_unique<Implementation>(world, graph, staged, plan, share, store, config);
}
GradientReducer::~GradientReducer() = default;

void GradientReducer::ready(std::size_t ordinal) { implementation_->ready(ordinal); }
void GradientReducer::reduce(std::size_t part) { implementation_->reduce(part); }
void GradientReducer::reduce_tied(std::size_t part) { implementation_->reduce_tied(part); }
void GradientReducer::wait() { implementation_->wait(); }
std::vector<GradientReducer::Range> GradientReducer::owned() const {
  return implementation_->owned();
}
const std::vector<ArenaRange>& GradientReducer::counted() const {
  return implementation_->counted();
}
void GradientReducer::share_parameters() { implementation_->share_parameters(); }
double GradientReducer::own_square_sum() const { return implementation_->own_square_sum(); }
double GradientReducer::busy_s() const { return implementation_->queue().busy_s(); }
double GradientReducer::exposed_s() const { return implementation_->queue().exposed_s(); }
const std::string& GradientReducer::overlap_reason() const {
  return implementation_->overlap_reason();
}
std::size_t GradientReducer::sums() const { return implementation_->queue().size(); }
std::size_t GradientReducer::sums_done() const { return implementation_->queue().done(); }

}  // namespace heteroperf
