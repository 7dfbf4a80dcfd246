#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "metrics/base/clock.hpp"
#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_proof.hpp"
#include "runners/comm/control/tcp_control.hpp"

// Rank 0's end of the control channel. Every connection begins as a *stranger*; once it has proved
// that it knows the launch's token it becomes the connection of a *peer*, one of the other ranks.
// The hub passes on what concerns everybody (the wish to stop, failures, the end of a rank's work),
// hands messages to the program's handler, and is the one who finds ranks that are silent, have
// ended, or wait for each other for ever.

namespace heteroperf {
namespace {

/// A stranger who has not proved by then that it belongs to the launch is sent away.
constexpr double proof_deadline_s = 10.0;
constexpr std::size_t max_strangers = 1024;
/// Ranks start at different speeds; joining takes at least this long before it fails.
constexpr double least_join_deadline_s = 20.0;
constexpr double flush_deadline_s = 1.0;

class Hub final : public TcpControl {
 public:
  Hub(int size, const CommConfig& config, Reach reach)
      : TcpControl(RankId(0), size, config,
                   [this](const RankFailure& failure) { conclude(failure); }),
        listener_(listen_on_free_port(reach)),
        standstill_(size),
        peers_(size),
        service_([this](RankFailure failure) {
          try {
            failure.own_word = true;
            conclude(failure);
          } catch (const std::exception& error) {
            give_up(error);
          }
        }) {
    address_ = {fresh_token(), listener_.port, own_addresses(reach)};
    start_thread();
  }
  ~Hub() override { stop_thread(); }

  /// The address that the other ranks need to join.
  std::string address() const { return address_.text(); }
  /// Waits until all ranks have joined. Names the first absent one when the deadline has passed.
  void await_spokes() {
    const double deadline_s = std::max(config_.timeout_s, least_join_deadline_s);
    state_->wait_for(deadline_s, [this] { return joined_ == expected() || state_->failed(); });
    if (const auto failed = failure()) throw PeerError(*failed, "joining the run");
    if (joined_ == expected()) return;
    std::unique_lock lock(mutex_);
    const auto absent = std::find_if(peers_.begin() + 1, peers_.end(),
                                     [](const Peer& p) { return p.stage == Stage::absent; });
    const RankId rank = RankId(absent - peers_.begin());
    lock.unlock();
    const RankFailure failed{rank, ErrorKind::timeout,
                             fmt::format("no control connection within {:g} s", deadline_s)};
    conclude(failed);
    throw PeerError(failed, "joining the run");
  }

  void serve(Handler handler) override { service_.serve(std::move(handler)); }
  void post(std::string message) override { service_.submit(rank_, std::move(message), {}); }
  std::string call(std::string message) override {
    return service_.call(rank_, std::move(message), state_);
  }
  void request_stop(std::string reason) override {
    if (state_->stop(reason)) broadcast({Frame::Kind::stop, 0, std::move(reason)});
  }
  void abort(RankFailure failure) override { conclude(failure); }
  void announce_finished() override { finish(rank_); }
  /// Waits for everybody's goodbye and says goodbye to all. The last frames may need a moment to
  /// leave this process.
  void close() override {
    const bool all_left = state_->wait_for(
        config_.timeout_s, [this] { return left_ == expected() || state_->failed(); });
    if (const auto failed = failure()) throw PeerError(*failed, "the end of the run");
    if (!all_left) {
      throw SystemError(
          "the ranks do not take leave of each other",
          fmt::format("{} of {} within {:g} s", left_.load(), expected(), config_.timeout_s), "",
          ErrorKind::timeout);
    }
    broadcast({Frame::Kind::goodbye, 0, ""});
    const double deadline_s = monotonic_s() + flush_deadline_s;
    const auto unsent = [this] {
      std::lock_guard lock(mutex_);
      return std::any_of(peers_.begin(), peers_.end(),
                         [](const Peer& p) { return p.connection && p.connection->has_unsent(); });
    };
    while (unsent() && monotonic_s() < deadline_s) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  /// A rank is absent until its proof was accepted. It has left when it said goodbye, and it is
  /// lost when its connection ended without.
  enum class Stage { absent, joined, left, lost };
  struct Peer {
    Stage stage = Stage::absent;
    std::shared_ptr<Connection> connection;
    double heard_s = 0;
  };
  /// A connection whose other end has not proved yet that it belongs to the launch.
  struct Stranger {
    std::shared_ptr<Connection> connection;  ///< none: admitted, or sent away
    double since_s;
    std::optional<ControlHandshake> handshake;  ///< once it has said hello
  };

  void add_sockets(std::vector<pollfd>& entries) override {
    if (joined_ < expected()) entries.push_back({listener_.socket.fd(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) {
      entries.push_back({stranger.connection->socket().fd(), POLLIN, 0});
    }
    std::lock_guard lock(mutex_);
    for (const Peer& p : peers_) {
      if (!p.connection) continue;
      const int events = POLLIN | (p.connection->has_unsent() ? POLLOUT : 0);
      entries.push_back({p.connection->socket().fd(), static_cast<short>(events), 0});
    }
  }
  /// The time of the next sign of life, or of the end of the patience with a silent rank.
  double next_event_s() override {
    double next_s = next_beat_s();
    const std::lock_guard lock(mutex_);
    for (const Peer& p : peers_) {
      if (p.stage == Stage::joined && p.connection) {
        next_s = std::min(next_s, p.heard_s + config_.timeout_s);
      }
    }
    return next_s;
  }
  bool make_round(double now_s) override {
    admit_strangers(now_s);
    hear_peers(now_s);
    beat(now_s);
    find_silence(now_s);
    return true;
  }
  void admit_strangers(double now_s) {
    while (joined_ < expected() && strangers_.size() < max_strangers) {
      Descriptor socket = accept_connection(listener_.socket);
      if (!socket) break;
      strangers_.push_back({std::make_shared<Connection>(std::move(socket)), now_s, {}});
    }
    for (Stranger& stranger : strangers_) greet(stranger, now_s);
    std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.connection; });
  }
  /// A stranger sends one frame at a time: a hello, then the answer to the challenge. Anything else
  /// ends the connection.
  void greet(Stranger& stranger, double now_s) {
    std::vector<Frame> frames;
    const auto health = stranger.connection->receive(frames);
    if (frames.empty()) {
      const bool late = now_s - stranger.since_s > proof_deadline_s;
      if (health == Connection::Health::ended || late) stranger.connection.reset();
      return;
    }
    if (!stranger.handshake && challenge(stranger, frames.front())) return;
    if (stranger.handshake) admit(stranger, frames.front(), now_s);
    stranger.connection.reset();
  }
  /// Answers a sound hello with rank 0's nonce. False for anything else.
  bool challenge(Stranger& stranger, const Frame& hello) {
    const bool sound = hello.kind == Frame::Kind::hello && is_rank(hello.id) && hello.id > 0 &&
                       hello.payload.size() == nonce_bytes;
    if (!sound) return false;
    stranger.handshake = {hello.id, hello.payload, fresh_nonce()};
    stranger.connection->send({Frame::Kind::challenge, 0, stranger.handshake->hub_nonce});
    return true;
  }
  /// Without the proof a stranger learns nothing, not even that its rank has joined already.
  void admit(const Stranger& stranger, const Frame& answer, double now_s) {
    const ControlHandshake& handshake = *stranger.handshake;
    if (answer.kind != Frame::Kind::answer ||
        !is_control_proof(answer.payload, ControlEnd::spoke, handshake, address_.token)) {
      return;
    }
    std::lock_guard lock(mutex_);
    Peer& joining = peers_[handshake.rank];
    if (joining.stage != Stage::absent) return;
    stranger.connection->trust();
    stranger.connection->send(
        {Frame::Kind::welcome, 0, control_proof(ControlEnd::hub, handshake, address_.token)});
    joining = {Stage::joined, stranger.connection, now_s};
    joined_.fetch_add(1);
    state_->notify();
  }
  /// Hears all frames before it looks at connections that have ended: the rank that failed first
  /// has said why, and the ranks that leave because of it leave next.
  void hear_peers(double now_s) {
    std::vector<RankId> ended;
    for (std::size_t r = 1; r < peers_.size(); ++r) {
      const RankId rank = RankId(r);
      std::shared_ptr<Connection> connection;
      {
        std::lock_guard lock(mutex_);
        connection = peers_[r].connection;
      }
      if (!connection) continue;
      connection->flush();
      std::vector<Frame> frames;
      const auto health = connection->receive(frames);
      if (!frames.empty()) peer(rank).heard_s = now_s;
      for (Frame& frame : frames) handle(rank, std::move(frame), connection);
      if (health == Connection::Health::ended) ended.push_back(rank);
    }
    for (const RankId rank : ended) lose(rank);
  }
  /// A connection has ended. That is a failure unless the rank has said goodbye.
  void lose(RankId rank) {
    const bool expected_end = peer(rank).stage == Stage::left;
    {
      std::lock_guard lock(mutex_);
      peer(rank).connection.reset();
      if (!expected_end) peer(rank).stage = Stage::lost;
    }
    if (!expected_end) conclude(end_of(rank));
  }
  void handle(RankId from, Frame frame, const std::shared_ptr<Connection>& connection) {
    switch (frame.kind) {
      case Frame::Kind::post:
        return service_.submit(from, std::move(frame.payload), {});
      case Frame::Kind::call:
        return service_.submit(
            from, std::move(frame.payload),
            make_reply([connection, wake = wake_, id = frame.id](std::optional<std::string> text) {
              const auto kind = text ? Frame::Kind::reply : Frame::Kind::dropped;
              if (connection->send({kind, id, std::move(text).value_or("")})) wake->signal();
            }));
      case Frame::Kind::stop:
        return request_stop(std::move(frame.payload));
      case Frame::Kind::failure:
        return conclude(decode_failure(frame));
      case Frame::Kind::finished:
        return finish(from);
      case Frame::Kind::goodbye: {
        std::lock_guard lock(mutex_);
        peer(from).stage = Stage::left;
        left_.fetch_add(1);
        return state_->notify();
      }
      case Frame::Kind::heartbeat:
        return standstill_.note(from, decode_heartbeat(frame));
      default:
        return;
    }
  }
  /// Sends the sign of life and judges the waits that the ranks have reported with theirs.
  void beat(double now_s) {
    if (!is_time_to_beat(now_s)) return;
    broadcast({});
    standstill_.note(rank_, overdue_wait(now_s));
    if (const auto stuck = standstill_.verdict(config_.timeout_s)) conclude(*stuck);
  }
  /// Ends the run when a rank has not been heard for the deadline.
  void find_silence(double now_s) {
    const bool paused = has_paused(now_s);
    for (std::size_t r = 1; r < peers_.size(); ++r) {
      Peer& p = peers_[r];
      if (paused) p.heard_s = now_s;
      if (p.stage != Stage::joined || now_s - p.heard_s < config_.timeout_s) continue;
      conclude(silence_of(RankId(r)));
      p.heard_s = now_s;
    }
  }
  void broadcast(const Frame& frame) {
    bool unsent = false;
    {
      std::lock_guard lock(mutex_);
      for (const Peer& p : peers_) {
        if (p.connection) unsent |= p.connection->send(frame);
      }
    }
    if (unsent) wake_->signal();
  }
  /// Ends the run: tells everybody, and only then this process, which may end itself as soon as it
  /// knows.
  void conclude(const RankFailure& failure) {
    std::lock_guard lock(conclude_mutex_);
    if (state_->failed()) return;
    broadcast(failure_frame(failure));
    state_->fail(failure);
  }
  void finish(RankId rank) {
    mark_finished(rank);
    broadcast({Frame::Kind::finished, rank.index(), ""});
  }
  Peer& peer(RankId rank) { return peers_[rank.index()]; }
  int expected() const { return static_cast<int>(peers_.size()) - 1; }

  ControlAddress address_;
  Listener listener_;
  std::vector<Stranger> strangers_;  ///< only for the hub's thread
  Standstill standstill_;            ///< only for the hub's thread
  std::mutex conclude_mutex_;
  std::mutex mutex_;  ///< guards peers_
  std::vector<Peer> peers_;
  std::atomic<int> joined_{0}, left_{0};
  MessageService service_;
};

}  // namespace

ControlHub open_control_hub(int size, const CommConfig& config, Reach reach) {
  auto hub = std::make_shared<Hub>(size, config, reach);
  std::string address = hub->address();
  return {std::move(hub), std::move(address)};
}

void await_control_spokes(TcpControl& hub) { dynamic_cast<Hub&>(hub).await_spokes(); }

}  // namespace heteroperf
