// Other trainers cut a model between transformer blocks and count blocks per stage; a plan cuts
// between nodes and names them. This file counts a plan's blocks by the names of their nodes and
// says where a cut is not between blocks.
//
// Nodes of block 12 are called "block12" or "block12.something". All others (embedding, head, loss)
// surround the blocks and belong to the first or the last stage; anywhere else they are a problem.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "runners/plan/rivals/trainers/trainer_plans.hpp"

namespace heteroperf {

// "block12.attn.qkv" and "block12" are of block 12, "blocks.3" and "block12x" of none.
int block_of_node(const std::string& node) {
  constexpr std::string_view prefix = "block";
  if (!node.starts_with(prefix)) return -1;
  int block = -1;
  const char *begin = node.data() + prefix.size(), *stop = node.data() + node.size();
  const auto [end, error] = std::from_chars(begin, stop, block);
  return error == std::errc() && (end == stop || *end == '.') ? block : -1;
}

// A block is counted when its first node comes; it must follow the last one in the same or the next
// stage, whole. Nodes of no block may stand before the first block, in the first stage, or after
// the last one, in the last stage.
IdVector<StageId, int> stage_blocks(const Plan& plan, const char* trainer, ProblemList& problems) {
  IdVector<StageId, int> counts(plan.stages.size(), 0);
  int last = -1;
  StageId stage_of_last;
  for (const StageId s : plan.stages.ids()) {
    const std::vector<std::string>& nodes = plan.stages[s].nodes;
    const auto first = std::ranges::find_if(
        nodes, [](const std::string& node) { return block_of_node(node) >= 0; });
    for (auto node = nodes.begin(); node != nodes.end(); ++node) {
      const int block = block_of_node(*node);
      if (block < 0) {
        const bool leads = s == 0 && node < first;
        const bool trails = node > first || (first == nodes.end() && last >= 0);
        if (leads || (trails && s.index() + 1 == plan.stages.size())) continue;
        problems.add(
            fmt::format("stage {} has the node '{}'", s.value(), *node),
            fmt::format("{} has what surrounds the blocks in its first and last stage", trainer));
        continue;
      }
      if (block == last && s == stage_of_last) continue;
      if (block == last + 1) {
        ++counts[s];
      } else if (block == last) {
        problems.add(fmt::format("block {} is cut between stages {} and {}", block,
                                 stage_of_last.value(), s.value()),
                     fmt::format("{} moves whole layers", trainer));
      } else {
        problems.add(fmt::format("stage {} has block {} after block {}", s.value(), block, last),
                     fmt::format("{} has its layers in order", trainer));
      }
      last = block;
      stage_of_last = s;
    }
  }
  if (last < 0) problems.add("the plan has no transformer blocks", trainer);
  return counts;
}

}  // namespace heteroperf
