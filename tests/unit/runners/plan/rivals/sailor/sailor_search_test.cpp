#include "runners/plan/rivals/sailor/sailor_search.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "metrics/base/error.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "tests/unit/runners/plan/rivals/sailor/small_sailor.hpp"

namespace heteroperf {
namespace {

/// Every plan of a small model on a few devices: the best score.
class EveryPlan {
 public:
  EveryPlan(const SailorTables& tables, SailorDevices left) : tables_(tables), left_(left) {}

  double best_s() {
    for (const std::int64_t size : {1, 2, 4}) {
      for (int width = 1; width <= 6; ++width) {
        plan_.micro_batch = size;
        width_ = width;
        add_stage(0);
      }
    }
    return best_;
  }

 private:
  void add_stage(int begin) {
    if (begin == tables_.layers()) {
      if (!fits_sailor_memory(tables_, plan_)) return;
      best_ = std::min(best_, sailor_step_time_s(tables_, plan_));
      return;
    }
    for (int end = begin + 1; end <= tables_.layers(); ++end) {
      plan_.stages.push_back({begin, end, {}});
      add_replicas(width_, 0);
      plan_.stages.pop_back();
    }
  }

  /// Seats in order, so that every multiset comes once.
  void add_replicas(int open, int seat) {
    if (open == 0) {
      add_stage(plan_.stages.back().layers.end);
      return;
    }
    if (seat == 4) return;
    const int place = seat / 2, tensor = 1 + seat % 2;
    add_replicas(open, seat + 1);
    for (int count = 1; count <= open; ++count) {
      int& left = left_[static_cast<std::size_t>(place)];
      if (count * tensor > left) break;
      left -= count * tensor;
      plan_.stages.back().replicas.push_back({count, place, tensor});
      add_replicas(open - count, seat + 1);
      plan_.stages.back().replicas.pop_back();
      left += count * tensor;
    }
  }

  const SailorTables& tables_;
  SailorDevices left_;
  SailorPlan plan_;
  int width_ = 1;
  double best_ = std::numeric_limits<double>::infinity();
};

SailorSearchResult found(const SailorTables& tables, const SailorDevices& devices,
                         SailorScore score) {
  const SailorSearchResult result = search_sailor(tables, devices, score, 1e9);
  check_sailor_plan(tables, result.plan);
  EXPECT_EQ(sailor_step_time_s(tables, result.plan), result.step_time_s);
  SailorDevices used(devices.size(), 0);
  for (const SailorStage& stage : result.plan.stages) {
    for (const SailorReplicas& group : stage.replicas) {
      used[static_cast<std::size_t>(group.seat.place)] += group.count * group.seat.tensor;
    }
  }
  for (std::size_t p = 0; p < devices.size(); ++p) EXPECT_LE(used[p], devices[p]);
  return result;
}

TEST(SailorSearch, FindsTheBestOfAllPlansOfFewDevices) {
  for (const std::int64_t memory : {2'150'000'000, 4'000'000'000}) {
    SmallSailor small;
    small.devices["slow"]["mem_per_gpu"] = memory;
    const SailorTables tables(small.read());
    for (const SailorDevices& devices :
         {SailorDevices{1, 0}, {0, 3}, {2, 2}, {1, 4}, {3, 2}, {2, 4}, {4, 2}}) {
      const double best = EveryPlan(tables, devices).best_s();
      const double own = found(tables, devices, SailorScore::published).step_time_s;
      EXPECT_GE(own, best * (1 - 1e-12));
      EXPECT_LE(own, best * 1.02) << devices[0] << " and " << devices[1];
    }
  }
}

TEST(SailorSearch, UnevenSharesAreNoSlower) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  for (const SailorDevices& devices : {SailorDevices{2, 6}, {4, 4}, {8, 24}, {7, 5}}) {
    const double equal = found(tables, devices, SailorScore::published).step_time_s;
    const SailorSearchResult own = found(tables, devices, SailorScore::extended);
    EXPECT_LE(own.step_time_s, equal * 1.001);
    EXPECT_GE(own.step_time_s, own.fractional_s * 0.98);
  }
}

TEST(SailorSearch, TheSameEveryTime) {
  const SmallSailor small;
  const SailorTables tables(small.read());
  for (const SailorScore score : {SailorScore::published, SailorScore::extended}) {
    EXPECT_EQ(found(tables, {6, 10}, score).plan, found(tables, {6, 10}, score).plan);
  }
}

std::string refusal(const SailorTables& tables, const SailorDevices& devices) {
  try {
    search_sailor(tables, devices, SailorScore::published, 10);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SailorSearch, SaysWhyThereIsNoPlan) {
  SmallSailor small;
  const SailorTables tables(small.read());
  EXPECT_NE(refusal(tables, {0, 0}).find("no devices"), std::string::npos);
  EXPECT_NE(refusal(tables, {-1, 1}).find("-1 devices fast"), std::string::npos);
  EXPECT_NE(refusal(tables, {1}).find("devices of 1 places"), std::string::npos);
  small.devices["fast"]["mem_per_gpu"] = 1'900'000'000;
  const SailorTables little(small.read());
  const std::string message = refusal(little, {4, 0});
  EXPECT_NE(message.find("tiny fits nowhere"), std::string::npos) << message;
  EXPECT_NE(message.find("misses by 0.1"), std::string::npos) << message;
}

}  // namespace
}  // namespace heteroperf
