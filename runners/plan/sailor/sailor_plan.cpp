#include "runners/plan/sailor/sailor_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace heteroperf {

int SailorStage::width() const {
  int sum = 0;
  for (const SailorReplicas& group : replicas) sum += group.count;
  return sum;
}

std::int64_t SailorShare::samples() const {
  return std::accumulate(tails.begin(), tails.end(), micro_batch * micro_batches);
}

namespace {

std::string text_of(const SailorStage& stage, const std::vector<std::string>& places) {
  std::vector<std::string> groups;
  for (const SailorReplicas& group : stage.replicas) {
    groups.push_back(fmt::format("{}x{} tp{}", group.count,
                                 places.at(static_cast<std::size_t>(group.place)), group.tensor));
  }
  return fmt::format("[{},{}) {}", stage.begin, stage.end, fmt::join(groups, ", "));
}

std::string text_of(const SailorShare& share) {
  const std::string tail =
      share.tails.empty() ? "" : fmt::format(" + {}", fmt::join(share.tails, " + "));
  return fmt::format("{}x({}x{}{})", share.count, share.micro_batches, share.micro_batch, tail);
}

}  // namespace

std::string to_string(const SailorPlan& plan, const std::vector<std::string>& places) {
  std::vector<std::string> stages, shares;
  for (const SailorStage& stage : plan.stages) stages.push_back(text_of(stage, places));
  for (const SailorShare& share : plan.shares) shares.push_back(text_of(share));
  if (shares.empty()) shares.push_back(fmt::format("micro-batch {}", plan.micro_batch));
  return fmt::format("{}; {}", fmt::join(stages, " | "), fmt::join(shares, ", "));
}

}  // namespace heteroperf
