#include "runners/comm/reshard/reshard_cache.hpp"

#include <algorithm>

namespace heteroperf {

ReshardCache::ReshardCache(RankId rank, std::size_t capacity)
    : rank_(rank), capacity_(std::max<std::size_t>(capacity, 1)) {}

std::shared_ptr<Resharder> ReshardCache::find(const Layout& from, const Layout& to,
                                              const ReshardConfig& config, GradientKind sources) {
  const auto wanted = [&](const std::shared_ptr<Resharder>& known) {
    const ReshardPlan& plan = known->plan();
    return plan.sources == sources && plan.from == from && plan.to == to && plan.config == config;
  };
  const auto found = std::find_if(recent_.begin(), recent_.end(), wanted);
  if (found != recent_.end()) {
    recent_.splice(recent_.begin(), recent_, found);
    return recent_.front();
  }
  auto plan = std::make_shared<const ReshardPlan>(sources == GradientKind::partial
                                                      ? plan_sum(from, to, config)
                                                      : plan_reshard(from, to, config));
  recent_.push_front(std::make_shared<Resharder>(std::move(plan), rank_));
  ++planned_;
  if (recent_.size() > capacity_) recent_.pop_back();
  return recent_.front();
}

}  // namespace heteroperf
