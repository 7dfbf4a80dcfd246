#include "runners/engine/gradients/gradient_groups.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

using Group = std::vector<RankId>;

/// Different groups of several ranks that `wanted` families have, in the order of the families.
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

}  // namespace

std::size_t index_in(const Group& group, RankId rank) {
  return static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
}

bool is_in(const Group& group, RankId rank) { return index_in(group, rank) < group.size(); }

GradientGroups::GradientGroups(Communicator& world, Communicator* devices,
                               const std::vector<GradientFamily>& families)
    : has_devices_(devices != nullptr) {
  const auto alike = [](const GradientFamily& family) { return family.uniform(); };
  const auto here = [&](const GradientFamily& family) { return !has_devices_ || !alike(family); };
  make(world, groups_of(families, here), false);
  if (has_devices_) make(*devices, groups_of(families, alike), true);
}

void GradientGroups::make(Communicator& world, std::vector<Group> groups, bool on_devices) {
  while (!groups.empty()) split_off(world, groups, on_devices);
}

Communicator& GradientGroups::find(const Group& group, bool uniform) const {
  const auto at = std::find(groups_.begin(), groups_.end(), Key{group, has_devices_ && uniform});
  HETEROPERF_EXPECT(at != groups_.end());
  return *communicators_[static_cast<std::size_t>(at - groups_.begin())];
}

void GradientGroups::split_off(Communicator& world, std::vector<Group>& groups, bool on_devices) {
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
    if (is_in(group, world.rank())) {
      colour = static_cast<int>(number);
      key = static_cast<int>(index_in(group, world.rank()));
      groups_.push_back({group, on_devices});
    }
    ++number;
  }
  auto made = world.split(colour, key);
  if (colour < world.size()) communicators_.push_back(std::move(made));
  groups = std::move(later);
}

}  // namespace heteroperf
