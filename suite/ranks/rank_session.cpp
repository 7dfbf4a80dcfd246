// The one way in which commands get ranks, and an orderly end when one of them fails. There are
// three kinds of ranks: processes of a launcher's world of which this is one, threads of this
// process, and a world that this process starts by calling mpirun on its own command line. In the
// last case this process only launches: the ranks come back here as a launched world.
//
// Threads are simple: the first exception ends all. Processes are not: MPI cannot be left
// while peers wait in it, so a rank that fails tells the others over the control channel, rank 0
// shows what it has, and every process ends at once with `_exit`.
//
// Only one error is told as the cause. The first failure that reached the control channel counts,
// not what a rank met later because of it. When rank 0 is the one that vanished without a word,
// rank 1 speaks in its place.
//
// A launcher may start several ranks on a host and may or may not bind them. Ranks that see the
// same mask of CPUs were not told apart, so they divide it among themselves; a rank whose mask is
// its own keeps all of it. Every rank gathers the host's name and the mask of all, and counts those
// that are equal to its own. The placement of a rank is then that of a small run on the mask alone,
// of which it takes the part with its own index.
#include "suite/ranks/rank_session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <thread>

#include "metrics/base/strict_json.hpp"
#include "results/text/text_escapes.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "suite/program/signals.hpp"

namespace heteroperf {
namespace {

constexpr std::chrono::seconds words_patience{2};

std::string text_of(const RankBinding& binding) {
  return Json{binding.host,   to_list(binding.cpus),    binding.unbound,
              binding.device, binding.gpu.value_or(-1), binding.device_memory_bytes}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankBinding binding_from_text(const std::string& text) {
  const Json json = Json::parse(text);
  const std::string cpus = json[1];
  const int gpu = json[4];
  return {json[0], cpus.empty() ? CpuSet() : parse_cpu_list(cpus), json[2],
          json[3], gpu < 0 ? std::nullopt : std::optional(gpu),    json[5]};
}

/// A launcher can start ranks with different arguments.
void check_same_command(Communicator& world, const std::vector<std::string>& argv) {
  const auto commands =
      gather_texts(world, fmt::format("{}", fmt::join(argv.begin() + 1, argv.end(), " ")));
  ProblemList problems;
  for (std::size_t r = 1; r < commands.size(); ++r) {
    if (commands[r] == commands[0]) continue;
    problems.add(fmt::format("rank {} was started with '{}'", r, commands[r]),
                 fmt::format("rank 0 with '{}'", commands[0]),
                 "Start every rank with the same arguments.");
  }
  problems.throw_if_any();
}

bool has_threads(const RankSession& session) {
  return session.transport.value_or(Transport::threads) == Transport::threads;
}

/// Threads of this process that could not go on.
ExitCode failed(const Error& error, const RankWork& work) {
  work.keep(error);
  for (const Problem& problem : error.problems()) {
    // Files of others speak here too: nothing of theirs steers the terminal.
    fmt::print(stderr, "heteroperf: {}\n", utf8_text(problem.text()));
  }
  return exit_code_of(error.kind());
}

void tell_end(int rank, const Error& error) {
  if (error.kind() != ErrorKind::usage) {
    fmt::print(stderr, "heteroperf: rank {}: {}\n", rank, error.what());
  } else if (rank == 0) {  // every rank finds it alike
    fmt::print(stderr, "heteroperf: {}\n", error.what());
  }
  std::fflush(nullptr);
}

[[noreturn]] void end_process(int rank, const Error& error) {
  const int code = static_cast<int>(exit_code_of(error.kind()));
  tell_end(rank, error);
  report_exit(code, error.what());
  _exit(code);
}

[[noreturn]] void leave_broken_world(World& world, const Error& met, const RankWork& work) {
  const RankId rank = world.communicator->rank();
  RankFailure failure{rank, met.kind(), met.what(), true};
  std::optional<Error> cause;
  if (const auto* peer = dynamic_cast<const PeerError*>(&met)) {
    failure = peer->failure();
    // A handler of this rank met the error, the rank's own work learned of it in a wait: the cause
    // is what is told.
    const bool is_cause = failure.rank == rank && failure.own_word;
    if (is_cause) cause.emplace(met.kind(), std::vector<Problem>{{failure.reason, "", ""}});
  } else {
    world.control->abort(failure);
  }
  // Every rank knows the same failure that broke the world; it may be older than the error here.
  failure = world.control->failure().value_or(failure);
  const Error& error = cause ? *cause : met;
  // Rank 0 speaks for all; when it is the one that is lost, the next.
  const bool first_is_lost = failure.rank == RankId(0) && !failure.own_word;
  if (rank == RankId(first_is_lost ? 1 : 0)) work.keep(error);
  end_process(rank.value(), error);
}

World join_or_report(const CommConfig& comm) {
  try {
    return join_mpi_world(comm);
  } catch (const Error& error) {
    report_exit(static_cast<int>(exit_code_of(error.kind())), error.what());
    throw;
  }
}

/// One rank of a launcher's world.
ExitCode run_launched_rank(int rank, const CommConfig& comm, const RankWork& work) {
  die_with_launcher();
  World world = join_or_report(comm);
  ExitCode code = ExitCode::ok;
  try {
    code = work.body(world);
  } catch (const Error& error) {
    leave_broken_world(world, error, work);
  } catch (const std::exception& error) {
    leave_broken_world(world, unexpected_failure(error), work);
  }
  const bool first = rank == 0;
  // Only rank 0's code is the launcher's result; the other ranks ended well.
  if (first && code != ExitCode::ok) report_exit(static_cast<int>(code), "");
  try {
    leave_mpi_world(std::move(world));
  } catch (const Error& error) {
    // Results have been shown by now, so a failure here is told on stderr alone.
    if (!first) throw;
    end_process(rank, error);
  }
  report_exit(0, "");
  return first ? code : ExitCode::ok;
}

}  // namespace

void abandon_run(const std::weak_ptr<ControlChannel>& control, const Error& error) {
  if (const auto others = control.lock()) {
    // The peers end by themselves once they hear of it.
    others->abort({RankId(0), error.kind(), error.what(), true});
  }
  const int code = static_cast<int>(exit_code_of(error.kind()));
  // Its words may go to the disk that hangs, or a thread that hangs there may hold a stream's lock.
  std::promise<void> told;
  const std::future<void> done = told.get_future();
  try {
    std::thread([&] {
      try {
        report_exit(code, error.what());
        tell_end(0, error);
      } catch (const std::exception&) {  // a closed stderr: the exit code tells
      }
      told.set_value();
    }).detach();
    done.wait_for(words_patience);
  } catch (const std::exception&) {  // no thread: the exit code tells
  }
  _exit(code);
}

void check_session(const RankSession& session) {
  ProblemList problems;
  if (session.ranks < 0) {
    problems.add(fmt::format("--ranks {} is not usable", session.ranks), "must be positive");
  }
  const auto launched = detect_launcher();
  const std::string world =
      launched ? fmt::format("{} started {} processes", launched->launcher, launched->size) : "";
  if (launched && session.ranks > 0 && session.ranks != launched->size) {
    problems.add(fmt::format("--ranks {} does not fit the launcher's world", session.ranks), world,
                 "Leave --ranks out.");
  }
  // More threads than that only wait for each other.
  const int most = std::max(128, 32 * usable_cores().count());
  if (!launched && session.ranks > most && has_threads(session)) {
    problems.add(fmt::format("--ranks {} does not fit this machine", session.ranks),
                 fmt::format("{} threads for its cores at most", most),
                 "Give fewer, or start ranks on more hosts with mpirun.");
  }
  if (launched && session.transport == Transport::threads) {
    problems.add("--transport threads does not fit the launcher's world", world,
                 "Leave it out, or start heteroperf without a launcher.");
  }
  problems.throw_if_any();
}

RankDescriptor describe_rank(const Communicator& world) {
  std::string library = world.transport();
  if (library == "mpi") {
    const std::string version = mpi_status().version;  // "Open MPI v4.1.4"
    library = version.substr(0, version.find('.'));
  }
  RankDescriptor descriptor = describe_this_rank(library, "");
  // Modelled links say nothing of real hosts, so their cores are left out.
  if (pace_report(world)) descriptor.host_cores = 0;
  return descriptor;
}

ExitCode start_ranks(const RankSession& session, const RankWork& work) {
  if (const auto launched = detect_launcher()) {
    return run_launched_rank(launched->rank, session.comm, work);
  }
  const int cores = usable_cores().count();
  const int ranks = session.ranks > 0 ? session.ranks : cores;
  if (!has_threads(session)) {
    LaunchConfig launch;
    launch.cores = cores;
    launch.deadline_s = session.comm.timeout_s;
    const std::vector<std::string> arguments(session.argv.begin() + 1, session.argv.end());
    return static_cast<ExitCode>(launch_under_mpirun(ranks, arguments, launch));
  }
  std::atomic<ExitCode> code{ExitCode::ok};
  try {
    run_on_threads(ranks, session.comm, [&](World& world) {
      const ExitCode exit_code = work.body(world);
      if (world.communicator->rank() == RankId(0)) code = exit_code;
    });
  } catch (const Error& error) {
    return failed(error, work);
  } catch (const std::exception& error) {
    return failed(unexpected_failure(error), work);
  }
  return code;
}

ExitCode run_session(const RankSession& session, const RankWork& work) {
  check_session(session);
  const bool launched = detect_launcher().has_value();
  if (launched || has_threads(session)) install_stop_signals([] {});
  RankWork checked = work;
  checked.body = [&, cores = usable_cores()](World& world) {
    Communicator& all = *world.communicator;
    if (launched) {
      // Different arguments would make ranks enter different collectives and hang.
      check_same_command(all, session.argv);
    } else {
      // More ranks than cores share all of them unbound.
      const auto cpus = place_ranks(cores, all.size(), 1);
      if (!cpus.empty()) bind_this_thread(cpus[all.rank().index() % cpus.size()]);
    }
    return work.body(world);
  };
  return start_ranks(session, checked);
}

void stop_if_asked(Communicator& world) {
  std::int32_t stop = stop_signal() != nullptr ? 1 : 0;
  // One rank's signal ends the work of all.
  world.all_reduce(std::span(&stop, 1), Reduction::max);
  if (stop != 0) throw Error(ErrorKind::interrupted, {{"stopped by a signal", "", ""}});
}

HostShare share_of_host(Communicator& world, const UsableCores& cores) {
  const std::vector<std::string> hosts = gather_texts(world, host_name());
  const std::vector<std::string> masks = gather_texts(world, to_list(cores.cpus));
  const std::size_t me = world.rank().index();
  HostShare share{0, 0, 0};
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    // Equal masks on different hosts are different CPUs.
    if (hosts[rank] != hosts[me]) continue;
    ++share.ranks_on_host;
    if (masks[rank] != masks[me]) continue;
    if (rank < me) ++share.index_on_mask;
    ++share.ranks_on_mask;
  }
  return share;
}

Placement choose_launched_placement(const ScaleConfig& config, const UsableCores& cores,
                                    int world_ranks, const HostShare& share) {
  ScaleConfig on_mask = config;
  on_mask.ranks = share.ranks_on_mask;
  Placement placement = choose_placement(on_mask, cores, 0);
  if (!placement.cpus.empty()) {
    placement.cpus = {placement.cpus[share.index_on_mask]};
  }
  placement.bindings = {placement.bindings[share.index_on_mask]};
  placement.ranks = world_ranks;
  return placement;
}

std::vector<RankBinding> gather_bindings(Communicator& world, const RankBinding& binding) {
  std::vector<RankBinding> bindings;
  for (const std::string& text : gather_texts(world, text_of(binding))) {
    bindings.push_back(binding_from_text(text));
  }
  return bindings;
}

}  // namespace heteroperf
