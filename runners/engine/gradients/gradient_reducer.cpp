// A step's gradients become sums over the replicas while the backward pass goes on. GradientReducer
// learns from the schedule and from the operators which parameters are final and passes that on to
// SumQueue, which runs the sums of the plan (sum_plan.hpp) one after another: on a thread of its
// own, so that they are hidden behind the computation, or on the rank's thread at the end of the
// step. One order on all ranks and one sum at a time keep two ranks from waiting for each other.
#include "runners/engine/gradients/gradient_reducer.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/gradients/sum_plan.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// A sum that is under way when its queue ends has so long to end by itself.
constexpr auto patience = std::chrono::seconds(2);

constexpr std::size_t no_bucket = ~std::size_t{0};

/// Enough buckets that the first can begin early, few enough that their latency does not tell. The
/// same on all ranks.
std::size_t bucket_size(const ReductionConfig& config, const ModelGraph& graph, const Plan& plan) {
  if (config.bucket_bytes > 0) return config.bucket_bytes;
  constexpr std::size_t least = 64u << 10, most = 4u << 20, buckets_per_stage = 8;
  const std::size_t bytes = count_graph(graph).parameters * sizeof(float);
  return std::clamp(bytes / plan.stages.size() / buckets_per_stage, least, most);
}

}  // namespace

/// The state is shared with a thread that may outlive the queue. Members are destroyed from the
/// last to the first, so sums go before the groups they use.
struct SumQueue::State {
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<Entry> entries;
  std::optional<RankMemory> memory;
  bool beside = false;  ///< the sums run on `thread`

  mutable std::mutex mutex;  ///< guards all that follows
  std::condition_variable changed;
  std::vector<std::size_t> missing;  ///< parameters, by entry
  std::size_t done = 0;
  std::vector<LaneSpan>* lanes = nullptr;
  std::exception_ptr error;
  bool stop = false;
  bool ended = false;
  std::thread thread;

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
}

// The lock is given up while a sum runs, so that the backward pass can report more parameters.
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
  // Without a thread the sums are on the lane of whoever waits for them.
  if (lanes != nullptr && beside) {
    lanes->push_back({TimeLane::overlapped_sums, -1, start_ns, now_ns()});
  }
  error = thrown;
  if (!thrown) ++done;
  changed.notify_all();
}

// The queue's thread: it sums with one thread, beside the computation of the rank.
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
    : state_(std::make_shared<State>()) {
  state_->groups = std::move(groups);
  state_->entries = std::move(entries);
  state_->memory = std::move(memory);
  state_->beside = runner == Runner::own_thread;
  state_->begin_step();
  if (!state_->beside) return;
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
  std::unique_lock lock(state_->mutex);
  if (state_->beside) {
    state_->changed.wait(lock, [this] { return state_->over(); });
  } else {
    while (state_->can_run()) state_->run_next(lock);
  }
  if (state_->error) std::rethrow_exception(state_->error);
  HETEROPERF_EXPECT(state_->over());
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

GradientReducer::GradientReducer(Communicator& world, const ModelGraph& graph,
                                 const StagedGraph& staged, const Plan& plan,
                                 const RankShare& share, ParameterStore& store,
                                 const ReductionConfig& config)
    : store_(store), sliced_(plan.zero_stage > 0) {
  const std::vector<GradientFamily> families = gradient_families(staged, plan);
  GradientGroups groups(world, config.devices, families);
  SumPlan sums = plan_sums(graph, staged, plan, world.rank(), store, families, groups,
                           bucket_size(config, graph, plan));
  owned_ = sliced_ ? std::move(sums.owned) : std::vector<ArenaRange>{{0, store.elements()}};
  counted_ = std::move(sums.counted);
  note_parts(share, sums);

  std::vector<SumQueue::Entry> entries;
  sum_of_.assign(store.count(), no_bucket);
  for (SumPlan::Sum& sum : sums.sums) {
    for (const std::size_t ordinal : sum.parameters) sum_of_[ordinal] = entries.size();
    entries.push_back({std::move(sum.sum), sum.parameters.size()});
  }
  overlap_reason_ = config.overlap == ReductionConfig::Overlap::off ? "switched off"
                    : entries.empty() ? "nothing is summed on this rank"
                    : config.devices != nullptr && has_tensor_parallelism(plan)
                        ? "groups of one GPU take turns: it also sums for tensor parallelism"
                        : world.one_thread_reason();
  queue_ = std::make_unique<SumQueue>(
      groups.release(), std::move(entries),
      overlap_reason_.empty() ? SumQueue::Runner::own_thread : SumQueue::Runner::caller,
      config.memory);
  begin_step();
}

// A tied weight, and one that several stages of this rank use, is final when the last of them says
// so.
void GradientReducer::note_parts(const RankShare& share, const SumPlan& sums) {
  const std::size_t parts = share.parts.size();
  parameters_of_.resize(parts);
  tied_of_.resize(parts);
  shared_.resize(store_.count());
  parts_using_.resize(store_.count());
  for (std::size_t ordinal = 0; ordinal < store_.count(); ++ordinal) {
    for (std::size_t part = 0; part < parts; ++part) {
      const std::vector<StageId>& users = sums.users[ordinal];
      const StageId stage = share.parts[part].role.stage;
      if (std::find(users.begin(), users.end(), stage) == users.end()) continue;
      (sums.tied[ordinal] ? tied_of_ : parameters_of_)[part].push_back(ordinal);
      ++parts_using_[ordinal];
    }
    shared_[ordinal] = sums.tied[ordinal] || parts_using_[ordinal] > 1;
  }
}

void GradientReducer::begin_step() {
  final_.assign(store_.count(), false);
  missing_parts_ = parts_using_;
}

void GradientReducer::set_final(std::size_t ordinal) {
  if (final_.at(ordinal)) return;
  final_[ordinal] = true;
  if (sum_of_[ordinal] != no_bucket) queue_->parameter_final(sum_of_[ordinal]);
}

void GradientReducer::ready(std::size_t ordinal) {
  if (!shared_.at(ordinal)) set_final(ordinal);
}

void GradientReducer::reduce(std::size_t part) {
  for (const std::size_t ordinal : parameters_of_.at(part)) set_final(ordinal);
}

void GradientReducer::reduce_tied(std::size_t part) {
  for (const std::size_t ordinal : tied_of_.at(part)) {
    if (missing_parts_[ordinal] > 0 && --missing_parts_[ordinal] == 0) set_final(ordinal);
  }
}

void GradientReducer::wait() {
  for (std::size_t ordinal = 0; ordinal < final_.size(); ++ordinal) set_final(ordinal);
  queue_->finish_step();
  begin_step();
}

void GradientReducer::share_parameters() {
  if (!sliced_ || queue_->size() == 0) return;
  queue_->share();
  store_.publish();
}

double GradientReducer::own_square_sum() const {
  return square_sum(store_.reduced_gradient(), counted_);
}

}  // namespace heteroperf
