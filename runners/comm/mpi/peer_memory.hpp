#pragma once

#include <span>
#include <vector>

#include <sys/types.h>

#include "runners/comm/mpi/mpi_group.hpp"

namespace heteroperf {

/// Copies between this process and its peers on the same host in one go (Linux
/// process_vm_readv(2)). The peer keeps its buffer in place meanwhile. Throws PeerError when the
/// peer is gone.
class PeerMemory {
 public:
  PeerMemory(const MpiGroup& group, std::vector<pid_t> processes)
      : group_(group), processes_(std::move(processes)) {}

  void read(std::size_t rank, const std::byte* theirs, void* mine, std::size_t bytes,
            const WaitedFor& waited) const;
  void write(std::size_t rank, std::byte* theirs, const void* mine, std::size_t bytes,
             const WaitedFor& waited) const;

 private:
  [[noreturn]] void blame_copy(std::size_t rank, ssize_t moved, const WaitedFor& waited) const;

  const MpiGroup& group_;
  std::vector<pid_t> processes_;
};

}  // namespace heteroperf
