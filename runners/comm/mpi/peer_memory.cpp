#include "runners/comm/mpi/peer_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace heteroperf {
namespace {

/// One system call's share, so that a failure elsewhere is noticed in time.
constexpr std::size_t step_bytes = std::size_t{64} << 20;

/// Calls `copy` (a system call) until all is moved; false when it fails.
template <class Copy>
ssize_t move_all(Copy copy, void* mine, std::byte* theirs, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const std::size_t n = std::min(step_bytes, bytes - done);
    const iovec here{static_cast<std::byte*>(mine) + done, n};
    const iovec there{theirs + done, n};
    const ssize_t moved = copy(&here, &there);
    if (moved <= 0) return moved;
    done += static_cast<std::size_t>(moved);
  }
  return 1;
}

}  // namespace

void PeerMemory::read(std::size_t rank, const std::byte* theirs, void* mine, std::size_t bytes,
                      const WaitedFor& waited) const {
  const ssize_t moved = move_all(
      [&](const iovec* here, const iovec* there) {
        return process_vm_readv(processes_[rank], here, 1, there, 1, 0);
      },
      mine, const_cast<std::byte*>(theirs), bytes);
  if (moved <= 0) blame_copy(rank, moved, waited);
}

void PeerMemory::write(std::size_t rank, std::byte* theirs, const void* mine, std::size_t bytes,
                       const WaitedFor& waited) const {
  const ssize_t moved = move_all(
      [&](const iovec* here, const iovec* there) {
        return process_vm_writev(processes_[rank], here, 1, there, 1, 0);
      },
      const_cast<void*>(mine), theirs, bytes);
  if (moved <= 0) blame_copy(rank, moved, waited);
}

void PeerMemory::blame_copy(std::size_t rank, ssize_t moved, const WaitedFor& waited) const {
  const std::string why = moved < 0 ? std::strerror(errno) : "no bytes moved";
  await_failure_news(*group_.watch(), group_.members(), waited);
  throw SystemError(fmt::format("cannot copy from or to rank {} during {}",
                                group_.members()[rank].value(), waited.text()),
                    why, "Set comm.host_path to shared_memory");
}

}  // namespace heteroperf
