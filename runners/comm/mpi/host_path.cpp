#include "runners/comm/mpi/mpi_collectives.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "metrics/base/random.hpp"
#include "runners/comm/control/socket.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

// The ranks of a group find out together how far they can share memory. Host names prove nothing
// (containers share or change them), so every step is tried with a random token:
//
//   1. all ranks exchange a card: host, process, token, cores;
//   2. the group's first rank has made memory without a name, led by its token; the others open it
//      by way of /proc/PROCESS/fd/DESCRIPTOR and look for the token in it;
//   3. every rank reads the token of every peer out of that peer's own memory, which shows that
//      single copies work;
//   4. all exchange how far they got, and the least of it holds for everybody.

namespace heteroperf {
namespace {

/// Shared memory begins with a line that serves to recognise it.
constexpr std::size_t header_bytes = 64;

/// The things that every rank tells the others first.
struct RankCard {
  std::uint64_t host;   ///< hash of host_id()
  std::uint64_t token;  ///< random; also at `token_address` of that process
  const std::uint64_t* token_address;
  pid_t process;
  int memory;  ///< the process's descriptor of the memory; -1: none
  HostPath widest;
  cpu_set_t cores;
};

/// The path that a rank reached, and the reason why it got no further.
struct Attempt {
  HostPath reached;
  char why[120];
};

/// Makes memory without a name that begins with the token. Empty when it cannot be had.
Descriptor make_memory(std::size_t bytes, std::uint64_t token) {
  Descriptor memory(memfd_create("heteroperf", MFD_CLOEXEC));
  if (memory && ftruncate(memory.fd(), static_cast<off_t>(bytes)) == 0 &&
      pwrite(memory.fd(), &token, sizeof token, 0) == static_cast<ssize_t>(sizeof token)) {
    return memory;
  }
  return {};
}

/// Null where this is not the memory of that token.
std::shared_ptr<std::byte> map_memory(int memory, std::size_t bytes, std::uint64_t token) {
  std::uint64_t first_word = 0;
  struct stat status {};
  if (fstat(memory, &status) != 0 || status.st_size != static_cast<off_t>(bytes)) return {};
  if (pread(memory, &first_word, sizeof token, 0) != static_cast<ssize_t>(sizeof token)) return {};
  if (first_word != token) return {};
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (data == MAP_FAILED) return {};
  return {static_cast<std::byte*>(data) + header_bytes,
          [data, bytes](std::byte*) { munmap(data, bytes); }};
}

Attempt attempt(HostPath reached, const std::string& why) {
  Attempt result{reached, ""};
  std::strncpy(result.why, why.c_str(), sizeof result.why - 1);
  return result;
}

std::string ptrace_scope() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope ? fmt::format(", kernel.yama.ptrace_scope is {}", scope) : "";
}

/// Reads every peer's token out of its memory.
Attempt try_single_copy(const std::vector<RankCard>& cards) {
  for (const RankCard& card : cards) {
    std::uint64_t token = 0;
    const iovec here{&token, sizeof token};
    const iovec there{const_cast<std::uint64_t*>(card.token_address), sizeof token};
    const ssize_t n = process_vm_readv(card.process, &here, 1, &there, 1, 0);
    if (n == static_cast<ssize_t>(sizeof token) && token == card.token) continue;
    return attempt(HostPath::shared_memory,
                   fmt::format("process_vm_readv: {}{}",
                               n < 0 ? std::strerror(errno) : "wrong data", ptrace_scope()));
  }
  return attempt(HostPath::single_copy, "");
}

/// Tries the steps from shared memory on. `made` is not empty on the rank that made the memory.
Attempt try_host(const std::vector<RankCard>& cards, std::size_t bytes, const Descriptor& made,
                 HostPath widest, std::shared_ptr<std::byte>& memory) {
  const RankCard& maker = cards.front();
  const std::string path = fmt::format("/proc/{}/fd/{}", maker.process, maker.memory);
  const Descriptor opened(made ? -1 : open(path.c_str(), O_RDWR | O_CLOEXEC));
  const int error = errno;
  if (!made && !opened) {
    return attempt(HostPath::messages,
                   fmt::format("cannot open shared memory: {}", std::strerror(error)));
  }
  memory = map_memory((made ? made : opened).fd(), bytes, maker.token);
  if (!memory) return attempt(HostPath::messages, "cannot map shared memory");
  if (widest == HostPath::shared_memory) return attempt(widest, "as configured");
  return try_single_copy(cards);
}

/// True when a host has more ranks than cores that they may use.
bool is_crowded(const std::vector<RankCard>& cards, std::uint64_t host) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int ranks = 0;
  for (const RankCard& card : cards) {
    if (card.host != host) continue;
    CPU_OR(&cores, &cores, &card.cores);
    ++ranks;
  }
  return ranks > CPU_COUNT(&cores);
}

std::size_t count_hosts(const std::vector<RankCard>& cards) {
  std::set<std::uint64_t> hosts;
  for (const RankCard& card : cards) hosts.insert(card.host);
  return hosts.size();
}

/// Chooses the least path that any rank reached.
void settle(const std::vector<Attempt>& attempts, HostChoice& choice) {
  const Attempt& least = *std::ranges::min_element(attempts, {}, &Attempt::reached);
  choice.path = least.reached;
  choice.reason = fmt::format("{} ranks on one host", attempts.size());
  if (least.why[0] != '\0') choice.reason += fmt::format("; {}", least.why);
}

}  // namespace

HostChoice choose_host_path(const MpiGroup& group, HostPath widest, std::size_t bytes) {
  bytes += header_bytes;
  const WaitedFor joining{"joining a group", {}};
  const std::uint64_t token = unpredictable_bits() | 1;
  const bool maker = group.self() == 0 && group.size() > 1 && widest != HostPath::messages;
  const Descriptor made = maker ? make_memory(bytes, token) : Descriptor();
  std::vector<RankCard> cards(group.size());
  RankCard& card = cards[group.self()];
  card = {std::hash<std::string>{}(host_id()), token, &token, getpid(), made.fd(), widest, {}};
  CPU_ZERO(&card.cores);
  sched_getaffinity(0, sizeof card.cores, &card.cores);
  const std::uint64_t host = card.host;
  group.gather_blocks(cards.data(), sizeof(RankCard), joining);

  HostChoice choice;
  choice.crowded = is_crowded(cards, host);
  for (const RankCard& rank : cards) {
    widest = std::min(widest, rank.widest);
    choice.members.push_back(rank.process);
  }
  const std::size_t hosts = count_hosts(cards);
  if (group.size() == 1) {
    choice.reason = "one rank";
  } else if (hosts > 1) {
    choice.reason = fmt::format("the ranks are on {} hosts", hosts);
  } else if (widest == HostPath::messages) {
    choice.reason = "as configured";
  }
  if (!choice.reason.empty()) return choice;
  std::vector<Attempt> attempts(group.size());
  attempts[group.self()] = try_host(cards, bytes, made, widest, choice.memory);
  group.gather_blocks(attempts.data(), sizeof(Attempt), joining);
  settle(attempts, choice);
  return choice;
}

}  // namespace heteroperf
