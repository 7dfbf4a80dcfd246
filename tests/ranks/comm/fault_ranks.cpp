// One rank of a run in which something goes wrong: fault_ranks FAULT[@WAY] RANK TIMEOUT_S. The ways
// to sum: the world's own (default), hybrid (two clusters, interleaved), checked.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/checked/checked_communicator.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

constexpr int healthy_steps = 20;

volatile std::sig_atomic_t asked_to_stop = 0;
void ask_to_stop(int) { asked_to_stop = 1; }

int exit_code(ErrorKind kind) {
  if (kind == ErrorKind::timeout) return 7;
  if (kind == ErrorKind::environment) return 5;
  if (kind == ErrorKind::usage) return 2;
  if (kind == ErrorKind::interrupted) return 130;
  return 6;
}

/// For whoever measures how soon the run ends.
void tell_the_moment() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::fprintf(stderr, "fault at %.6f\n", now.count());
}

void fail(const std::string& fault) {
  tell_the_moment();
  if (fault == "stop-mpirun") {
    // It passes on what was said before.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getppid(), SIGSTOP);
  }
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "exit") _exit(0);
  if (fault == "throw") throw std::runtime_error("loss is NaN");
  if (fault == "usage") throw UserError("batch=0", "must be positive");
  if (fault == "sleep") std::this_thread::sleep_for(std::chrono::hours(1));
}

/// The culprit and the next rank wait for messages that nobody sends; the others go on.
void wait_in_vain(Communicator& world, int culprit) {
  std::vector<float> values(100);
  const int self = world.rank().value();
  if (self == culprit) world.receive(std::span<float>(values), RankId(culprit + 1), 7);
  if (self == culprit + 1) world.receive(std::span<float>(values), RankId(culprit), 8);
}

std::unique_ptr<Communicator> group_of(World& world, const std::string& way) {
  auto group = world.communicator->split(0, world.communicator->rank().value());
  if (way == "checked") return make_checked_communicator(std::move(group), Checks::payload);
  if (way != "hybrid") return group;
  HybridConfig config;
  std::vector<std::string> labels;
  for (int r = 0; r < group->size(); ++r) labels.emplace_back(r % 2 == 0 ? "even" : "odd");
  config.clusters = clusters_by_label(labels, group->size());
  config.rules = {{Algorithm::leader}};
  return make_hybrid_communicator(std::move(group), std::move(config));
}

void step(World& world, Communicator& group, std::vector<float>& values) {
  group.all_reduce(std::span<float>(values), Reduction::average);
  if (asked_to_stop != 0) world.control->request_stop("interrupted");
  std::int32_t stop = world.control->stop_requested() ? 1 : 0;
  world.communicator->all_reduce(std::span<std::int32_t>(&stop, 1), Reduction::max);
  if (stop != 0) throw Error(ErrorKind::interrupted, {{"stopped by the user", "", ""}});
}

void work(World& world, const std::string& fault, const std::string& way, int culprit) {
  const auto group = group_of(world, way);
  std::vector<float> values(200000, 1.0F);
  const bool guilty = world.communicator->rank() == RankId(culprit);
  for (int n = 0; fault == "interrupt" || n < healthy_steps; ++n) {
    if (guilty && n == healthy_steps / 2) fail(fault);
    if (guilty && n == healthy_steps / 2 && fault == "mismatch") values.pop_back();
    if (n == healthy_steps / 2 && fault == "circle") wait_in_vain(*world.communicator, culprit);
    step(world, *group, values);
    if (n == 0 && guilty) std::fprintf(stderr, "stepping\n");
  }
  if (guilty && fault == "desert") return;
  if (fault == "desert") world.communicator->receive(std::span<float>(values), RankId(culprit));
}

[[noreturn]] void end(int code, const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  report_exit(code, text);
  _exit(code);
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  using namespace heteroperf;
  if (argc != 4) return 2;
  std::signal(SIGUSR1, ask_to_stop);
  World world;
  try {
    world = join_mpi_world({.timeout_s = std::atof(argv[3]), .heartbeat_s = 0.2});
    const std::string fault = argv[1];
    const std::size_t at = std::min(fault.find('@'), fault.size());
    work(world, fault.substr(0, at), fault.substr(std::min(at + 1, fault.size())),
         std::atoi(argv[2]));
    const int rank = world.communicator->rank().value();
    leave_mpi_world(std::move(world));
    if (fault == "linger" && rank == std::atoi(argv[2])) fail("stop");
    report_exit(0, "");
    return 0;
  } catch (const PeerError& error) {
    end(exit_code(error.kind()), error.what());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) end(130, error.what());
    const RankId rank = world.communicator ? world.communicator->rank() : RankId(0);
    report_exit(exit_code(error.kind()), error.what());
    if (world.control) world.control->abort({rank, error.kind(), error.what()});
    end(exit_code(error.kind()), error.what());
  } catch (const std::exception& error) {
    world.control->abort({world.communicator->rank(), ErrorKind::run_failed, error.what()});
    end(6, error.what());
  }
}
