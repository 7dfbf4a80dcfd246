#include "runners/engine/gradients/sum_queue.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

/// For a sum under way to end when its queue does.
constexpr auto patience = std::chrono::seconds(2);

}  // namespace

/// Shared with a thread that may outlive the queue. Sums go before the groups they use.
struct SumQueue::State {
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<Entry> entries;
  std::optional<RankMemory> memory;
  bool beside = false;  ///< a thread of its own runs the sums

  mutable std::mutex mutex;  ///< of what follows
  std::condition_variable changed;
  std::vector<std::size_t> missing;  ///< parameters, by entry
  std::size_t done = 0;
  double busy_s = 0;
  std::vector<LaneSpan>* lanes = nullptr;
  std::exception_ptr error;
  bool stop = false;
  bool ended = false;
  std::thread thread;

  void note(std::int64_t start_ns);
  bool can_run() const { return !error && done < entries.size() && missing[done] == 0; }
  bool over() const { return error != nullptr || done == entries.size(); }
  void begin_step();
  void run_next(std::unique_lock<std::mutex>& lock);
  void serve();
};

void SumQueue::State::begin_step() {
  missing.clear();
  for (const Entry& entry : entries) missing.push_back(entry.parameters);
  done = 0;
  busy_s = 0;
}

void SumQueue::State::note(std::int64_t start_ns) {
  const std::int64_t end_ns = now_ns();
  busy_s += static_cast<double>(end_ns - start_ns) * 1e-9;
  // Without a thread the sums are on the lane of whoever waits for them.
  if (lanes == nullptr || !beside) return;
  lanes->push_back({TimeLane::overlapped_sums, -1, start_ns, end_ns});
}

void SumQueue::State::run_next(std::unique_lock<std::mutex>& lock) {
  GradientSum& sum = *entries[done].sum;
  lock.unlock();
  const std::int64_t start_ns = now_ns();
  std::exception_ptr thrown;
  try {
    sum.run();
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  note(start_ns);
  error = thrown;
  if (!thrown) ++done;
  changed.notify_all();
}

void SumQueue::State::serve() {
  std::optional<MemoryScope> charged;
  if (memory) charged.emplace(*memory);
  use_threads(1);
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stop || can_run(); });
    if (stop) break;
    run_next(lock);
  }
  ended = true;
  changed.notify_all();
}

SumQueue::SumQueue(std::vector<std::unique_ptr<Communicator>> groups, std::vector<Entry> entries,
                   Runner runner, std::optional<RankMemory> memory)
    : state_(std::make_shared<State>()), runner_(runner) {
  state_->groups = std::move(groups);
  state_->entries = std::move(entries);
  state_->memory = std::move(memory);
  state_->beside = runner == Runner::own_thread;
  state_->begin_step();
  if (runner_ != Runner::own_thread) return;
  state_->thread = std::thread([state = state_] { state->serve(); });
}

SumQueue::~SumQueue() {
  if (!state_->thread.joinable()) return;
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->lanes = nullptr;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, patience, [this] { return state_->ended; });
  lock.unlock();
  if (ended) {
    state_->thread.join();
  } else {
    state_->thread.detach();
  }
}

void SumQueue::parameter_final(std::size_t entry) {
  const std::lock_guard lock(state_->mutex);
  HETEROPERF_EXPECT(state_->missing.at(entry) > 0);
  --state_->missing[entry];
  if (state_->can_run()) state_->changed.notify_all();
}

void SumQueue::finish_step() {
  const Stopwatch stopwatch;
  std::unique_lock lock(state_->mutex);
  if (runner_ == Runner::own_thread) {
    state_->changed.wait(lock, [this] { return state_->over(); });
  } else {
    while (state_->can_run()) state_->run_next(lock);
  }
  if (state_->error) std::rethrow_exception(state_->error);
  HETEROPERF_EXPECT(state_->over());
  exposed_s_ = stopwatch.elapsed_s();
  busy_s_ = state_->busy_s;
  state_->begin_step();
}

void SumQueue::trace_to(std::vector<LaneSpan>* lanes) {
  const std::lock_guard lock(state_->mutex);
  state_->lanes = lanes;
}

void SumQueue::share() {
  for (const Entry& entry : state_->entries) entry.sum->share();
}

std::size_t SumQueue::size() const { return state_->entries.size(); }

std::size_t SumQueue::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

}  // namespace heteroperf
