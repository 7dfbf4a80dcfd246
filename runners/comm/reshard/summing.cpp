#include "runners/comm/reshard/summing.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace heteroperf {
namespace {

/// Ranks by cluster, in the order of clusters.
using Groups = std::map<std::size_t, std::vector<RankId>>;

Groups group(const std::vector<RankId>& ranks, const RankPlaces& places) {
  Groups groups;
  for (const RankId rank : ranks) groups[places.cluster(rank)].push_back(rank);
  return groups;
}

/// Where a parcel's sum may be made so that it travels least: a rank that wants it, in a cluster
/// that has summands, best with a summand of its own.
std::vector<RankId> root_candidates(const Parcel& parcel, const Groups& summands,
                                    const RankPlaces& places) {
  std::vector<RankId> near, own;
  for (const RankId rank : parcel.targets) {
    if (!summands.contains(places.cluster(rank))) continue;
    near.push_back(rank);
    if (std::binary_search(parcel.sources.begin(), parcel.sources.end(), rank)) own.push_back(rank);
  }
  if (!own.empty()) return own;
  if (!near.empty()) return near;
  // Nobody near wants it: with a single cluster of summands add there and deliver the sum.
  return summands.size() == 1 ? parcel.sources : parcel.targets;
}

class Adder {
 public:
  Adder(const RankPlaces& places, FreightList& list, std::vector<Sum>& sums)
      : places_(places), list_(list), sums_(sums) {}

  /// Adds up one slice of a parcel; returns it with the only source it has afterwards.
  Parcel add(const Box& box, const Parcel& parcel, const Groups& groups,
             const std::vector<RankId>& candidates) {
    const RankId root = list_.lightest_receiver(candidates, groups.size() > 1);
    const bool wants = std::binary_search(parcel.targets.begin(), parcel.targets.end(), root);
    const ReshardPlace into = wants ? ReshardPlace::result : ReshardPlace::sum;
    std::int32_t sum = no_sum;
    if (groups.size() == 1) {
      sum = sum_at(root, ReshardStage::sum_inside, box, into, of_source(parcel.sources));
    } else {
      std::vector<Sum::Summand> summands;
      for (const auto& [cluster, ranks] : groups)
        summands.push_back(sum_of_cluster(box, cluster, ranks, root));
      sum = sum_at(root, ReshardStage::sum_across, box, into, std::move(summands));
    }
    return {box, into, wants ? no_sum : sum, {root}, without(parcel.targets, root)};
  }

 private:
  static std::vector<Sum::Summand> of_source(const std::vector<RankId>& ranks) {
    std::vector<Sum::Summand> summands;
    for (const RankId rank : ranks) summands.push_back({rank});
    return summands;
  }

  static std::vector<RankId> without(std::vector<RankId> ranks, RankId rank) {
    ranks.erase(std::remove(ranks.begin(), ranks.end(), rank), ranks.end());
    return ranks;
  }

  /// The cluster's contribution to the sum at `root`.
  Sum::Summand sum_of_cluster(const Box& box, std::size_t cluster, const std::vector<RankId>& ranks,
                              RankId root) {
    if (ranks.size() == 1) return {ranks.front()};
    const RankId at = cluster == places_.cluster(root) ? root : list_.lightest_sender(ranks, true);
    const std::int32_t sum =
        sum_at(at, ReshardStage::sum_inside, box, ReshardPlace::sum, of_source(ranks));
    return {at, ReshardPlace::sum, sum};
  }

  std::int32_t sum_at(RankId at, ReshardStage stage, const Box& box, ReshardPlace into,
                      std::vector<Sum::Summand> summands) {
    const auto number = static_cast<std::int32_t>(sums_.size());
    for (const Sum::Summand& summand : summands)
      if (summand.rank != at)
        list_.send(stage, summand.rank, at, {box, summand.from, summand.from_sum, number});
    sums_.push_back({at, stage, box, into, std::move(summands)});
    return number;
  }

  const RankPlaces& places_;
  FreightList& list_;
  std::vector<Sum>& sums_;
};

}  // namespace

std::vector<Parcel> add_up(std::vector<Parcel> parcels, std::int64_t smallest_slice,
                           const RankPlaces& places, FreightList& list, std::vector<Sum>& sums) {
  std::stable_sort(parcels.begin(), parcels.end(),
                   [](const Parcel& a, const Parcel& b) { return a.box.count() > b.box.count(); });
  Adder adder(places, list, sums);
  std::vector<Parcel> remaining;
  for (Parcel& parcel : parcels) {
    if (parcel.sources.size() == 1 || parcel.targets.empty()) {
      remaining.push_back(std::move(parcel));
      continue;
    }
    const Groups groups = group(parcel.sources, places);
    const std::vector<RankId> candidates = root_candidates(parcel, groups, places);
    std::size_t slices = candidates.size();
    for (const auto& [cluster, ranks] : groups) slices = std::max(slices, ranks.size());
    for (const Box& slice : cut(parcel.box, slices, smallest_slice))
      remaining.push_back(adder.add(slice, parcel, groups, candidates));
  }
  return remaining;
}

}  // namespace heteroperf
