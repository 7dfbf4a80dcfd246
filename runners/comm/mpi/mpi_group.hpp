#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runners/comm/buffer.hpp"
#include "runners/comm/control_channel.hpp"
#include "runners/comm/mpi/mpi_backend.hpp"

namespace heteroperf {

/// The pauses of a waiting loop. They grow with the time that nothing happens: the loop polls at
/// first, then yields its core, then sleeps.
class Backoff {
 public:
  void pause();
  /// True now and then, once the loop no longer polls. It is then time for checks that cost more
  /// than a poll.
  bool is_time_to_look() const;

 private:
  int rounds_ = 0;
};

/// Tells the watch about a wait that lasts for 0.1 s, and again every 0.1 s. The watch forgets the
/// wait with this object. Costs nothing until it is asked.
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

/// MPI requests that end together. The batch keeps its memory for the next requests; a single one
/// needs none.
class RequestBatch {
 public:
  RequestBatch() = default;
  ~RequestBatch() { clear(); }
  RequestBatch(const RequestBatch&) = delete;
  RequestBatch& operator=(const RequestBatch&) = delete;

  bool empty() const { return count_ == 0; }
  /// The place where MPI puts the next request; valid until the next call. `peer` is the rank of
  /// the world that must do its part, where that is a single rank.
  MPI_Request* add(std::optional<RankId> peer = std::nullopt, std::size_t bytes = 0);
  /// True when all requests are done. `code` is an MPI error code when one of them failed.
  bool test(int& code);
  /// The bytes that came, once the requests are done and where all of them are receives.
  std::size_t bytes_received() const;
  /// The peers of the requests that are not done; `all` where one of these may need any of them.
  std::vector<RankId> needed(std::span<const RankId> all) const;
  void clear();

 private:
  const MPI_Status* statuses() const { return count_ == 1 ? &status_ : statuses_.data(); }

  std::size_t count_ = 0;
  // A single request stands in the first three members, several stand in the vectors.
  MPI_Request request_ = MPI_REQUEST_NULL;
  MPI_Status status_{};
  std::optional<RankId> peer_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::optional<RankId>> peers_;
  std::size_t bytes_ = 0;
};

/// The operation that a wait is part of. It is put into words only when the wait fails.
struct WaitedFor {
  const char* operation;
  ConstBuffer values;
  std::string text() const;
};

/// Checks the answer of an MPI call. Throws SystemError{run_failed} with MPI's words unless `code`
/// is success.
void check_mpi(int code, const std::string& operation);

/// Throws PeerError when `watch` says that the wait for `awaited` is in vain.
void check_peers(const PeerWatch& watch, std::span<const RankId> awaited, const WaitedFor& wait);

/// Called when something broke during a wait. Throws PeerError if it becomes known within two
/// seconds which rank broke.
void await_failure_news(const PeerWatch& watch, std::span<const RankId> awaited,
                        const WaitedFor& wait);

/// Called when MPI failed during a wait. Throws PeerError once the rank that broke is known,
/// Error{run_failed} when a message is longer than its receiver's buffer, else SystemError with
/// MPI's words.
[[noreturn]] void blame(int code, const PeerWatch& watch, std::span<const RankId> awaited,
                        const WaitedFor& wait);

/// Waits for all requests, clears them and returns bytes_received(). Throws PeerError when `watch`
/// says that the wait is in vain; the requests then stay open, and the process can only end.
std::size_t wait_for_requests(RequestBatch& requests, const PeerWatch& watch,
                              std::span<const RankId> awaited, const WaitedFor& wait);

/// The same for the time before there is a watch: throws SystemError{timeout} after `deadline_s`.
void wait_for_requests(RequestBatch& requests, double deadline_s, const std::string& operation);

/// Runs a call that MPI offers in blocking form only, on the one thread of the process that makes
/// such calls; `give_up` throws to abandon it, after which none can be made any more. The caller
/// makes no MPI call meanwhile. `call` owns all it refers to.
void run_blocking_call(std::function<void()> call, const std::function<void()>& give_up);

/// One group's ranks and the messages among them. Collectives use odd tags of MPI; users' tags
/// become even ones.
class MpiGroup {
 public:
  static constexpr int collective_tag = 1;
  static constexpr int max_user_tag = 4095;

  /// Takes over `handle` and frees it. `members` are the group's ranks in the world.
  MpiGroup(MPI_Comm handle, std::vector<RankId> members, std::shared_ptr<PeerWatch> watch,
           std::size_t max_message_bytes);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  std::size_t size() const { return members_.size(); }
  std::size_t self() const { return self_; }
  MPI_Comm handle() const { return handle_; }
  /// The members as ranks of the world.
  const std::vector<RankId>& members() const { return members_; }
  const std::shared_ptr<PeerWatch>& watch() const { return watch_; }
  std::size_t max_message_bytes() const { return max_message_bytes_; }

  /// Start the messages of one transfer, each of max_message_bytes() at most.
  void start_send(ConstBuffer values, std::size_t to, int tag, RequestBatch& requests) const;
  void start_receive(MutableBuffer values, std::size_t from, int tag, RequestBatch& requests) const;
  /// Waits for requests that any member may hold up.
  std::size_t wait(RequestBatch& requests, const WaitedFor& wait) const {
    return wait_for_requests(requests, *watch_, members_, wait);
  }
  /// Gathers blocks of `bytes` bytes each into `all`, where this rank's block lies already.
  void gather_blocks(void* all, std::size_t bytes, const WaitedFor& wait) const;

 private:
  MPI_Comm handle_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  std::size_t max_message_bytes_;
  std::size_t self_ = 0;
  mutable RequestBatch gathering_;
};

/// Makes a communicator of an MPI group. Takes over `handle` (not MPI_COMM_WORLD itself). `members`
/// are the group's ranks in the world. Collective.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm handle, std::vector<RankId> members,
                                                    std::shared_ptr<PeerWatch> watch,
                                                    const MpiSettings& settings);

}  // namespace heteroperf
