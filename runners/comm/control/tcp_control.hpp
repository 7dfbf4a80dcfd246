#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runners/comm/control/control_state.hpp"
#include "runners/comm/control/socket.hpp"
#include "runners/comm/control/standstill.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// A control channel between processes: a star of TCP connections with rank 0 (the *hub*) in the
/// middle and a *spoke* to every other rank. One thread per rank sends and watches signs of life,
/// so a rank that computes is alive and a rank that is stopped is not.
class TcpControl : public ControlChannel, public PeerWatch {
 public:
  /// Tells all ranks that this one has done its work: it takes part in nothing but the end.
  virtual void announce_finished() = 0;
  /// Takes leave of rank 0, or of everybody. Throws PeerError when somebody fails meanwhile.
  virtual void close() = 0;

  std::optional<std::string> stop_requested() const override { return state_->stop_reason(); }
  std::optional<RankFailure> failure() const override { return state_->failure(); }
  std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const override;
  void waits_for(std::span<const RankId> needed, Bytes under_way) const override;
  void waits_no_more() const override { waits_->waits_no_more(); }

 protected:
  /// Tells everybody of a failure that this rank has found, and only then this process, which may
  /// end itself as soon as it knows.
  using Spread = std::function<void(const RankFailure&)>;

  TcpControl(RankId rank, int size, const CommConfig& config, Spread spread);

  /// The control thread works in rounds: it sleeps until a socket of add_sockets() is ready, until
  /// next_event_s() or until wake_ is signalled, and then makes a round, which returns false to
  /// end the thread. A derived class starts the thread when it is complete and stops it before
  /// anything that a round uses dies.
  void start_thread();
  void stop_thread();
  virtual void add_sockets(std::vector<pollfd>& entries) = 0;
  virtual double next_event_s() = 0;
  virtual bool make_round(double now_s) = 0;

  /// True once per heartbeat period, when it is time for the next sign of life.
  bool is_time_to_beat(double now_s);
  double next_beat_s() const { return last_beat_s_ + config_.heartbeat_s; }
  void mark_finished(RankId rank);
  bool is_rank(std::uint64_t id) const { return id < finished_at_s_.size(); }
  RankFailure silence_of(RankId rank) const;
  static RankFailure end_of(RankId rank);
  /// The wait that this rank reports with a sign of life. It is reported late enough to be worth
  /// it, and early enough for rank 0 to be sure by the deadline.
  std::optional<OverdueWait> overdue_wait(double now_s) const;
  /// True when this process itself has slept since the round before. Its waits then get a new
  /// deadline, as everybody else should.
  bool has_paused(double now_s) const;
  /// The control thread cannot go on. Where there is no memory to tell the others, they find this
  /// rank's connection closed when its process has ended.
  void give_up(const std::exception& error) noexcept;

  const RankId rank_;
  const CommConfig config_;
  /// Shared because a reply may be kept longer than the channel lives.
  std::shared_ptr<ControlState> state_ = std::make_shared<ControlState>();
  std::shared_ptr<WakeUp> wake_ = std::make_shared<WakeUp>();

 private:
  void run();

  const Spread spread_;
  const std::shared_ptr<WaitLedger> waits_;
  std::vector<std::atomic<double>> finished_at_s_;  ///< 0: still at work
  std::atomic<int> finished_count_{0};
  double last_beat_s_ = 0, last_round_s_ = 0;
  std::atomic<bool> ending_{false};
  std::thread thread_;
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
