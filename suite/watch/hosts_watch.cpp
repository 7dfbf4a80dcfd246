// Separates a run's own use of its hosts from that of others. The busy time of a host's CPUs is
// read by the first rank on it; the CPU time of the run's own processes there is subtracted.
//
// There are two ways to learn that CPU time. At the end all ranks take part: each process reports
// its own, and sums over the ranks give every host's. While the run goes on no collective is
// possible, so the first rank reads the others' from /proc by their process numbers. Numbers mean
// the same only inside one process namespace; a rank in another container counts as unseen, and
// then nothing is told rather than too much.
#include "suite/watch/hosts_watch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <span>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Processes of one such space see each other by their numbers; 0: the kernel does not tell.
std::int64_t process_number_space() {
  struct stat space {};
  return stat("/proc/self/ns/pid", &space) == 0 ? static_cast<std::int64_t>(space.st_ino) : 0;
}

}  // namespace

HostsWatch::HostsWatch(Communicator& all, const std::vector<RankBinding>& bindings, Reader read)
    : all_(all),
      bindings_(bindings),
      one_process_(all.transport() == "threads"),
      rank_(all.rank().index()),
      first_(first_beside(bindings, rank_)),
      beside_pids_(pids_beside()),
      cpus_(cpus_beside(bindings, rank_)),
      read_(std::move(read)) {
  start();
}

void HostsWatch::start() {
  cpu_before_s_ = own_cpu_s_here();
  seen_before_s_ = seen_cpu_s();
  if (rank_ != first_) return;
  start_ns_ = now_ns();
  start_ = read_(cpus_);
}

std::optional<HostLoadEvent> HostsWatch::until_now() {
  return with_own(own_cpu_s_here() - cpu_before_s_);
}

std::optional<HostLoadEvent> HostsWatch::so_far() const {
  const std::optional<double> seen_s = seen_cpu_s();
  if (!seen_s || !seen_before_s_) return std::nullopt;
  return with_own(*seen_s - *seen_before_s_);
}

std::optional<HostLoadEvent> HostsWatch::with_own(double own_cpu_s) const {
  if (rank_ != first_) return std::nullopt;
  const double seconds = seconds_since(start_ns_);
  auto load = host_load_between(start_, read_(cpus_), seconds, cpus_.size(), own_cpu_s);
  if (!load) return std::nullopt;
  load->host = bindings_[rank_].host;
  load->first_rank = static_cast<std::int32_t>(rank_);
  return load;
}

/// Finds the process numbers of the ranks on this host. A rank in another container counts as
/// nobody's, which cannot be seen.
std::vector<std::int64_t> HostsWatch::pids_beside() {
  HETEROPERF_EXPECT(std::ssize(bindings_) == all_.size());
  std::vector<std::int64_t> pids(bindings_.size(), 0), spaces(bindings_.size(), 0);
  pids[rank_] = getpid();
  spaces[rank_] = process_number_space();
  all_.all_reduce(std::span(pids));
  all_.all_reduce(std::span(spaces));
  constexpr std::int64_t nobody = -1;
  std::vector<std::int64_t> beside;
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    if (bindings_[rank].host != bindings_[rank_].host) continue;
    beside.push_back(spaces[rank] == spaces[rank_] ? pids[rank] : nobody);
  }
  return beside;
}

/// CPU time of all processes of the run on this rank's host.
double HostsWatch::own_cpu_s_here() {
  all_.barrier();  // one process counts what all its ranks have done
  std::vector<double> cpu_s(bindings_.size(), 0);  // by the first rank of a host
  // Ranks that are threads share one process, whose time is counted once.
  if (rank_ == 0 || !one_process_) cpu_s[first_] = process_cpu_s();
  all_.all_reduce(std::span(cpu_s));
  return cpu_s[first_];
}

std::optional<double> HostsWatch::seen_cpu_s() const {
  if (rank_ != first_) return std::nullopt;
  if (one_process_) return rank_ == 0 ? process_cpu_s() : 0;
  double sum_s = 0;
  for (const std::int64_t pid : beside_pids_) {
    const std::optional<double> cpu_s = process_cpu_s(pid);
    if (!cpu_s) return std::nullopt;
    sum_s += *cpu_s;
  }
  return sum_s;
}

}  // namespace heteroperf
