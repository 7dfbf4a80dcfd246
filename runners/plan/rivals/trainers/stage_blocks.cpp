// Other trainers cut a model between transformer blocks and count blocks per stage; a plan cuts
// between nodes and names them. This file counts a plan's blocks by the names of their nodes and
// says where a cut is not between blocks.
//
// Nodes of block 12 are called "block12" or "block12.something". All others (embedding, head, loss)
// surround the blocks and belong to the first or the last stage; anywhere else they are a problem.
#include "runners/plan/rivals/trainers/stage_blocks.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <string_view>

namespace heteroperf {
namespace {

constexpr std::string_view block_prefix = "block";

/// Walks the stages' nodes in order and keeps count.
class BlockCount {
 public:
  BlockCount(const Plan& plan, const char* trainer, ProblemList& problems)
      : plan_(plan), trainer_(trainer), problems_(problems), counts_(plan.stages.size(), 0) {}

  std::vector<int> run() {
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      seen_ = false;
      for (const std::string& node : plan_.stages[s].nodes) {
        const int block = block_of_node(node);
        if (block < 0) {
          check_other(s, node);
        } else {
          check_block(s, block);
        }
      }
    }
    if (last_ < 0) problems_.add("the plan has no transformer blocks", trainer_);
    return std::move(counts_);
  }

 private:
  /// Counts a block when its first node comes; a block must follow the last one in the same or the
  /// next stage, whole.
  void check_block(std::size_t stage, int block) {
    seen_ = true;
    if (block == last_ && stage == stage_of_last_) return;
    if (block == last_ + 1) {
      last_ = block;
      stage_of_last_ = stage;
      ++counts_[stage];
      return;
    }
    if (block == last_) {
      problems_.add(
          fmt::format("block {} is cut between stages {} and {}", block, stage_of_last_, stage),
          fmt::format("{} moves whole layers", trainer_));
    } else {
      problems_.add(fmt::format("stage {} has block {} after block {}", stage, block, last_),
                    fmt::format("{} has its layers in order", trainer_));
    }
    last_ = block;
    stage_of_last_ = stage;
  }

  /// Nodes that belong to no block may stand before the first block, in the first stage, or after
  /// the last one, in the last stage.
  void check_other(std::size_t stage, const std::string& node) {
    const bool before = stage == 0 && !seen_;
    const bool after =
        stage + 1 == plan_.stages.size() && (seen_ || counts_[stage] > 0 || last_ >= 0);
    const bool leads_last = stage > 0 && !seen_ && has_block_after(stage, node);
    if (before || (after && !leads_last)) return;
    problems_.add(
        fmt::format("stage {} has the node '{}'", stage, node),
        fmt::format("{} has what surrounds the blocks in its first and last stage", trainer_));
  }

  /// True where a block of the stage comes after this node.
  bool has_block_after(std::size_t stage, const std::string& node) const {
    bool after = false;
    for (const std::string& name : plan_.stages[stage].nodes) {
      if (after && block_of_node(name) >= 0) return true;
      after |= name == node;
    }
    return false;
  }

  const Plan& plan_;
  const char* trainer_;
  ProblemList& problems_;
  std::vector<int> counts_;
  int last_ = -1;
  std::size_t stage_of_last_ = 0;
  bool seen_ = false;  ///< a block of this stage
};

}  // namespace

// "block12.attn.qkv" and "block12" are of block 12, "blocks.3" and "block12x" of none.
int block_of_node(const std::string& node) {
  if (!node.starts_with(block_prefix)) return -1;
  int block = -1;
  const char* begin = node.data() + block_prefix.size();
  const auto [end, error] = std::from_chars(begin, node.data() + node.size(), block);
  const bool ends = end == node.data() + node.size() || *end == '.';
  return error == std::errc() && ends ? block : -1;
}

std::vector<int> stage_blocks(const Plan& plan, const char* trainer, ProblemList& problems) {
  return BlockCount(plan, trainer, problems).run();
}

}  // namespace heteroperf
