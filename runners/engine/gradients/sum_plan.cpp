// The plan of a rank's gradient sums, made in three steps. A *family* is a set of parameters of
// which the same copies exist: those of one stage, or one weight that is tied across stages. The
// families give the *groups* of ranks that add up together. Then the parameters of every family are
// cut into sums: *buckets* of parameters that lie side by side where all copies are cut alike, one
// reshard per parameter where they are not. All ranks plan the same order, the last stage first,
// because its gradients are final first; a rank that planned another order could wait for a peer
// that waits for it.
#include "runners/engine/gradients/sum_plan.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

void add_copies(const Plan& plan, StageId stage, std::set<RankId>& seen,
                std::vector<GradientFamily::Copy>& copies) {
  const auto& replicas = plan.stages[stage].replicas;
  for (const ReplicaId r : replicas.ids()) {
    const std::vector<RankId>& ranks = replicas[r].ranks;
    const auto known =
        std::count_if(ranks.begin(), ranks.end(), [&](RankId rank) { return seen.contains(rank); });
    if (known == static_cast<std::ptrdiff_t>(ranks.size())) continue;
    // Ranks of a position are grouped alike for all of its stages.
    HETEROPERF_EXPECT(known == 0);
    seen.insert(ranks.begin(), ranks.end());
    copies.push_back({stage, r, ranks});
  }
}

}  // namespace

bool GradientFamily::uniform() const {
  return std::all_of(copies.begin(), copies.end(), [this](const Copy& copy) {
    return copy.ranks.size() == copies.front().ranks.size();
  });
}

std::vector<std::vector<RankId>> GradientFamily::groups() const {
  const bool by_index = uniform();
  std::vector<std::vector<RankId>> groups(by_index ? copies.front().ranks.size() : 1);
  for (const Copy& copy : copies) {
    for (std::size_t i = 0; i < copy.ranks.size(); ++i) {
      groups[by_index ? i : 0].push_back(copy.ranks[i]);
    }
  }
  return groups;
}

std::vector<GradientFamily> gradient_families(const StagedGraph& staged, const Plan& plan) {
  std::vector<GradientFamily> families;
  const auto add = [&](std::vector<StageId> stages, std::size_t tied) {
    GradientFamily& family = families.emplace_back(GradientFamily{std::move(stages), tied, {}});
    std::set<RankId> seen;
    for (const StageId stage : family.stages) add_copies(plan, stage, seen, family.copies);
  };
  for (int s = staged.stages() - 1; s >= 0; --s) add({StageId(s)}, GradientFamily::untied);
  for (std::size_t t = 0; t < staged.tied.size(); ++t) add(staged.tied[t].stages, t);
  return families;
}

namespace {

using Group = std::vector<RankId>;

/// The different groups of several ranks of the families that `wanted` accepts, in their order.
template <class Wanted>
std::vector<Group> groups_of(const std::vector<GradientFamily>& families, Wanted wanted) {
  std::vector<Group> groups;
  for (const GradientFamily& family : families) {
    if (!wanted(family)) continue;
    for (Group& group : family.groups()) {
      const bool known = std::find(groups.begin(), groups.end(), group) != groups.end();
      if (group.size() > 1 && !known) groups.push_back(std::move(group));
    }
  }
  return groups;
}

/// The place of a rank in a group; the group's size where the rank is not in it.
std::size_t index_in(const Group& group, RankId rank) {
  return static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
}

bool is_in(const Group& group, RankId rank) { return index_in(group, rank) < group.size(); }

}  // namespace

GradientGroups::GradientGroups(Communicator& world, Communicator* devices,
                               const std::vector<GradientFamily>& families)
    : has_devices_(devices != nullptr) {
  auto groups = groups_of(
      families, [&](const GradientFamily& family) { return !has_devices_ || !family.uniform(); });
  while (!groups.empty()) split_off(world, groups, false);
  if (!has_devices_) return;
  groups = groups_of(families, [](const GradientFamily& family) { return family.uniform(); });
  while (!groups.empty()) split_off(*devices, groups, true);
}

Communicator& GradientGroups::find(const Group& group, bool uniform) const {
  return *places_.at({group, has_devices_ && uniform});
}

void GradientGroups::split_off(Communicator& world, std::vector<Group>& groups, bool on_devices) {
  std::set<RankId> taken;
  std::vector<Group> later;
  Group here;
  int colour = world.size() + world.rank().value(), number = 0;
  for (Group& group : groups) {
    if (std::ranges::any_of(group, [&](RankId rank) { return taken.contains(rank); })) {
      later.push_back(std::move(group));
      continue;
    }
    taken.insert(group.begin(), group.end());
    if (is_in(group, world.rank())) {
      colour = number;
      here = std::move(group);
    }
    ++number;
  }
  auto communicator = world.split(colour, static_cast<int>(index_in(here, world.rank())));
  if (!here.empty()) {
    places_[{std::move(here), on_devices}] = communicator.get();
    communicators_.push_back(std::move(communicator));
  }
  groups = std::move(later);
}

namespace {

/// Message tags: two per parameter. They are used again, far fewer being under way at a time.
constexpr int tags = 3000;

using ParameterKey = std::pair<NodeId, std::size_t>;

ParameterKey key_of(const HeldParameter& held) { return {held.node, held.index}; }

/// Sorts ranges and joins those that touch.
std::vector<ArenaRange> joined(std::vector<ArenaRange> ranges) {
  std::ranges::sort(ranges, {}, &ArenaRange::begin);
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

class SumPlanner {
 public:
  SumPlanner(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan, RankId rank,
             const ParameterStore& store, const GradientGroups& groups, std::size_t bucket_bytes)
      : graph_(graph),
        staged_(staged),
        plan_(plan),
        rank_(rank),
        store_(store),
        groups_(groups),
        target_(plan.zero_stage > 0 ? SumTarget::own_part : SumTarget::all),
        bucket_elements_(static_cast<std::int64_t>(bucket_bytes / store.master().element_size())) {
    result_.users.resize(store.count());
    result_.tied.resize(store.count());
    for (const StagedGraph::Tied& tied : staged.tied) tied_keys_.emplace(tied.owner, 0);
  }

  SumPlan run(const std::vector<GradientFamily>& families) {
    for (const GradientFamily& family : families) {
      for (std::size_t c = 0; c < family.copies.size(); ++c) {
        if (is_in(family.copies[c].ranks, rank_)) add(family, c);
      }
    }
    for (const std::vector<StageId>& users : result_.users) HETEROPERF_ENSURE(!users.empty());
    result_.owned = joined(std::move(result_.owned));
    result_.counted = joined(std::move(result_.counted));
    return std::move(result_);
  }

 private:
  using Ordinals = std::vector<std::size_t>;

  void add(const GradientFamily& family, std::size_t copy) {
    const std::size_t index = index_in(family.copies[copy].ranks, rank_);
    if (!family.uniform()) return add_resharded(family, copy, index);
    const Group group = family.groups()[index];
    for (const Ordinals& run : runs(family, copy, index)) {
      note_users(family, run);
      if (group.size() == 1) {
        add_unshared(run, copy, index);
      } else {
        add_buckets(groups_.find(group, true), run, copy, index);
      }
    }
  }

  /// The family's parameters on rank `index` of a copy.
  std::vector<HeldParameter> held(const GradientFamily& family, const GradientFamily::Copy& copy,
                                  std::size_t index) {
    std::vector<HeldParameter> result;
    for (const HeldParameter& parameter : share(copy, index)) {
      const ParameterKey key = key_of(parameter);
      const bool wanted = family.is_tied() ? key == ParameterKey(staged_.tied[family.tied].owner, 0)
                                           : !tied_keys_.contains(key);
      if (wanted) result.push_back(parameter);
    }
    return result;
  }

  /// The parameters in training that a rank holds.
  const std::vector<HeldParameter>& share(const GradientFamily::Copy& copy, std::size_t index) {
    const auto key = std::tuple(copy.stage, copy.ranks.size(), index);
    const auto known = shares_.find(key);
    if (known != shares_.end()) return known->second;
    RankRole role;
    role.parts.push_back(
        {SegmentId(copy.stage.value()), copy.stage, copy.replica, static_cast<int>(index)});
    std::vector<HeldParameter> held = rank_share(graph_, staged_, plan_, role).parameters;
    std::erase_if(held, [&](const HeldParameter& parameter) {
      return graph_.node(parameter.node).weights == Weights::frozen;
    });
    return shares_.emplace(key, std::move(held)).first->second;
  }

  /// Parameters that lie one behind the other on every rank that holds them, in the order of
  /// summing: matrices from the last to the first, then the rest. Tied weights, which not every
  /// rank has in its arena at the same place, end a run.
  std::vector<Ordinals> runs(const GradientFamily& family, std::size_t copy, std::size_t index) {
    if (family.is_tied()) return {{store_.ordinal(staged_.tied[family.tied].owner, 0)}};
    std::vector<Ordinals> result;
    for (const bool matrices : {true, false}) {
      std::vector<Ordinals> pieces(1);
      for (const HeldParameter& parameter : share(family.copies[copy], index)) {
        if ((parameter.shape.size() > 1) != matrices) continue;
        if (tied_keys_.contains(key_of(parameter))) {
          pieces.emplace_back();
        } else {
          pieces.back().push_back(store_.ordinal(parameter.node, parameter.index));
        }
      }
      for (auto run = pieces.rbegin(); run != pieces.rend(); ++run) {
        if (!run->empty()) result.push_back(*run);
      }
    }
    return result;
  }

  void note_users(const GradientFamily& family, const Ordinals& run) {
    for (const std::size_t ordinal : run) {
      result_.users[ordinal] = family.stages;
      result_.tied[ordinal] = family.is_tied();
    }
  }

  /// The parameter's elements, with the gap behind it, which holds zeros.
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

  void count(const Ordinals& run, const ArenaRange& owned, std::size_t index) {
    for (const std::size_t ordinal : run) {
      if (counts_here(ordinal, index)) result_.counted.push_back(overlap(range_of(ordinal), owned));
    }
  }

  /// A run that this rank alone holds: nothing is summed.
  void add_unshared(const Ordinals& run, std::size_t copy, std::size_t index) {
    result_.owned.push_back(range_of(run));
    if (copy == 0) count(run, range_of(run), index);
  }

  /// Cuts a run into buckets of neighbours, from its end: the last gradients are final first.
  void add_buckets(Communicator& group, const Ordinals& run, std::size_t copy, std::size_t index) {
    Ordinals bucket;
    for (auto last = run.rbegin(); last != run.rend(); ++last) {
      bucket.insert(bucket.begin(), *last);
      if (range_of(bucket).count() < bucket_elements_ && last + 1 != run.rend()) continue;
      auto sum = flat_sum(group, arena_part(store_, range_of(bucket)), target_);
      const ArenaRange owned = sum->owned().front();
      if (target_ == SumTarget::own_part || copy == 0) count(bucket, owned, index);
      add_sum(std::move(sum), std::move(bucket));
      bucket.clear();
    }
  }

  /// One sum per parameter, for copies of different tensor-parallel degrees: matrices from the last
  /// to the first, then the rest in the same direction.
  void add_resharded(const GradientFamily& family, std::size_t copy, std::size_t index) {
    Communicator& group = groups_.find(family.groups().front(), false);
    std::vector<HeldParameter> all = held(family, family.copies.front(), 0);
    std::ranges::reverse(all);
    std::ranges::stable_partition(all, [](const HeldParameter& p) { return p.shape.size() > 1; });
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::vector<ParameterHolder> holders = holders_of(family, key_of(all[i]));
      if (std::ranges::find(holders, group.rank(), &ParameterHolder::rank) == holders.end()) {
        continue;
      }
      const std::size_t ordinal = store_.ordinal(all[i].node, all[i].index);
      note_users(family, {ordinal});
      auto sum = resharded_sum(group, arena_part(store_, range_of(ordinal)),
                               graph_.node(all[i].node).parameters[all[i].index].shape, holders,
                               target_, 2 * static_cast<int>(i) % tags);
      if (target_ == SumTarget::own_part) {
        for (const ArenaRange& owned : sum->owned()) result_.counted.push_back(owned);
      } else if (copy == 0) {
        count({ordinal}, range_of(ordinal), index);
      }
      add_sum(std::move(sum), {ordinal});
    }
  }

  void add_sum(std::unique_ptr<GradientSum> sum, Ordinals parameters) {
    for (const ArenaRange& owned : sum->owned()) result_.owned.push_back(owned);
    result_.sums.push_back({std::move(sum), std::move(parameters)});
  }

  std::vector<ParameterHolder> holders_of(const GradientFamily& family, ParameterKey key) {
    std::vector<ParameterHolder> holders;
    std::int32_t number = 0;
    for (std::size_t c = 0; c < family.copies.size(); ++c) {
      for (std::size_t i = 0; i < family.copies[c].ranks.size(); ++i, ++number) {
        for (const HeldParameter& parameter : held(family, family.copies[c], i)) {
          if (key_of(parameter) == key) holders.push_back({RankId(number), c, parameter.shard});
        }
      }
    }
    return holders;
  }

  const ModelGraph& graph_;
  const StagedGraph& staged_;
  const Plan& plan_;
  RankId rank_;
  const ParameterStore& store_;
  const GradientGroups& groups_;
  SumTarget target_;
  std::int64_t bucket_elements_;
  std::set<ParameterKey> tied_keys_;
  /// By stage, degree and tensor index.
  std::map<std::tuple<StageId, std::size_t, std::size_t>, std::vector<HeldParameter>> shares_;
  SumPlan result_;
};

}  // namespace

SumPlan plan_sums(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan, RankId rank,
                  const ParameterStore& store, const std::vector<GradientFamily>& families,
                  const GradientGroups& groups, std::size_t bucket_bytes) {
  return SumPlanner(graph, staged, plan, rank, store, groups, bucket_bytes).run(families);
}

}  // namespace heteroperf
