// The writer of a journal. append() makes a line, chains it to the line before by its hash, and
// buffers it; a thread writes the buffer once per interval, so that a training step never waits for
// a disk and a kill loses the lines of the last second at most. Phases and the stop are written at
// once and synced. Two mutexes keep the two sides apart: lines_mutex guards the text that grows,
// file_mutex the file, so that append() goes on while the disk is slow. Where the disk refuses, the
// lines stay in `unwritten`, append() throws, and every later call tries to write them again. A
// third thread, if asked for, watches for a write that never returns.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "results/journal/journal.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

constexpr std::chrono::milliseconds flush_now_patience{200};

/// The place that a line has reached when append() returns: memory, the kernel, or the disk.
enum class Durability { buffered, written, synced };

Durability durability_of(const Event& event) {
  if (std::holds_alternative<PhaseEvent>(event) || std::holds_alternative<StopEvent>(event)) {
    return Durability::synced;
  }
  return std::holds_alternative<WarningEvent>(event) ? Durability::written : Durability::buffered;
}

/// Waits for a mutex until the deadline. It polls, since ThreadSanitizer of GCC 12 does not see the
/// waits of a timed mutex.
std::unique_lock<std::mutex> lock_until(std::mutex& mutex,
                                        std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::microseconds pause{100};
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(pause);
    lock.try_lock();
  }
  return lock;
}

/// Adds its own life time to a counter. The sum is the cost of the journal, which the record tells.
class CostTimer {
 public:
  explicit CostTimer(std::atomic<std::int64_t>& total) : total_(total) {}
  ~CostTimer() { total_ += now_ns() - start_; }
  CostTimer(const CostTimer&) = delete;
  CostTimer& operator=(const CostTimer&) = delete;

 private:
  std::atomic<std::int64_t>& total_;
  std::int64_t start_ = now_ns();
};

}  // namespace

struct JournalWriter::State {
  std::string path;
  JournalOptions options;
  int file = -1;
  std::atomic<std::int64_t> cost_ns{0};

  std::mutex lines_mutex;  // guards what `append` changes
  std::string buffer, prev{no_previous_line};
  std::set<std::string> graphs_written;

  std::mutex file_mutex;  // guards the file; taken before lines_mutex
  std::string unwritten;
  std::atomic<int> error{0};  // errno of the last refusal

  // Counts up at the begin and at the end of every access to the file, so it is odd meanwhile. The
  // disk's watch sees by it whether one write has lasted all the time.
  std::atomic<std::uint64_t> accesses{0};

  std::mutex wake_mutex;
  std::condition_variable wake;
  bool stopping = false, closed = false;
  std::thread flusher, disk_watch;

  /// Appends the event's line to the buffer. The text of a graph stands only on the first line that
  /// names its hash, since every line of a trial would repeat it.
  void add_line(const Event& event) {
    const std::int64_t now_ns = options.clock();
    if (options.on_line) options.on_line(now_ns, event);
    const auto* trial = std::get_if<TrialEvent>(&event);
    std::string line;
    if (trial != nullptr && graphs_written.contains(trial->graph_hash)) {
      TrialEvent brief = *trial;
      brief.graph.text.clear();
      line = event_to_json_line(now_ns, brief, prev);
    } else {
      line = event_to_json_line(now_ns, event, prev);
    }
    std::string hash = sha256_hex(line);
    buffer += line += '\n';  // where there is no memory for it, the chain goes on without this line
    prev = std::move(hash);
    remember_graph(event);
  }

  /// Notes a graph as written once its line is in the buffer.
  void remember_graph(const Event& event) {
    if (const auto* trial = std::get_if<TrialEvent>(&event)) {
      if (!trial->graph.text.empty()) graphs_written.insert(trial->graph_hash);
    } else if (const auto* workload = std::get_if<WorkloadEvent>(&event)) {
      if (!workload->graph.text.empty()) graphs_written.insert(workload->graph_hash);
    }
  }

  // Both mutexes are held. It needs memory only where the disk has refused earlier lines.
  void take_lines() {
    if (unwritten.empty()) return unwritten.swap(buffer);
    unwritten += buffer;
    buffer.clear();
  }

  // file_mutex is held. A write may take a part of the lines; the rest stays, also where it fails.
  void write_out() {
    ++accesses;
    std::size_t done = 0;
    error = 0;
    while (done < unwritten.size() && error == 0) {
      const ssize_t written = ::write(file, unwritten.data() + done, unwritten.size() - done);
      if (written >= 0) {
        done += static_cast<std::size_t>(written);
      } else if (errno != EINTR) {
        error = errno;
      }
    }
    ++accesses;
    unwritten.erase(0, done);
  }

  /// Holds lines_mutex only while it takes the lines, not while the disk writes.
  void flush(Durability durability) {
    const std::lock_guard file_lock(file_mutex);
    {
      const std::lock_guard lines_lock(lines_mutex);
      take_lines();
    }
    write_out();
    if (durability == Durability::synced && error == 0) sync();
  }

  // file_mutex is held.
  void sync() {
    ++accesses;
    const int code = ::fdatasync(file) == 0 ? 0 : errno;
    ++accesses;
    // EINVAL, EROFS: the target (a pipe, a device) knows no syncing.
    if (code != EINVAL && code != EROFS) error = code;
  }

  /// The refusal may be one that the background thread met.
  void throw_if_refused() const {
    if (const int code = error; code != 0) {
      throw SystemError("cannot write " + path, std::strerror(code),
                        "What was measured before is kept; free space or choose another --out.");
    }
  }

  /// The background thread. It wakes early only to stop.
  void run_flusher() {
    const std::chrono::duration<double> interval(options.flush_interval_s);
    std::unique_lock lock(wake_mutex);
    while (!wake.wait_for(lock, interval, [this] { return stopping; })) {
      lock.unlock();
      {
        const CostTimer timer(cost_ns);
        try {
          flush(Durability::written);
        } catch (const std::bad_alloc&) {  // the lines stay buffered for the next round
        }
        if (options.on_interval) options.on_interval();
      }
      lock.lock();
    }
  }

  /// Tells of a write that lasts for the whole deadline, once. It counts rounds in which the same
  /// write goes on, not time: a process that was stopped meanwhile has written nothing either.
  void run_disk_watch(double deadline_s, const std::function<void(const Error&)>& tell) {
    constexpr int most_rounds = 8;
    const std::chrono::duration<double> round(deadline_s / most_rounds);
    std::uint64_t seen = 0;
    int rounds = 0;
    std::unique_lock lock(wake_mutex);
    while (!wake.wait_for(lock, round, [this] { return closed; })) {
      const std::uint64_t now = accesses;
      rounds = now == seen && now % 2 == 1 ? rounds + 1 : 0;
      seen = now;
      if (rounds < most_rounds) continue;
      lock.unlock();
      return tell(SystemError("the disk of " + path + " does not answer",
                              fmt::format("a write has taken {:g} s", deadline_s),
                              "Choose another --out, or raise comm.timeout_s.",
                              ErrorKind::timeout));
    }
  }
};

JournalWriter::JournalWriter(std::string path, JournalOptions options)
    : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->options = std::move(options);
  state_->file =
      ::open(state_->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (state_->file < 0) {
    throw SystemError("cannot create " + state_->path, std::strerror(errno),
                      "Choose another --out.");
  }
  state_->flusher = std::thread([state = state_.get()] { state->run_flusher(); });
}

JournalWriter::~JournalWriter() {
  {
    const std::lock_guard lock(state_->wake_mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  // The disk's watch goes on until the last lines are written, since those may hang as well.
  state_->flusher.join();
  flush_now();
  ::close(state_->file);
  {
    const std::lock_guard lock(state_->wake_mutex);
    state_->closed = true;
  }
  state_->wake.notify_all();
  if (state_->disk_watch.joinable()) state_->disk_watch.join();
}

void JournalWriter::watch_disk(double deadline_s, std::function<void(const Error&)> tell) {
  HETEROPERF_EXPECT(!state_->disk_watch.joinable() && deadline_s > 0);
  state_->disk_watch = std::thread([state = state_.get(), deadline_s, tell = std::move(tell)] {
    state->run_disk_watch(deadline_s, tell);
  });
}

void JournalWriter::append(const Event& event) {
  const CostTimer timer(state_->cost_ns);
  // After a refusal the lines that are left are tried first: a new line may not overtake them.
  if (state_->error != 0) state_->flush(Durability::written);
  state_->throw_if_refused();
  {
    const std::lock_guard lock(state_->lines_mutex);
    state_->add_line(event);
  }
  const Durability durability = durability_of(event);
  if (durability == Durability::buffered) return;
  state_->flush(durability);
  state_->throw_if_refused();
}

bool JournalWriter::flush_now() noexcept {
  try {
    const auto deadline = std::chrono::steady_clock::now() + flush_now_patience;
    const std::unique_lock file_lock = lock_until(state_->file_mutex, deadline);
    const std::unique_lock lines_lock = lock_until(state_->lines_mutex, deadline);
    if (!file_lock || !lines_lock) return false;
    state_->take_lines();
    state_->write_out();
    return state_->error == 0;
  } catch (...) {
    return false;
  }
}

const std::string& JournalWriter::path() const { return state_->path; }

double JournalWriter::cost_s() const { return static_cast<double>(state_->cost_ns) * 1e-9; }

}  // namespace heteroperf
