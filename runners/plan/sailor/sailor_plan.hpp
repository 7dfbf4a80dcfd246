#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heteroperf {

/// Some neighbours among the replicas of a stage that are alike.
struct SailorReplicas {
  int count = 1;
  int place = 0;   ///< index of SailorTables::places()
  int tensor = 1;  ///< tensor-parallel degree of each: it takes that many devices
  friend bool operator==(const SailorReplicas&, const SailorReplicas&) = default;
};

/// Layers begin … end−1 and who runs them.
struct SailorStage {
  int begin = 0, end = 0;
  std::vector<SailorReplicas> replicas;
  int width() const;  ///< all replicas: the data-parallel degree
  friend bool operator==(const SailorStage&, const SailorStage&) = default;
};

/// What some neighbours among the pipelines take of a step; pipeline j is replica j of every stage.
struct SailorShare {
  int count = 1;
  std::int64_t micro_batch = 1;
  std::int64_t micro_batches = 1;   ///< of that size
  std::vector<std::int64_t> tails;  ///< sizes of further, smaller ones
  std::int64_t samples() const;     ///< of one pipeline
  friend bool operator==(const SailorShare&, const SailorShare&) = default;
};

/// A plan as Sailor's score sees it.
struct SailorPlan {
  std::vector<SailorStage> stages;
  std::int64_t micro_batch = 1;     ///< of every replica; unused where there are shares
  std::vector<SailorShare> shares;  ///< empty: as many equal micro-batches as the batch needs
  friend bool operator==(const SailorPlan&, const SailorPlan&) = default;
};

/// "[0,13) 24×V100-16 tp4, 3×A100-40 tp1 | …", with the names of the places.
std::string to_string(const SailorPlan& plan, const std::vector<std::string>& places);

}  // namespace heteroperf
