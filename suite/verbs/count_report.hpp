#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workloads/graph_counts.hpp"
#include "workloads/graph_memory.hpp"

namespace heteroperf {

/// What `count` answers: the counts of one model for a batch.
struct CountReport {
  std::string model, graph_hash;
  Input input;
  std::int64_t classes = 0;
  GraphCounts counts;
  MemoryEstimate memory;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::vector<Convention> conventions;  ///< the extra ones asked for
  bool per_layer = false;
};

/// The document of `count --json`.
std::string count_json_text(const CountReport& report);
/// The same as a table.
std::string count_table(const CountReport& report);

}  // namespace heteroperf
