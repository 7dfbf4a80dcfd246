#include "runners/comm/threads/thread_world.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

namespace heteroperf {
namespace {

/// A few µs of pauses: longer than a cache line takes between cores. Longer spinning hurts where
/// another program shares the cores.
constexpr int spins_with_free_cores = 100;

int cores_of_this_process() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

/// Everything lives in this process, so messages are handed over, not sent.
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
  std::string call(std::string message) override;
  void request_stop(std::string reason) override { world_->state().stop(std::move(reason)); }
  std::optional<std::string> stop_requested() const override {
    return world_->state().stop_reason();
  }
  void abort(RankFailure failure) override { world_->fail(std::move(failure)); }
  std::optional<RankFailure> failure() const override { return world_->state().failure(); }

 private:
  std::shared_ptr<ThreadWorld> world_;
  RankId rank_;
};

std::string ThreadControl::call(std::string message) {
  auto pending = std::make_shared<PendingCall>();
  // The reply may outlive the world: a handler may keep it.
  auto state = world_->shared_state();
  Reply reply =
      make_reply([state, pending](std::string text) { state->complete(*pending, std::move(text)); },
                 [state, pending] { state->drop(*pending); });
  world_->service().submit(rank_, std::move(message), std::move(reply));
  return state->await(*pending);
}

}  // namespace

ThreadWorld::ThreadWorld(int size)
    : finished_(static_cast<std::size_t>(size)),
      spins_(size <= cores_of_this_process() ? spins_with_free_cores : 0),
      service_([this](RankFailure failure) {
        failure.reason = "control handler: " + failure.reason;
        fail(std::move(failure));
      }) {}

void ThreadWorld::fail(RankFailure failure) {
  if (state_->fail(std::move(failure))) wake_groups();
}

void ThreadWorld::finish(RankId rank) {
  if (rank == RankId(0)) service_.close();
  finished_[static_cast<std::size_t>(rank.value())] = true;
  finished_count_.fetch_add(1);
  wake_groups();
}

bool ThreadWorld::has_finished(RankId rank) const {
  return finished_[static_cast<std::size_t>(rank.value())].load();
}

bool ThreadWorld::in_vain(std::span<const RankId> awaited) const {
  if (state_->failed()) return true;
  if (finished_count_.load() == 0) return false;
  return std::any_of(awaited.begin(), awaited.end(), [this](RankId r) { return has_finished(r); });
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

void ThreadWorld::add(const std::shared_ptr<Wakeable>& group) {
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

std::shared_ptr<ControlChannel> make_thread_control(std::shared_ptr<ThreadWorld> world,
                                                    RankId rank) {
  return std::make_shared<ThreadControl>(std::move(world), rank);
}

}  // namespace heteroperf
