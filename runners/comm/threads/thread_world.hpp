#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runners/comm/control/control_state.hpp"
#include "runners/comm/control/message_service.hpp"
#include "runners/comm/peer_watch.hpp"

namespace heteroperf {

/// Something whose waiting threads must look again.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  virtual void wake_everyone() = 0;
};

/// What all ranks of one process share: who failed, who has finished, who serves messages.
class ThreadWorld final : public PeerWatch {
 public:
  explicit ThreadWorld(int size);

  int size() const { return static_cast<int>(finished_.size()); }
  /// Pauses before a waiting thread gives its core away.
  int spins() const { return spins_; }
  ControlState& state() { return *state_; }
  std::shared_ptr<ControlState> shared_state() const { return state_; }
  MessageService& service() { return service_; }

  void fail(RankFailure failure);
  /// The rank's body has returned; it takes part in nothing any more.
  void finish(RankId rank);
  bool has_finished(RankId rank) const;
  std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const override;
  /// failure_among() without the text, for waiting loops.
  bool in_vain(std::span<const RankId> awaited) const;

  /// Woken when a rank fails or finishes.
  void add(const std::shared_ptr<Wakeable>& group);

 private:
  void wake_groups();

  std::shared_ptr<ControlState> state_ = std::make_shared<ControlState>();
  std::vector<std::atomic<bool>> finished_;
  std::atomic<int> finished_count_{0};
  int spins_;
  std::mutex groups_mutex_;
  std::vector<std::weak_ptr<Wakeable>> groups_;
  MessageService service_;
};

/// One rank's end of the world's control channel.
std::shared_ptr<ControlChannel> make_thread_control(std::shared_ptr<ThreadWorld> world,
                                                    RankId rank);

}  // namespace heteroperf
