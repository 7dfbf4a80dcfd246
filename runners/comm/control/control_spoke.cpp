#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "metrics/base/clock.hpp"
#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_proof.hpp"
#include "runners/comm/control/tcp_control.hpp"

// The end of the control channel on every rank but 0. It knocks at rank 0's addresses in turn until
// one of them answers with the proof that it is rank 0; from then on it has one connection, which
// carries everything.

namespace heteroperf {
namespace {

constexpr double connect_attempt_s = 3.0;
/// The pauses between attempts to connect are twice as long each time.
constexpr double first_pause_s = 0.02, longest_pause_s = 1.0;
/// The time to wait for rank 0's echo of a failure: one round trip to a busy rank 0.
constexpr double abort_echo_s = 1.0;

class Spoke final : public TcpControl {
 public:
  /// Rank 0 has already proved itself on the connection.
  Spoke(RankId rank, int size, const CommConfig& config, std::unique_ptr<Connection> connection)
      : TcpControl(rank, size, config, [this](const RankFailure& failure) { spread(failure); }),
        connection_(std::move(connection)),
        heard_s_(monotonic_s()) {
    start_thread();
  }
  ~Spoke() override { stop_thread(); }

  void serve(Handler) override { HETEROPERF_EXPECT(rank_ == RankId(0)); }
  void post(std::string message) override { send({Frame::Kind::post, 0, std::move(message)}); }
  std::string call(std::string message) override {
    auto pending = std::make_shared<PendingCall>();
    std::uint64_t id = 0;
    {
      std::lock_guard lock(calls_mutex_);
      id = next_call_++;
      calls_[id] = pending;
    }
    send({Frame::Kind::call, id, std::move(message)});
    return state_->await(*pending);
  }
  void request_stop(std::string reason) override {
    if (state_->stop(reason)) send({Frame::Kind::stop, 0, std::move(reason)});
  }
  void abort(RankFailure failure) override {
    send(failure_frame(failure));
    // Rank 0's echo shows that the news is out; this process may end itself next.
    state_->wait_for(abort_echo_s, [this] { return state_->failed(); });
    state_->fail(std::move(failure));
  }
  void announce_finished() override {
    mark_finished(rank_);
    send({Frame::Kind::finished, rank_.index(), ""});
  }
  void close() override {
    send({Frame::Kind::goodbye, 0, ""});
    const bool answered =
        state_->wait_for(config_.timeout_s, [this] { return goodbye_.load() || state_->failed(); });
    if (goodbye_) return;
    if (const auto failed = failure()) throw PeerError(*failed, "the end of the run");
    HETEROPERF_ENSURE(!answered);
    throw SystemError("rank 0 does not take leave",
                      fmt::format("no answer within {:g} s", config_.timeout_s), "",
                      ErrorKind::timeout);
  }

 private:
  void send(const Frame& frame) {
    if (connection_->send(frame)) wake_->signal();
  }
  /// Tells rank 0, and by it everybody, before this process knows.
  void spread(const RankFailure& failure) {
    send(failure_frame(failure));
    state_->fail(failure);
  }
  void add_sockets(std::vector<pollfd>& entries) override {
    const int events = POLLIN | (connection_->has_unsent() ? POLLOUT : 0);
    entries.push_back({connection_->socket().fd(), static_cast<short>(events), 0});
  }
  double next_event_s() override { return std::min(next_beat_s(), heard_s_ + config_.timeout_s); }
  bool make_round(double now_s) override {
    connection_->flush();
    if (hear(now_s) == Connection::Health::ended) {
      if (!goodbye_) state_->fail(end_of(RankId(0)));
      return false;
    }
    if (is_time_to_beat(now_s)) send(heartbeat_frame(overdue_wait(now_s)));
    find_silence(now_s);
    return true;
  }
  Connection::Health hear(double now_s) {
    std::vector<Frame> frames;
    const auto health = connection_->receive(frames);
    if (!frames.empty()) heard_s_ = now_s;
    for (Frame& frame : frames) handle(std::move(frame));
    return health;
  }
  void handle(Frame frame) {
    switch (frame.kind) {
      case Frame::Kind::reply:
        return settle(frame.id, std::move(frame.payload));
      case Frame::Kind::dropped:
        return settle(frame.id, std::nullopt);
      case Frame::Kind::stop:
        state_->stop(std::move(frame.payload));
        return;
      case Frame::Kind::failure:
        state_->fail(decode_failure(frame));
        return;
      case Frame::Kind::finished:
        if (is_rank(frame.id)) mark_finished(RankId(frame.id));
        return;
      case Frame::Kind::goodbye:
        goodbye_ = true;
        return state_->notify();
      default:
        return;  // a heartbeat: it was heard
    }
  }
  /// Ends the call with that id. A call that is no longer known was given up.
  void settle(std::uint64_t id, std::optional<std::string> reply) {
    std::shared_ptr<PendingCall> pending;
    {
      std::lock_guard lock(calls_mutex_);
      const auto call = calls_.find(id);
      if (call == calls_.end()) return;
      pending = std::move(call->second);
      calls_.erase(call);
    }
    state_->settle(*pending, std::move(reply));
  }
  /// Ends the run when rank 0 has not been heard for the deadline.
  void find_silence(double now_s) {
    if (has_paused(now_s)) heard_s_ = now_s;
    if (now_s - heard_s_ < config_.timeout_s) return;
    heard_s_ = now_s;
    if (goodbye_ || state_->failed()) return;
    // Rank 0 may be woken later, when this process has gone. It then learns the reason.
    spread(silence_of(RankId(0)));
  }

  std::unique_ptr<Connection> connection_;
  double heard_s_;
  std::mutex calls_mutex_;
  std::map<std::uint64_t, std::shared_ptr<PendingCall>> calls_;
  std::uint64_t next_call_ = 1;
  std::atomic<bool> goodbye_{false};
};

/// Waits for the next frame and returns its payload. Empty where it is of another kind or does not
/// come.
std::optional<std::string> await_payload(Connection& stranger, Frame::Kind kind,
                                         double deadline_s) {
  std::vector<Frame> frames;
  while (frames.empty() && monotonic_s() < deadline_s) {
    readable_within(stranger.socket(), deadline_s - monotonic_s());
    if (stranger.receive(frames) == Connection::Health::ended) break;
  }
  if (frames.empty() || frames.front().kind != kind) return std::nullopt;
  return std::move(frames.front().payload);
}

/// True once the other end has proved to be rank 0 and has taken this rank in.
bool is_admitted(Connection& stranger, RankId rank, const std::string& token) {
  const double deadline_s = monotonic_s() + connect_attempt_s;
  ControlHandshake handshake{rank.index(), fresh_nonce(), {}};
  stranger.send({Frame::Kind::hello, handshake.rank, handshake.rank_nonce});
  const auto nonce = await_payload(stranger, Frame::Kind::challenge, deadline_s);
  if (!nonce || nonce->size() != nonce_bytes) return false;
  handshake.hub_nonce = *nonce;
  stranger.send({Frame::Kind::answer, 0, control_proof(ControlEnd::spoke, handshake, token)});
  const auto welcome = await_payload(stranger, Frame::Kind::welcome, deadline_s);
  return welcome && is_control_proof(*welcome, ControlEnd::hub, handshake, token);
}

/// Tries one address of rank 0. Null, with `reason` set, when rank 0 is not there.
std::unique_ptr<Connection> knock(RankId rank, const ControlAddress& address,
                                  const std::string& host, std::string& reason) {
  Descriptor socket = connect_to(host, address.port, connect_attempt_s, reason);
  if (!socket) return nullptr;
  auto connection = std::make_unique<Connection>(std::move(socket));
  if (!is_admitted(*connection, rank, address.token)) {
    reason = "rank 0 does not answer there";
    return nullptr;
  }
  connection->trust();
  return connection;
}

}  // namespace

std::shared_ptr<TcpControl> open_control_spoke(RankId rank, int size, const CommConfig& config,
                                               const std::string& address_text) {
  const ControlAddress address = ControlAddress::parse(address_text);
  const double deadline_s = monotonic_s() + std::max(config.timeout_s, connect_attempt_s);
  double pause_s = first_pause_s;
  std::string tried;
  while (true) {
    tried.clear();
    for (const std::string& host : address.hosts) {
      std::string reason;
      if (auto connection = knock(rank, address, host, reason)) {
        return std::make_shared<Spoke>(rank, size, config, std::move(connection));
      }
      tried +=
          fmt::format("{}{} port {}: {}", tried.empty() ? "" : "; ", host, address.port, reason);
    }
    const double rest_s = deadline_s - monotonic_s();
    if (rest_s <= 0) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause_s, rest_s)));
    pause_s = std::min(2 * pause_s, longest_pause_s);
  }
  throw SystemError(fmt::format("rank {} cannot reach rank 0's control channel", rank.value()),
                    tried, "Allow TCP connections between the hosts of the run",
                    ErrorKind::environment);
}

}  // namespace heteroperf
