#pragma once

#include <numeric>
#include <vector>

#include "runners/schedule/check/token_machine.hpp"
#include "runners/schedule/ir/collective_index.hpp"
#include "runners/schedule/ir/message_index.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Merges numbers into sets.
class UnionFind {
 public:
  explicit UnionFind(std::int32_t size) : parent_(static_cast<std::size_t>(size)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  std::int32_t find(std::int32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void unite(std::int32_t a, std::int32_t b) { parent_[find(b)] = find(a); }

 private:
  std::vector<std::int32_t> parent_;
};

/// The messages and collectives of all programs, in order, with the ends of each message matched:
/// the n-th send of a channel with its n-th receive.
class ProgramSteps {
 public:
  struct Step {
    TokenMachine::Place place;
    std::int32_t run = -1;      ///< steps that one rank takes together
    std::int32_t subject = -1;  ///< channel, or collective; −1: not the graph's
    std::int32_t message = -1;
    std::int32_t partner = -1;  ///< the other end, among the steps
    Op op = Op::idle;
  };

  ProgramSteps(const Schedule& schedule, const MessageIndex& messages,
               const CollectiveIndex& collectives);

  const std::vector<Step>& all() const { return steps_; }
  std::int32_t runs() const { return runs_; }
  bool begins_run(std::size_t i) const { return i == 0 || steps_[i - 1].run != steps_[i].run; }
  /// Runs at both ends of a message, and those of a collective, are one event.
  UnionFind events(const CollectiveIndex& collectives) const;

 private:
  void gather(int rank, const MessageIndex& messages, const CollectiveIndex& collectives);
  bool together(const Step& before, const Step& step) const;
  void match(int channels);

  const Schedule* schedule_;
  std::vector<Step> steps_;
  std::int32_t runs_ = 0;
};

}  // namespace heteroperf
