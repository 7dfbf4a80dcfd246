#include "runners/comm/mpi/mpi_wait.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

namespace heteroperf {
namespace {

constexpr int poll_rounds = 200;
constexpr int yield_rounds = 20000;
constexpr auto nap = std::chrono::microseconds(50);
/// How long the news of a failure may take to overtake MPI's own complaint about it.
constexpr double failure_news_s = 2.0;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Requests under way and how they ended.
class Batch {
 public:
  explicit Batch(std::vector<MPI_Request>& requests)
      : requests_(requests), statuses_(requests.size()) {}

  /// True when all are done. `code` tells why one cannot be.
  bool test(int& code) {
    int done = 0;
    code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) code = first_error();
    return code == MPI_SUCCESS && done != 0;
  }

  /// Sends count as nothing.
  std::size_t bytes_received() const {
    std::size_t bytes = 0;
    for (const MPI_Status& status : statuses_) {
      int n = 0;
      MPI_Get_count(&status, MPI_BYTE, &n);
      if (n > 0) bytes += static_cast<std::size_t>(n);
    }
    return bytes;
  }

 private:
  int first_error() const {
    for (const MPI_Status& status : statuses_) {
      const int code = status.MPI_ERROR;
      if (code != MPI_SUCCESS && code != MPI_ERR_PENDING) return code;
    }
    return MPI_ERR_IN_STATUS;
  }

  std::vector<MPI_Request>& requests_;
  std::vector<MPI_Status> statuses_;
};

/// MPI reports a broken connection; who broke it is known a moment later.
[[noreturn]] void blame(int code, const PeerWatch& watch, std::span<const RankId> awaited,
                        const std::string& operation) {
  const double deadline_s = now_s() + failure_news_s;
  while (now_s() < deadline_s) {
    if (const auto failure = watch.failure_among(awaited)) throw PeerError(*failure, operation);
    std::this_thread::sleep_for(nap);
  }
  check_mpi(code, operation);
  throw SystemError("MPI failed during " + operation);
}

/// Shared with a thread that may never return.
struct BlockingCall {
  std::function<void()> call;
  std::exception_ptr error;
  std::atomic<bool> done{false};
};

}  // namespace

void Backoff::pause() {
  ++rounds_;
  if (rounds_ < poll_rounds) return;
  if (rounds_ < yield_rounds) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(nap);
  }
}

void check_mpi(int code, const std::string& operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw SystemError("MPI failed during " + operation, text, "See the log of the other ranks");
}

std::size_t wait_for_requests(std::vector<MPI_Request>& requests, const PeerWatch& watch,
                              std::span<const RankId> awaited, const Describe& describe) {
  Backoff backoff;
  Batch batch(requests);
  int code = MPI_SUCCESS;
  while (!batch.test(code)) {
    if (code != MPI_SUCCESS) blame(code, watch, awaited, describe());
    if (const auto failure = watch.failure_among(awaited)) throw PeerError(*failure, describe());
    backoff.pause();
  }
  requests.clear();
  return batch.bytes_received();
}

void wait_for_requests(std::vector<MPI_Request>& requests, double deadline_s,
                       const std::string& operation) {
  Backoff backoff;
  Batch batch(requests);
  int code = MPI_SUCCESS;
  const double end_s = now_s() + deadline_s;
  while (!batch.test(code)) {
    check_mpi(code, operation);
    if (now_s() > end_s) {
      throw SystemError(operation + " does not end",
                        fmt::format("a rank has not taken part within {:g} s", deadline_s),
                        "Look at the processes of the run", ErrorKind::timeout);
    }
    backoff.pause();
  }
  requests.clear();
}

void run_blocking_call(std::function<void()> call, const std::function<void()>& give_up) {
  auto shared = std::make_shared<BlockingCall>();
  shared->call = std::move(call);
  std::thread thread([shared] {
    try {
      shared->call();
    } catch (...) {
      shared->error = std::current_exception();
    }
    shared->done = true;
  });
  try {
    Backoff backoff;
    while (!shared->done) {
      give_up();
      backoff.pause();
    }
  } catch (...) {
    thread.detach();
    throw;
  }
  thread.join();
  if (shared->error) std::rethrow_exception(shared->error);
}

}  // namespace heteroperf
