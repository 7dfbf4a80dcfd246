#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "runners/comm/reshard/reshard.hpp"

namespace heteroperf {

/// One rank's prepared reshards, found again by equal layouts and configuration (type, clusters,
/// cards). Keeps the most recently used ones. Every rank plans for itself: nothing is exchanged.
class ReshardCache {
 public:
  explicit ReshardCache(RankId rank, std::size_t capacity = 32);

  /// As plan_reshard() or plan_sum(), by what the holders of a tile of `from` have.
  std::shared_ptr<Resharder> find(const Layout& from, const Layout& to, const ReshardConfig& config,
                                  GradientKind sources = GradientKind::replicate);
  std::size_t size() const { return recent_.size(); }
  /// Calls that had to plan.
  std::size_t planned() const { return planned_; }

 private:
  RankId rank_;
  std::size_t capacity_, planned_ = 0;
  std::list<std::shared_ptr<Resharder>> recent_;  ///< latest first
};

}  // namespace heteroperf
