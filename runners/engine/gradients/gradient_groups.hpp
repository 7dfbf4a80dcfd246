#pragma once

#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/gradients/gradient_families.hpp"

namespace heteroperf {

/// The groups of several ranks that sum together and that `world`'s own rank is in.
class GradientGroups {
 public:
  /// Collective. One split makes as many groups as have no rank in common. Copies that are cut
  /// alike sum within `devices`, the same ranks, where it is given.
  GradientGroups(Communicator& world, Communicator* devices,
                 const std::vector<GradientFamily>& families);

  /// Of a family of copies that are cut alike (`uniform`), or not.
  Communicator& find(const std::vector<RankId>& group, bool uniform) const;
  /// They stay where they are; find() is not for after.
  std::vector<std::unique_ptr<Communicator>> release() { return std::move(communicators_); }

 private:
  using Group = std::vector<RankId>;
  /// By uniform().
  struct Key {
    Group ranks;
    bool on_devices = false;
    friend bool operator==(const Key&, const Key&) = default;
  };
  void make(Communicator& world, std::vector<Group> groups, bool on_devices);
  /// Takes those it makes out of `groups`.
  void split_off(Communicator& world, std::vector<Group>& groups, bool on_devices);

  bool has_devices_ = false;
  std::vector<Key> groups_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// Place of a rank in a group; its size where it is not in it.
std::size_t index_in(const std::vector<RankId>& group, RankId rank);
bool is_in(const std::vector<RankId>& group, RankId rank);

}  // namespace heteroperf
