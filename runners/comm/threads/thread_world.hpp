#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/control/control_state.hpp"

namespace heteroperf {

/// Has threads that wait and must look again when the world changes.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  virtual void wake_everyone() = 0;
};

/// The state that all ranks of one process share: who failed, who has finished, who serves
/// messages.
class ThreadWorld final : public PeerWatch {
 public:
  explicit ThreadWorld(int size);

  /// The number of pauses before a waiting thread gives its core away.
  int spins() const { return spins_; }
  /// Shared because a reply may be kept longer than the world lives.
  const std::shared_ptr<ControlState>& state() const { return state_; }
  MessageService& service() { return service_; }

  void fail(RankFailure failure);
  /// The rank's body has returned; it takes part in nothing any more.
  void finish(RankId rank);
  std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const override;
  /// True when failure_among() has a failure. Makes no text, for waiting loops.
  bool in_vain(std::span<const RankId> awaited) const;

  /// Adds a group that is woken when a rank fails or finishes.
  void add(const std::shared_ptr<Wakeable>& group);

 private:
  bool has_finished(RankId rank) const { return finished_[position(rank)].load(); }
  void wake_groups();

  std::shared_ptr<ControlState> state_ = std::make_shared<ControlState>();
  std::vector<std::atomic<bool>> finished_;
  std::atomic<int> finished_count_{0};
  int spins_;
  std::mutex groups_mutex_;
  std::vector<std::weak_ptr<Wakeable>> groups_;
  MessageService service_;
};

/// Makes one communicator per member, in the order of `members` (ranks of the world).
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::shared_ptr<ThreadWorld>& world, std::vector<RankId> members);

}  // namespace heteroperf
