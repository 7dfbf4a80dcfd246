#include "runners/engine/gradients/gradient_families.hpp"

#include <algorithm>
#include <set>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

void add_copies(const Plan& plan, int stage, std::set<RankId>& seen,
                std::vector<GradientFamily::Copy>& copies) {
  const std::vector<StageReplica>& replicas = plan.stages[static_cast<std::size_t>(stage)].replicas;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::vector<RankId>& ranks = replicas[r].ranks;
    const auto known =
        std::count_if(ranks.begin(), ranks.end(), [&](RankId rank) { return seen.contains(rank); });
    if (known == static_cast<std::ptrdiff_t>(ranks.size())) continue;
    // Ranks of a position are grouped alike for all of its stages.
    HETEROPERF_EXPECT(known == 0);
    seen.insert(ranks.begin(), ranks.end());
    copies.push_back({stage, static_cast<int>(r), ranks});
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
  for (int stage = staged.stages() - 1; stage >= 0; --stage) {
    GradientFamily family{stage, GradientFamily::untied, {}};
    std::set<RankId> seen;
    add_copies(plan, stage, seen, family.copies);
    families.push_back(std::move(family));
  }
  for (std::size_t t = 0; t < staged.tied.size(); ++t) {
    GradientFamily family{staged.tied[t].stages.front(), t, {}};
    std::set<RankId> seen;
    for (const int stage : staged.tied[t].stages) add_copies(plan, stage, seen, family.copies);
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace heteroperf
