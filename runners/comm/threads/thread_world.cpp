#include "runners/comm/threads/thread_group.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>

#include "runners/comm/checked/checked_communicator.hpp"
#include "runners/comm/world.hpp"

// A world of threads: one thread per rank, and one object that all of them share. A rank that fails
// or finishes writes that down and wakes every group, so that nobody waits for it any more. When
// all threads have ended, the exception that came first is thrown again in the caller's thread.

namespace heteroperf {
namespace {

/// A few µs of pauses: longer than a cache line takes between cores. Longer spinning hurts where
/// another program shares the cores.
constexpr int spins_with_free_cores = 100;

int cores_of_this_thread() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

/// One rank's end of the world's control channel. Everything lives in this process, so messages are
/// handed over, not sent.
class ThreadControl final : public ControlChannel {
 public:
  ThreadControl(std::shared_ptr<ThreadWorld> world, RankId rank)
      : world_(std::move(world)), rank_(rank) {}

  void serve(Handler handler) override {
    HETEROPERF_EXPECT(rank_ == RankId(0));
    world_->service().serve(std::move(handler));
  }
  void post(std::string message) override {
    world_->service().submit(rank_, std::move(message), {});
  }
  std::string call(std::string message) override {
    return world_->service().call(rank_, std::move(message), world_->state());
  }
  void request_stop(std::string reason) override { world_->state()->stop(std::move(reason)); }
  std::optional<std::string> stop_requested() const override {
    return world_->state()->stop_reason();
  }
  void abort(RankFailure failure) override { world_->fail(std::move(failure)); }
  std::optional<RankFailure> failure() const override { return world_->state()->failure(); }

 private:
  std::shared_ptr<ThreadWorld> world_;
  RankId rank_;
};

/// Keeps the exception that ended the run: the first that a rank threw by itself, or else the first
/// echo of a failure in another rank's wait.
struct Verdict {
  std::mutex mutex;
  std::exception_ptr cause, echo;

  void keep(std::exception_ptr& slot, std::exception_ptr error) {
    std::lock_guard lock(mutex);
    if (!slot) slot = std::move(error);
  }
};

/// The life of one rank's thread. Every way out of `body` but a plain return is a failure that the
/// other ranks learn of.
void run_rank(ThreadWorld& shared, World world, RankId rank,
              const std::function<void(World&)>& body, Verdict& verdict) {
  const auto fail = [&](ErrorKind kind, const std::string& reason) {
    verdict.keep(verdict.cause, std::current_exception());
    shared.fail({rank, kind, reason});
  };
  try {
    body(world);
  } catch (const PeerError& error) {
    verdict.keep(verdict.echo, std::current_exception());
    shared.fail(error.failure());
  } catch (const Error& error) {
    fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    fail(ErrorKind::run_failed, error.what());
  } catch (...) {
    fail(ErrorKind::run_failed, "an exception of unknown type");
  }
  shared.finish(rank);
}

}  // namespace

ThreadWorld::ThreadWorld(int size)
    : finished_(size),
      spins_(size <= cores_of_this_thread() ? spins_with_free_cores : 0),
      service_([this](RankFailure failure) { fail(std::move(failure)); }) {}

void ThreadWorld::fail(RankFailure failure) {
  if (state_->fail(std::move(failure))) wake_groups();
}

void ThreadWorld::finish(RankId rank) {
  if (rank == RankId(0)) service_.close();
  finished_[rank.index()] = true;
  finished_count_.fetch_add(1);
  wake_groups();
}

bool ThreadWorld::in_vain(std::span<const RankId> awaited) const {
  if (state_->failed()) return true;
  if (finished_count_.load() == 0) return false;
  return std::ranges::any_of(awaited, [this](RankId rank) { return has_finished(rank); });
}

std::optional<RankFailure> ThreadWorld::failure_among(std::span<const RankId> awaited) const {
  if (!in_vain(awaited)) return std::nullopt;
  if (auto failure = state_->failure()) return failure;
  for (RankId rank : awaited) {
    if (!has_finished(rank)) continue;
    return RankFailure{rank, ErrorKind::run_failed,
                       fmt::format("rank {} has finished without taking part", rank.value())};
  }
  return std::nullopt;
}

void ThreadWorld::add(const std::shared_ptr<ThreadGroup>& group) {
  std::lock_guard lock(groups_mutex_);
  std::erase_if(groups_, [](const auto& entry) { return entry.expired(); });
  groups_.push_back(group);
}

void ThreadWorld::wake_groups() {
  std::lock_guard lock(groups_mutex_);
  for (const auto& entry : groups_) {
    if (auto group = entry.lock()) group->wake_everyone();
  }
}

void run_on_threads(int ranks, const CommConfig& config,
                    const std::function<void(World& world)>& body) {
  HETEROPERF_EXPECT(config.heartbeat_s > 0 && config.heartbeat_s <= config.timeout_s / 2);
  if (ranks < 1) throw UserError(fmt::format("ranks={}", ranks), "must be at least 1");
  auto shared = std::make_shared<ThreadWorld>(ranks);
  std::vector<RankId> members;
  for (int r = 0; r < ranks; ++r) members.emplace_back(r);
  auto communicators = make_thread_communicators(shared, members);

  Verdict verdict;
  std::vector<std::thread> threads;
  for (const RankId rank : members) {
    std::unique_ptr<Communicator> group = std::move(communicators[rank.index()]);
    if (config.check) group = make_checked_communicator(std::move(group));
    World world{std::move(group), std::make_shared<ThreadControl>(shared, rank)};
    try {
      threads.emplace_back([&, rank, view = std::make_shared<World>(std::move(world))] {
        run_rank(*shared, std::move(*view), rank, body, verdict);
      });
    } catch (const std::system_error& error) {
      const SystemError refused(
          fmt::format("cannot start thread {} of {}", rank.value(), ranks), error.what(),
          "Use fewer --ranks, or raise the limit of processes (ulimit -u)", ErrorKind::environment);
      verdict.keep(verdict.cause, std::make_exception_ptr(refused));
      shared->fail({rank, refused.kind(), refused.what()});
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (verdict.cause) std::rethrow_exception(verdict.cause);
  if (verdict.echo) std::rethrow_exception(verdict.echo);
  if (const auto failure = shared->state()->failure()) throw PeerError(*failure, "the run");
}

}  // namespace heteroperf
