#pragma once

#include <vector>

#include "metrics/base/error.hpp"
#include "runners/plan/plan.hpp"

namespace heteroperf {

/// The number of a transformer block's node ("block12.attn.qkv": 12); −1 for other nodes.
int block_of_node(const std::string& node);

/// Transformer blocks of every stage, as other trainers count layers: what comes before the first
/// block in the first stage, what comes after the last one in the last. Notes, naming `trainer`,
/// blocks that two stages share, are out of order or missing, and other nodes elsewhere.
std::vector<int> stage_blocks(const Plan& plan, const char* trainer, ProblemList& problems);

}  // namespace heteroperf
