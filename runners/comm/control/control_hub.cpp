#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include "metrics/base/clock.hpp"
#include "runners/comm/control/connection.hpp"
#include "runners/comm/control/control_address.hpp"
#include "runners/comm/control/control_proof.hpp"
#include "runners/comm/control/message_service.hpp"
#include "runners/comm/control/standstill.hpp"
#include "runners/comm/control/tcp_control.hpp"

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
  Hub(int size, const CommConfig& config, Reach reach);
  ~Hub() override;

  std::string address() const { return address_.text(); }
  void await_spokes();

  void serve(Handler handler) override { service_.serve(std::move(handler)); }
  void post(std::string message) override { service_.submit(rank_, std::move(message), {}); }
  std::string call(std::string message) override;
  void request_stop(std::string reason) override;
  void abort(RankFailure failure) override { conclude(failure); }
  void announce_finished() override { finish(rank_); }
  void close() override;

 private:
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

  void run();
  void wait_for_events();
  void admit_strangers(double now_s);
  void greet(Stranger& stranger, double now_s);
  bool challenge(Stranger& stranger, const Frame& hello);
  void admit(const Stranger& stranger, const Frame& answer, double now_s);
  void hear_peers(double now_s);
  void lose(RankId rank);
  void handle(RankId from, Frame frame, const std::shared_ptr<Connection>& connection);
  void beat(double now_s);
  void find_silence(double now_s);
  double next_event_s();
  void broadcast(const Frame& frame);
  /// Tells everybody before this process knows: it may end itself as soon as it does.
  void conclude(const RankFailure& failure);
  void finish(RankId rank);
  Peer& peer(RankId rank) { return peers_[static_cast<std::size_t>(rank.value())]; }
  int expected() const { return static_cast<int>(peers_.size()) - 1; }

  ControlAddress address_;
  Listener listener_;
  std::vector<Stranger> strangers_;  ///< of the hub's thread
  double last_beat_s_ = 0, last_round_s_ = 0;
  Standstill standstill_;  ///< of the hub's thread
  std::mutex conclude_mutex_;
  std::mutex mutex_;  ///< guards peers_
  std::vector<Peer> peers_;
  std::atomic<int> joined_{0}, left_{0};
  std::atomic<bool> ending_{false};
  MessageService service_;
  std::thread thread_;
};

Hub::Hub(int size, const CommConfig& config, Reach reach)
    : TcpControl(RankId(0), size, config,
                 [this](const RankFailure& failure) { conclude(failure); }),
      listener_(listen_on_free_port(reach)),
      standstill_(size),
      peers_(static_cast<std::size_t>(size)),
      service_([this](RankFailure failure) {
        try {
          failure.reason = "control handler: " + failure.reason;
          failure.own_word = true;
          conclude(failure);
        } catch (const std::exception& error) {
          give_up(error);
        }
      }) {
  address_ = {fresh_token(), listener_.port, own_addresses(reach)};
  last_round_s_ = monotonic_s();
  thread_ = std::thread([this] { run(); });
}

Hub::~Hub() {
  ending_ = true;
  wake_->signal();
  thread_.join();
}

void Hub::await_spokes() {
  const double deadline_s = std::max(config_.timeout_s, least_join_deadline_s);
  state_->wait_for(deadline_s, [this] { return joined_ == expected() || state_->failed(); });
  if (const auto failed = failure()) throw PeerError(*failed, "joining the run");
  if (joined_ == expected()) return;
  std::unique_lock lock(mutex_);
  const auto absent = std::find_if(peers_.begin() + 1, peers_.end(),
                                   [](const Peer& p) { return p.stage == Stage::absent; });
  const RankId rank(static_cast<std::int32_t>(absent - peers_.begin()));
  lock.unlock();
  const RankFailure failed{rank, ErrorKind::timeout,
                           fmt::format("no control connection within {:g} s", deadline_s)};
  conclude(failed);
  throw PeerError(failed, "joining the run");
}

std::string Hub::call(std::string message) {
  auto pending = std::make_shared<PendingCall>();
  auto state = state_;
  service_.submit(
      rank_, std::move(message),
      make_reply([state, pending](std::string text) { state->complete(*pending, std::move(text)); },
                 [state, pending] { state->drop(*pending); }));
  return state->await(*pending);
}

void Hub::request_stop(std::string reason) {
  if (state_->stop(reason)) broadcast({Frame::Kind::stop, 0, std::move(reason)});
}

void Hub::close() {
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

void Hub::run() try {
  while (!ending_) {
    wait_for_events();
    const double now_s = monotonic_s();
    admit_strangers(now_s);
    hear_peers(now_s);
    beat(now_s);
    find_silence(now_s);
    last_round_s_ = now_s;
  }
} catch (const std::exception& error) {
  give_up(error);
}

void Hub::wait_for_events() {
  std::vector<pollfd> entries{{wake_->fd(), POLLIN, 0}};
  if (joined_ < expected()) entries.push_back({listener_.socket.fd(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    entries.push_back({stranger.connection->socket().fd(), POLLIN, 0});
  }
  {
    std::lock_guard lock(mutex_);
    for (const Peer& p : peers_) {
      if (!p.connection) continue;
      const int events = POLLIN | (p.connection->has_unsent() ? POLLOUT : 0);
      entries.push_back({p.connection->socket().fd(), static_cast<short>(events), 0});
    }
  }
  const double rest_s = next_event_s() - monotonic_s();
  poll(entries.data(), entries.size(), std::max(0, static_cast<int>(std::ceil(rest_s * 1e3))));
  wake_->clear();
}

void Hub::admit_strangers(double now_s) {
  while (joined_ < expected() && strangers_.size() < max_strangers) {
    Descriptor socket = accept_connection(listener_.socket);
    if (!socket) break;
    strangers_.push_back({std::make_shared<Connection>(std::move(socket)), now_s, {}});
  }
  for (Stranger& stranger : strangers_) greet(stranger, now_s);
  std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.connection; });
}

/// One frame at a time: a hello, then the answer to the challenge. Anything else ends it.
void Hub::greet(Stranger& stranger, double now_s) {
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

bool Hub::challenge(Stranger& stranger, const Frame& hello) {
  const bool sound = hello.kind == Frame::Kind::hello && is_rank(hello.id) && hello.id > 0 &&
                     hello.payload.size() == nonce_bytes;
  if (!sound) return false;
  stranger.handshake = {hello.id, hello.payload, fresh_nonce()};
  stranger.connection->send({Frame::Kind::challenge, 0, stranger.handshake->hub_nonce});
  return true;
}

/// Nothing of rank 0's, not even whether the rank is there already, is told without the proof.
void Hub::admit(const Stranger& stranger, const Frame& answer, double now_s) {
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

/// The next sign of life, or the end of somebody's patience with a rank.
double Hub::next_event_s() {
  double next_s = last_beat_s_ + config_.heartbeat_s;
  const std::lock_guard lock(mutex_);
  for (const Peer& p : peers_) {
    if (p.stage == Stage::joined && p.connection) {
      next_s = std::min(next_s, p.heard_s + config_.timeout_s);
    }
  }
  return next_s;
}

/// All that was said counts before anybody's end: the first words tell the cause, and who leaves
/// because of it leaves next.
void Hub::hear_peers(double now_s) {
  std::vector<RankId> ended;
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    const RankId rank(static_cast<std::int32_t>(r));
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

void Hub::lose(RankId rank) {
  const bool expected_end = peer(rank).stage == Stage::left;
  {
    std::lock_guard lock(mutex_);
    peer(rank).connection.reset();
    if (!expected_end) peer(rank).stage = Stage::lost;
  }
  if (!expected_end) conclude(end_of(rank));
}

void Hub::handle(RankId from, Frame frame, const std::shared_ptr<Connection>& connection) {
  switch (frame.kind) {
    case Frame::Kind::post:
      return service_.submit(from, std::move(frame.payload), {});
    case Frame::Kind::call: {
      const auto answer = [connection, wake = wake_, id = frame.id](Frame::Kind kind,
                                                                    std::string text) {
        if (connection->send({kind, id, std::move(text)})) wake->signal();
      };
      return service_.submit(
          from, std::move(frame.payload),
          make_reply([answer](std::string text) { answer(Frame::Kind::reply, std::move(text)); },
                     [answer] { answer(Frame::Kind::dropped, ""); }));
    }
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

void Hub::beat(double now_s) {
  if (now_s - last_beat_s_ < config_.heartbeat_s) return;
  last_beat_s_ = now_s;
  broadcast({});
  standstill_.note(rank_, overdue_wait(now_s));
  if (const auto stuck = standstill_.verdict(config_.timeout_s)) conclude(*stuck);
}

void Hub::find_silence(double now_s) {
  const bool paused = has_paused(last_round_s_, now_s);
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    Peer& p = peers_[r];
    if (paused) p.heard_s = now_s;
    if (p.stage != Stage::joined || now_s - p.heard_s < config_.timeout_s) continue;
    conclude(silence_of(RankId(static_cast<std::int32_t>(r))));
    p.heard_s = now_s;
  }
}

void Hub::broadcast(const Frame& frame) {
  bool unsent = false;
  {
    std::lock_guard lock(mutex_);
    for (const Peer& p : peers_) {
      if (p.connection) unsent |= p.connection->send(frame);
    }
  }
  if (unsent) wake_->signal();
}

void Hub::conclude(const RankFailure& failure) {
  std::lock_guard one_at_a_time(conclude_mutex_);
  if (state_->failed()) return;
  broadcast(failure_frame(failure));
  state_->fail(failure);
}

void Hub::finish(RankId rank) {
  mark_finished(rank);
  broadcast({Frame::Kind::finished, static_cast<std::uint64_t>(rank.value()), ""});
}

}  // namespace

ControlHub open_control_hub(int size, const CommConfig& config, Reach reach) {
  auto hub = std::make_shared<Hub>(size, config, reach);
  std::string address = hub->address();
  return {std::move(hub), std::move(address)};
}

void await_control_spokes(TcpControl& hub) { dynamic_cast<Hub&>(hub).await_spokes(); }

}  // namespace heteroperf
