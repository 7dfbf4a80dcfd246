#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// The reason why the world of ranks broke, as every survivor learns it.
struct RankFailure {
  RankId rank;
  ErrorKind kind = ErrorKind::run_failed;  ///< run_failed: died or threw; timeout: no progress
  std::string reason;                      ///< "killed by signal 9 during all_reduce", …
  bool own_word = false;                   ///< `rank` itself said so, and lives to tell more
};

/// A wait ended because a peer is gone. The text names the peer, the operation and the reason.
class PeerError : public Error {
 public:
  PeerError(RankFailure failure, const std::string& operation);
  const RankFailure& failure() const { return failure_; }

 private:
  RankFailure failure_;
};

/// Carries small messages between every rank and rank 0, beside the ranks' own work: rank 0's side
/// runs on a thread of its own, so it answers while rank 0 computes. The channel also carries
/// heartbeats, failures and the wish to stop. Any thread of a rank may use it.
class ControlChannel {
 public:
  /// Ends a `call`. May be kept and invoked later from any thread, exactly once.
  using Reply = std::function<void(std::string)>;
  /// Runs on rank 0, one message at a time. `reply` is empty for a post.
  using Handler = std::function<void(RankId from, std::string message, Reply reply)>;

  virtual ~ControlChannel() = default;

  /// Rank 0 only: messages that came earlier wait for it. An empty handler ends the service: what
  /// has arrived is handled first, and on return no handler runs any more. Do so before anything
  /// the handler refers to dies (see ServiceScope). A handler's exception aborts the run.
  virtual void serve(Handler handler) = 0;
  /// Sends a message to rank 0's handler and returns at once. The order is kept per rank.
  virtual void post(std::string message) = 0;
  /// Sends a message to rank 0's handler and returns its reply. Waits as long as rank 0 lives.
  virtual std::string call(std::string message) = 0;

  /// Asks every rank to stop at its next step. Any rank may ask, and more than once.
  virtual void request_stop(std::string reason) = 0;
  /// The reason once a stop was asked for.
  virtual std::optional<std::string> stop_requested() const = 0;

  /// Tells every rank that this one cannot go on; their waits throw PeerError.
  virtual void abort(RankFailure failure) = 0;
  /// The first failure known to this rank.
  virtual std::optional<RankFailure> failure() const = 0;
};

/// Serves on rank 0 as long as it lives. Declare it after what the handler refers to.
class ServiceScope {
 public:
  ServiceScope(ControlChannel& channel, ControlChannel::Handler handler) : channel_(channel) {
    channel_.serve(std::move(handler));
  }
  ~ServiceScope() { channel_.serve({}); }
  ServiceScope(const ServiceScope&) = delete;
  ServiceScope& operator=(const ServiceScope&) = delete;

 private:
  ControlChannel& channel_;
};

/// The questions that a transport's wait asks while it waits for other ranks.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;

  /// The reason why the wait is in vain: the run broke, or one of the awaited ranks (of the world)
  /// has finished its work. Empty while there is hope. Cheap; called from the waiting loop.
  virtual std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const = 0;

  /// A wait that lasts tells again and again which ranks it still needs (all of `needed`), and the
  /// bytes that this rank has under way; so living ranks that wait for each other in vain are
  /// found. Other threads that have asked failure_among() may be about to send something that a
  /// peer needs, unless they wait, too.
  virtual void waits_for(std::span<const RankId> /*needed*/, Bytes /*under_way*/) const {}
  virtual void waits_no_more() const {}
};

}  // namespace heteroperf
