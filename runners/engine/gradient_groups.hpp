#pragma once

#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/gradient_families.hpp"

namespace heteroperf {

/// The groups of several ranks that sum together and that `world`'s own rank is in.
class GradientGroups {
 public:
  /// Collective. One split makes as many groups as have no rank in common.
  GradientGroups(Communicator& world, const std::vector<GradientFamily>& families);

  Communicator& find(const std::vector<RankId>& group) const;
  /// They stay where they are; find() is not for after.
  std::vector<std::unique_ptr<Communicator>> release() { return std::move(communicators_); }

 private:
  using Group = std::vector<RankId>;
  /// Takes those it makes out of `groups`.
  void split_off(Communicator& world, std::vector<Group>& groups);

  std::vector<Group> groups_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// Place of a rank in a group; its size where it is not in it.
std::size_t index_in(const std::vector<RankId>& group, RankId rank);
bool is_in(const std::vector<RankId>& group, RankId rank);

}  // namespace heteroperf
