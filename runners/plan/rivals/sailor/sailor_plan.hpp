#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_tables.hpp"

namespace heteroperf {

/// Neighbours among the replicas of a stage that have the same seat.
struct SailorReplicas {
  int count = 1;
  SailorSeat seat;
  friend bool operator==(const SailorReplicas&, const SailorReplicas&) = default;
};

/// Some layers and the replicas that run them.
struct SailorStage {
  SailorLayers layers;
  std::vector<SailorReplicas> replicas;
  /// The data-parallel degree: the number of all replicas.
  int width() const;
  /// The seat of every replica.
  std::vector<SailorSeat> seats() const;
  /// Appends replicas; those of the last group's seat join it.
  void append(const SailorReplicas& group);
  friend bool operator==(const SailorStage&, const SailorStage&) = default;
};

/// The part of a step that each of some neighbouring pipelines takes; pipeline j is replica j of
/// every stage.
struct SailorShare {
  int count = 1;
  std::int64_t micro_batch = 1;
  std::int64_t micro_batches = 1;   ///< the number of micro-batches of that size
  std::vector<std::int64_t> tails;  ///< sizes of further, smaller ones
  std::int64_t samples() const;     ///< samples of one pipeline
  friend bool operator==(const SailorShare&, const SailorShare&) = default;
};

/// A plan as Sailor's score sees it.
struct SailorPlan {
  std::vector<SailorStage> stages;
  std::int64_t micro_batch = 1;     ///< samples of every replica; unused where there are shares
  std::vector<SailorShare> shares;  ///< empty: as many equal micro-batches as the batch needs
  /// Devices that the plan takes, of so many places.
  SailorDevices devices(std::size_t places) const;
  friend bool operator==(const SailorPlan&, const SailorPlan&) = default;
};

/// "24xV100-16 tp4, 3xA100-40 tp1", with the names of the places.
std::string replicas_text(const SailorStage& stage, const std::vector<std::string>& places);
/// "2x(9x4 + 2 + 1), 1x(4x2)", or "micro-batch 4" where there are no shares.
std::string shares_text(const SailorPlan& plan);
/// "[0,13) 24xV100-16 tp4, 3xA100-40 tp1 | …; micro-batch 4".
std::string to_string(const SailorPlan& plan, const std::vector<std::string>& places);

/// Reads a plan file of Sailor's. Throws UserError with everything wrong: several pipelines, layers
/// that do not follow each other, devices that `tables` do not know, counts that contradict each
/// other.
SailorPlan read_sailor_plan(const std::filesystem::path& file, const SailorTables& tables);

}  // namespace heteroperf
