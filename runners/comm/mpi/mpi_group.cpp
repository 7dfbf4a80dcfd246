#include "runners/comm/mpi/mpi_group.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "metrics/base/clock.hpp"
#include "runners/comm/collective_terms.hpp"
#include "runners/comm/element_types.hpp"

// MPI's own waits cannot be given up when a peer dies. So every wait here is a loop that tests the
// requests and asks a watch whether the awaited ranks still live; calls that MPI offers only in
// blocking form are made by another thread, which can be left behind.
//
// MPI counts bytes in an int, so a transfer of more than a limit is several messages with one tag.
// MPI keeps the messages of one sender and tag in order, so sender and receiver cut alike and the
// pieces meet.

namespace heteroperf {
namespace {

constexpr int poll_rounds = 200;
constexpr int yield_rounds = 20000;
/// The number of rounds between looks is small, because every yield takes milliseconds where many
/// processes share a core.
constexpr int request_rounds_per_look = 50;
static_assert(yield_rounds % request_rounds_per_look == 0);
constexpr auto request_nap = std::chrono::microseconds(50);
/// The news of a failure may need so long to overtake MPI's own complaint about it.
constexpr double failure_news_s = 2.0;
constexpr double telling_period_s = 0.1;

/// The bytes of all requests of this process that have not ended.
std::atomic<std::uint64_t> bytes_under_way{0};

/// A call that is shared with a thread that may never return from it.
struct BlockingCall {
  std::function<void()> call;
  std::exception_ptr error;
  std::atomic<bool> done{false};
  std::atomic<bool> abandoned{false};  ///< nobody waits for it any more
};

/// The thread that makes all blocking calls of the process, because MPI_Finalize belongs on the
/// thread that initialised MPI (MPI 4.0, 11.2.2). It lives as long as the process, which may end
/// while a call still hangs.
class BlockingThread {
 public:
  static BlockingThread& of_process() {
    static auto* thread = new BlockingThread;
    return *thread;
  }

  void post(std::shared_ptr<BlockingCall> call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    posted_.notify_one();
  }

 private:
  BlockingThread() {
    std::thread([this] { serve(); }).detach();
  }

  [[noreturn]] void serve() {
    while (true) {
      const std::shared_ptr<BlockingCall> call = next();
      if (call->abandoned) continue;
      try {
        call->call();
      } catch (...) {
        call->error = std::current_exception();
      }
      call->done = true;
    }
  }

  std::shared_ptr<BlockingCall> next() {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] { return !calls_.empty(); });
    std::shared_ptr<BlockingCall> call = std::move(calls_.front());
    calls_.pop_front();
    return call;
  }

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::shared_ptr<BlockingCall>> calls_;
};

/// Calls start(offset, n) for each message of a transfer, and once for a transfer of no bytes.
template <class Start>
void for_each_message(std::size_t bytes, std::size_t max_message_bytes, Start start) {
  std::size_t begin = 0;
  do {
    const std::size_t n = std::min(max_message_bytes, bytes - begin);
    start(begin, n);
    begin += n;
  } while (begin < bytes);
}

}  // namespace

void Backoff::pause() {
  // The counter stops where it no longer matters, because a wait may last for days.
  if (rounds_ < yield_rounds) ++rounds_;
  if (rounds_ < poll_rounds) return;
  if (rounds_ < yield_rounds) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(request_nap);
  }
}

bool Backoff::is_time_to_look() const {
  return rounds_ >= poll_rounds && rounds_ % request_rounds_per_look == 0;
}

bool LastingWait::is_time_to_tell() {
  if (last_s_ == 0) last_s_ = monotonic_s();
  return monotonic_s() - last_s_ >= telling_period_s;
}

void LastingWait::tell(std::span<const RankId> needed) {
  last_s_ = monotonic_s();
  told_ = true;
  watch_.waits_for(needed, Bytes(bytes_under_way.load(std::memory_order_relaxed)));
}

MPI_Request* RequestBatch::add(std::optional<RankId> peer, std::size_t bytes) {
  bytes_ += bytes;
  bytes_under_way.fetch_add(bytes, std::memory_order_relaxed);
  if (++count_ == 1) {
    request_ = MPI_REQUEST_NULL;
    peer_ = peer;
    return &request_;
  }
  if (count_ == 2) {
    requests_.assign(1, request_);
    peers_.assign(1, peer_);
  }
  requests_.push_back(MPI_REQUEST_NULL);
  peers_.push_back(peer);
  return &requests_.back();
}

bool RequestBatch::test(int& code) {
  int done = 0;
  if (count_ == 1) {
    code = MPI_Test(&request_, &done, &status_);
    return code == MPI_SUCCESS && done != 0;
  }
  statuses_.resize(count_);
  code = MPI_Testall(static_cast<int>(count_), requests_.data(), &done, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses_) {
      const int error = status.MPI_ERROR;
      if (error != MPI_SUCCESS && error != MPI_ERR_PENDING) code = error;
    }
  }
  return code == MPI_SUCCESS && done != 0;
}

std::size_t RequestBatch::bytes_received() const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    int n = 0;
    MPI_Get_count(statuses() + i, MPI_BYTE, &n);
    if (n > 0) bytes += static_cast<std::size_t>(n);
  }
  return bytes;
}

std::string WaitedFor::text() const {
  return values.type == DataType::u8 && values.count == 0 ? operation : describe(operation, values);
}

void check_mpi(int code, const std::string& operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw SystemError("MPI failed during " + operation, text, "See the log of the other ranks");
}

std::vector<RankId> RequestBatch::needed(std::span<const RankId> all) const {
  std::vector<RankId> ranks;
  for (std::size_t i = 0; i < count_; ++i) {
    int done = 0;
    const MPI_Request request = count_ == 1 ? request_ : requests_[i];
    const std::optional<RankId> peer = count_ == 1 ? peer_ : peers_[i];
    check_mpi(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    if (done != 0) continue;
    if (!peer) return {all.begin(), all.end()};
    ranks.push_back(*peer);
  }
  return ranks;
}

void RequestBatch::clear() {
  count_ = 0;
  bytes_under_way.fetch_sub(std::exchange(bytes_, 0), std::memory_order_relaxed);
}

void check_peers(const PeerWatch& watch, std::span<const RankId> awaited, const WaitedFor& wait) {
  if (const auto failure = watch.failure_among(awaited)) throw PeerError(*failure, wait.text());
}

void await_failure_news(const PeerWatch& watch, std::span<const RankId> awaited,
                        const WaitedFor& wait) {
  const double deadline_s = monotonic_s() + failure_news_s;
  while (monotonic_s() < deadline_s) {
    check_peers(watch, awaited, wait);
    std::this_thread::sleep_for(request_nap);
  }
}

void blame(int code, const PeerWatch& watch, std::span<const RankId> awaited,
           const WaitedFor& wait) {
  int kind = code;
  MPI_Error_class(code, &kind);
  if (kind == MPI_ERR_TRUNCATE) {
    throw Error(ErrorKind::run_failed,
                {{"a message is too long for " + wait.text(),
                  "both sides need the same count and type", remedy_of_misfit}});
  }
  // MPI reports a broken connection at once; the rank that broke it is known a moment later.
  await_failure_news(watch, awaited, wait);
  check_mpi(code, wait.text());
  throw SystemError("MPI failed during " + wait.text());
}

/// The order of the checks matters: a failure of MPI is explained first, and the peers are asked
/// only while the requests are open.
std::size_t wait_for_requests(RequestBatch& requests, const PeerWatch& watch,
                              std::span<const RankId> awaited, const WaitedFor& wait) {
  if (requests.empty()) return 0;
  Backoff backoff;
  LastingWait lasting(watch);
  int code = MPI_SUCCESS;
  while (!requests.test(code)) {
    if (code != MPI_SUCCESS) blame(code, watch, awaited, wait);
    check_peers(watch, awaited, wait);
    if (backoff.is_time_to_look() && lasting.is_time_to_tell())
      lasting.tell(requests.needed(awaited));
    backoff.pause();
  }
  const std::size_t received = requests.bytes_received();
  requests.clear();
  return received;
}

void wait_for_requests(RequestBatch& requests, double deadline_s, const std::string& operation) {
  Backoff backoff;
  int code = MPI_SUCCESS;
  const double end_s = monotonic_s() + deadline_s;
  while (!requests.test(code)) {
    check_mpi(code, operation);
    if (monotonic_s() > end_s) {
      throw SystemError(operation + " does not end",
                        fmt::format("a rank has not taken part within {:g} s", deadline_s),
                        "Look at the processes of the run", ErrorKind::timeout);
    }
    backoff.pause();
  }
  requests.clear();
}

/// When `give_up` throws, the call may hang for ever on its thread; it is marked as abandoned, so
/// that a call that has not begun yet never begins.
void run_blocking_call(std::function<void()> call, const std::function<void()>& give_up) {
  const auto shared = std::make_shared<BlockingCall>();
  shared->call = std::move(call);
  BlockingThread::of_process().post(shared);
  try {
    Backoff backoff;
    while (!shared->done) {
      give_up();
      backoff.pause();
    }
  } catch (...) {
    shared->abandoned = true;
    throw;
  }
  if (shared->error) std::rethrow_exception(shared->error);
}

MpiGroup::MpiGroup(MPI_Comm handle, std::vector<RankId> members, std::shared_ptr<PeerWatch> watch,
                   std::size_t max_message_bytes)
    : handle_(handle),
      members_(std::move(members)),
      watch_(std::move(watch)),
      max_message_bytes_(max_message_bytes) {
  check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  check_mpi(MPI_Comm_rank(handle_, &rank), "MPI_Comm_rank");
  self_ = rank;
}

MpiGroup::~MpiGroup() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  // After a failure a peer may be gone, and freeing may wait for it.
  if (finalised != 0 || watch_->failure_among({})) return;
  try {
    run_blocking_call([handle = handle_]() mutable { MPI_Comm_free(&handle); },
                      [this] {
                        check_peers(*watch_, {}, {"freeing a group", {}});
                      });
  } catch (const std::exception&) {
    // A group that is not freed now ends with the process; the failure reaches everybody's next
    // wait.
  }
}

void MpiGroup::start_send(ConstBuffer values, std::size_t to, int tag,
                          RequestBatch& requests) const {
  for_each_message(values.bytes(), max_message_bytes_, [&](std::size_t begin, std::size_t n) {
    check_mpi(
        MPI_Isend(static_cast<const std::byte*>(values.data) + begin, static_cast<int>(n), MPI_BYTE,
                  static_cast<int>(to), tag, handle_, requests.add(members_[to], n)),
        "MPI_Isend");
  });
}

void MpiGroup::start_receive(MutableBuffer values, std::size_t from, int tag,
                             RequestBatch& requests) const {
  for_each_message(values.bytes(), max_message_bytes_, [&](std::size_t begin, std::size_t n) {
    check_mpi(MPI_Irecv(static_cast<std::byte*>(values.data) + begin, static_cast<int>(n), MPI_BYTE,
                        static_cast<int>(from), tag, handle_, requests.add(members_[from], n)),
              "MPI_Irecv");
  });
}

void MpiGroup::gather_blocks(void* all, std::size_t bytes, const WaitedFor& waited) const {
  const int n = static_cast<int>(bytes);
  check_mpi(MPI_Iallgather(MPI_IN_PLACE, n, MPI_BYTE, all, n, MPI_BYTE, handle_, gathering_.add()),
            "MPI_Iallgather");
  wait(gathering_, waited);
}

}  // namespace heteroperf
