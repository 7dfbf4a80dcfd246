#pragma once

#include <mpi.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runners/comm/buffer.hpp"
#include "runners/comm/peer_watch.hpp"

namespace heteroperf {

/// Waits shorter with every moment that nothing happens: polls, yields, then sleeps.
class Backoff {
 public:
  void pause();
  /// Now and then, once it no longer polls: time for what costs more than a poll.
  bool is_time_to_look() const;

 private:
  int rounds_ = 0;
};

/// Tells the watch of a wait that lasts for 0.1 s, and again as often; the watch forgets it with
/// this object. Costs nothing until it is asked.
class LastingWait {
 public:
  explicit LastingWait(const PeerWatch& watch) : watch_(watch) {}
  ~LastingWait() {
    if (told_) watch_.waits_no_more();
  }
  LastingWait(const LastingWait&) = delete;
  LastingWait& operator=(const LastingWait&) = delete;

  bool is_time_to_tell();
  void tell(std::span<const RankId> needed);

 private:
  const PeerWatch& watch_;
  double last_s_ = 0;  ///< told, or asked first
  bool told_ = false;
};

/// MPI requests that end together. Keeps its memory for the next ones; a single one needs none.
class RequestBatch {
 public:
  RequestBatch() = default;
  ~RequestBatch() { clear(); }
  RequestBatch(const RequestBatch&) = delete;
  RequestBatch& operator=(const RequestBatch&) = delete;

  bool empty() const { return count_ == 0; }
  /// Where MPI puts the next request; valid until the next call. `peer` of the world: whose part it
  /// needs, where that is one rank.
  MPI_Request* add(std::optional<RankId> peer = std::nullopt, std::size_t bytes = 0);
  /// True when all are done. `code` tells why one cannot be.
  bool test(int& code);
  /// Once done, where all are receives.
  std::size_t bytes_received() const;
  /// The peers of what is not done; `all` where one of the requests may need any of them.
  std::vector<RankId> needed(std::span<const RankId> all) const;
  void clear();

 private:
  const MPI_Status* statuses() const { return count_ == 1 ? &status_ : statuses_.data(); }

  std::size_t count_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;  ///< the first
  MPI_Status status_{};
  std::vector<MPI_Request> requests_;  ///< all, where there are several
  std::vector<MPI_Status> statuses_;
  std::optional<RankId> peer_;  ///< of the first
  std::vector<std::optional<RankId>> peers_;
  std::size_t bytes_ = 0;
};

/// What a wait is part of; put into words only when it fails.
struct WaitedFor {
  const char* operation;
  ConstBuffer values;
  std::string text() const;
};

/// Throws SystemError{run_failed} with MPI's words unless `code` is success.
void check_mpi(int code, const std::string& operation);

/// Something broke during a wait: throws PeerError if within a moment it is known which rank did.
void await_failure_news(const PeerWatch& watch, std::span<const RankId> awaited,
                        const WaitedFor& wait);

/// MPI failed during a wait: throws PeerError once the rank that broke is known,
/// Error{run_failed} when a message is longer than its receiver's buffer, else SystemError with
/// MPI's words.
[[noreturn]] void blame(int code, const PeerWatch& watch, std::span<const RankId> awaited,
                        const WaitedFor& wait);

/// Waits for all requests; they are then cleared. Returns bytes_received(). Throws PeerError when
/// `watch` says the wait is in vain; the requests then stay open, and the process can only end.
std::size_t wait_for_requests(RequestBatch& requests, const PeerWatch& watch,
                              std::span<const RankId> awaited, const WaitedFor& wait);

/// Same before there is anybody to watch: throws SystemError{timeout} after `deadline_s`.
void wait_for_requests(RequestBatch& requests, double deadline_s, const std::string& operation);

/// Runs a call that MPI offers in blocking form only, on the one thread of the process that makes
/// such calls; `give_up` throws to abandon it, after which none can be made any more. The caller
/// makes no MPI call meanwhile. `call` owns all it refers to.
void run_blocking_call(std::function<void()> call, const std::function<void()>& give_up);

}  // namespace heteroperf
