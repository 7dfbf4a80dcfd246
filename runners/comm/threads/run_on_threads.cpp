#include <fmt/format.h>

#include <exception>
#include <numeric>
#include <system_error>
#include <thread>

#include "runners/comm/checked/checked_communicator.hpp"
#include "runners/comm/comm_config.hpp"
#include "runners/comm/threads/thread_communicator.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

/// Keeps what ended the run: the first exception of a rank's own making, else an echo of it.
class Verdict {
 public:
  void own(std::exception_ptr error) { keep(own_, std::move(error)); }
  void echo(std::exception_ptr error) { keep(echo_, std::move(error)); }

  void rethrow(const std::optional<RankFailure>& failure) const {
    if (own_) std::rethrow_exception(own_);
    if (echo_) std::rethrow_exception(echo_);
    if (failure) throw PeerError(*failure, "the run");
  }

 private:
  void keep(std::exception_ptr& slot, std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    if (!slot) slot = std::move(error);
  }

  std::mutex mutex_;
  std::exception_ptr own_, echo_;
};

void run_rank(ThreadWorld& shared, World world, RankId rank,
              const std::function<void(World&)>& body, Verdict& verdict) {
  try {
    body(world);
  } catch (const PeerError& error) {
    verdict.echo(std::current_exception());
    shared.fail(error.failure());
  } catch (const Error& error) {
    verdict.own(std::current_exception());
    shared.fail({rank, error.kind(), error.what()});
  } catch (const std::exception& error) {
    verdict.own(std::current_exception());
    shared.fail({rank, ErrorKind::run_failed, error.what()});
  } catch (...) {
    verdict.own(std::current_exception());
    shared.fail({rank, ErrorKind::run_failed, "an exception of unknown type"});
  }
  shared.finish(rank);
}

}  // namespace

void run_on_threads(int ranks, const CommConfig& config,
                    const std::function<void(World& world)>& body) {
  check_comm_config(config);
  if (ranks < 1) throw UserError(fmt::format("ranks={}", ranks), "must be at least 1");
  auto shared = std::make_shared<ThreadWorld>(ranks);
  std::vector<RankId> members;
  for (int r = 0; r < ranks; ++r) members.emplace_back(r);
  auto communicators = make_thread_communicators(shared, members);

  Verdict verdict;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    std::unique_ptr<Communicator>& own = communicators[static_cast<std::size_t>(r)];
    if (config.check) own = make_checked_communicator(std::move(own), {});
    World world{std::move(own), make_thread_control(shared, RankId(r))};
    try {
      threads.emplace_back([&, r, view = std::make_shared<World>(std::move(world))] {
        run_rank(*shared, std::move(*view), RankId(r), body, verdict);
      });
    } catch (const std::system_error& error) {
      const SystemError refused(fmt::format("cannot start thread {} of {}", r, ranks), error.what(),
                                "Use fewer --ranks, or raise the limit of processes (ulimit -u)",
                                ErrorKind::environment);
      verdict.own(std::make_exception_ptr(refused));
      shared->fail({RankId(r), refused.kind(), refused.what()});
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  verdict.rethrow(shared->state().failure());
}

}  // namespace heteroperf
