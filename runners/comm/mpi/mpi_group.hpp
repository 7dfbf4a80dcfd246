#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "runners/comm/mpi/mpi_backend.hpp"
#include "runners/comm/mpi/mpi_wait.hpp"

namespace heteroperf {

/// One group's ranks and the messages among them. Collectives use odd tags of MPI; users' tags
/// become even ones.
class MpiGroup {
 public:
  static constexpr int collective_tag = 1;
  static constexpr int max_user_tag = 4095;

  /// Takes over `handle` and frees it. `members` are the group's ranks in the world.
  MpiGroup(MPI_Comm handle, std::vector<RankId> members, std::shared_ptr<PeerWatch> watch,
           std::size_t max_message_bytes);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  std::size_t size() const { return members_.size(); }
  std::size_t self() const { return self_; }
  MPI_Comm handle() const { return handle_; }
  /// The members as ranks of the world.
  const std::vector<RankId>& members() const { return members_; }
  const std::shared_ptr<PeerWatch>& watch() const { return watch_; }
  std::size_t max_message_bytes() const { return max_message_bytes_; }

  /// Start the messages of one transfer, each of max_message_bytes() at most.
  void start_send(const void* data, std::size_t bytes, std::size_t to, int tag,
                  RequestBatch& requests) const;
  void start_receive(void* data, std::size_t bytes, std::size_t from, int tag,
                     RequestBatch& requests) const;
  /// Waits for requests that any member may hold up.
  std::size_t wait(RequestBatch& requests, const WaitedFor& wait) const {
    return wait_for_requests(requests, *watch_, members_, wait);
  }
  /// Gathers blocks of `bytes` bytes each into `all`, where this rank's block lies already.
  void gather_blocks(void* all, std::size_t bytes, const WaitedFor& wait) const;

 private:
  MPI_Comm handle_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  std::size_t max_message_bytes_;
  std::size_t self_ = 0;
  mutable RequestBatch gathering_;
};

/// Makes a communicator of an MPI group, which is a PathReport, too. Takes over `handle` (not
/// MPI_COMM_WORLD itself). `members` are the group's ranks in the world. Collective.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm handle, std::vector<RankId> members,
                                                    std::shared_ptr<PeerWatch> watch,
                                                    const MpiSettings& settings);

}  // namespace heteroperf
