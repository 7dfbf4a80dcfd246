#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "runners/comm/peer_watch.hpp"

namespace heteroperf {

/// Waits shorter with every moment that nothing happens: polls, yields, then sleeps.
class Backoff {
 public:
  void pause();

 private:
  int rounds_ = 0;
};

/// Names what waits, only when it is asked.
using Describe = std::function<std::string()>;

/// Throws SystemError{run_failed} with MPI's words unless `code` is success.
void check_mpi(int code, const std::string& operation);

/// Waits for all requests; returns the bytes received. Throws PeerError when `watch` says the wait
/// is in vain; the requests then stay open, and the process can only end itself.
std::size_t wait_for_requests(std::vector<MPI_Request>& requests, const PeerWatch& watch,
                              std::span<const RankId> awaited, const Describe& describe);

/// Same before there is anybody to watch: throws SystemError{timeout} after `deadline_s`.
void wait_for_requests(std::vector<MPI_Request>& requests, double deadline_s,
                       const std::string& operation);

/// Runs a call that MPI offers in blocking form only, on a thread of its own; `give_up` throws to
/// abandon it. The caller makes no MPI call meanwhile. `call` owns all it refers to.
void run_blocking_call(std::function<void()> call, const std::function<void()>& give_up);

}  // namespace heteroperf
