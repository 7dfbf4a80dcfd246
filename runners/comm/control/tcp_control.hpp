#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/control/control_state.hpp"
#include "runners/comm/control/socket.hpp"
#include "runners/comm/control/wait_ledger.hpp"
#include "runners/comm/peer_watch.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// A control channel between processes: a star of TCP connections with rank 0 in the middle. One
/// thread per rank sends and watches signs of life, so a rank that computes is alive and a rank
/// that is stopped is not.
class TcpControl : public ControlChannel, public PeerWatch {
 public:
  /// This rank has done its work: it takes part in nothing but the end.
  virtual void announce_finished() = 0;
  /// Takes leave of rank 0, or of everybody. Throws PeerError when somebody fails meanwhile.
  virtual void close() = 0;

  std::optional<std::string> stop_requested() const override { return state_->stop_reason(); }
  std::optional<RankFailure> failure() const override { return state_->failure(); }
  std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const override;
  void waits_for(std::span<const RankId> needed, Bytes under_way) const override;
  void waits_no_more() const override { waits_->waits_no_more(); }

 protected:
  /// Tells everybody of a failure that this rank has found, before this process knows: it may end
  /// itself as soon as it does.
  using Spread = std::function<void(const RankFailure&)>;

  TcpControl(RankId rank, int size, const CommConfig& config, Spread spread);

  /// The control thread cannot go on. Where there is no memory to tell the others, they find this
  /// rank's connection closed when its process has ended.
  void give_up(const std::exception& error) noexcept;
  void mark_finished(RankId rank);
  bool is_rank(std::uint64_t id) const { return id < finished_at_s_.size(); }
  RankFailure silence_of(RankId rank) const;
  static RankFailure end_of(RankId rank);
  /// What this rank says with a sign of life: late enough, and early enough for rank 0 to be sure
  /// by the deadline.
  std::optional<OverdueWait> overdue_wait(double now_s) const;
  /// Whether this process itself has slept between two rounds of its thread; its wait then gets a
  /// new deadline, as everybody shall.
  bool has_paused(double last_round_s, double now_s) const;

  const RankId rank_;
  const CommConfig config_;
  /// Shared because a reply may be kept longer than the channel lives.
  std::shared_ptr<ControlState> state_ = std::make_shared<ControlState>();
  std::shared_ptr<WakeUp> wake_ = std::make_shared<WakeUp>();

 private:
  const Spread spread_;
  const std::shared_ptr<WaitLedger> waits_;
  std::vector<std::atomic<double>> finished_at_s_;  ///< 0: still at work
  std::atomic<int> finished_count_{0};
};

/// Rank 0's end, and the words by which the others find it.
struct ControlHub {
  std::shared_ptr<TcpControl> control;
  std::string address;  ///< opaque; holds the session's secret
};
ControlHub open_control_hub(int size, const CommConfig& config, Reach reach);
/// Returns when every rank has joined. Throws PeerError naming one that has not within the
/// deadline.
void await_control_spokes(TcpControl& hub);

/// Joins rank 0. Throws SystemError{environment} naming every address tried.
std::shared_ptr<TcpControl> open_control_spoke(RankId rank, int size, const CommConfig& config,
                                               const std::string& address);

}  // namespace heteroperf
