#pragma once

#include <nlohmann/json.hpp>

#include "runners/plan/ready/plan_memory.hpp"

namespace heteroperf {

/// Writes what a rank holds at its fullest moment, in bytes by use.
inline nlohmann::ordered_json memory_ledger_json(const MemoryLedger& ledger) {
  return {{"weights_bytes", ledger.weights.value()},
          {"gradients_bytes", ledger.gradients.value()},
          {"optimizer_bytes", ledger.optimizer.value()},
          {"activations_bytes", ledger.activations.value()},
          {"buffers_bytes", ledger.buffers.value()}};
}

}  // namespace heteroperf
