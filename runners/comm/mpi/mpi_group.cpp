#include "runners/comm/mpi/mpi_group.hpp"

#include <algorithm>

// MPI counts bytes in an int, so a transfer of more than a limit is several messages with one tag.
// MPI keeps the messages of one sender and tag in order, so sender and receiver cut alike and the
// pieces meet.

namespace heteroperf {
namespace {

/// Calls start(offset, n) for each message of a transfer, and once for a transfer of no bytes.
template <class Start>
void for_each_message(std::size_t bytes, std::size_t max_message_bytes, Start start) {
  std::size_t begin = 0;
  do {
    const std::size_t n = std::min(max_message_bytes, bytes - begin);
    start(begin, n);
    begin += n;
  } while (begin < bytes);
}

}  // namespace

MpiGroup::MpiGroup(MPI_Comm handle, std::vector<RankId> members, std::shared_ptr<PeerWatch> watch,
                   std::size_t max_message_bytes)
    : handle_(handle),
      members_(std::move(members)),
      watch_(std::move(watch)),
      max_message_bytes_(max_message_bytes) {
  check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  check_mpi(MPI_Comm_rank(handle_, &rank), "MPI_Comm_rank");
  self_ = rank;
}

MpiGroup::~MpiGroup() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  // After a failure a peer may be gone, and freeing may wait for it.
  if (finalised != 0 || watch_->failure_among({})) return;
  try {
    run_blocking_call([handle = handle_]() mutable { MPI_Comm_free(&handle); },
                      [this] {
                        if (const auto failure = watch_->failure_among({})) {
                          throw PeerError(*failure, "freeing a group");
                        }
                      });
  } catch (const std::exception&) {
    // A group that is not freed now ends with the process; the failure reaches everybody's next
    // wait.
  }
}

void MpiGroup::start_send(const void* data, std::size_t bytes, std::size_t to, int tag,
                          RequestBatch& requests) const {
  for_each_message(bytes, max_message_bytes_, [&](std::size_t begin, std::size_t n) {
    check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + begin, static_cast<int>(n), MPI_BYTE,
                        static_cast<int>(to), tag, handle_, requests.add(members_[to], n)),
              "MPI_Isend");
  });
}

void MpiGroup::start_receive(void* data, std::size_t bytes, std::size_t from, int tag,
                             RequestBatch& requests) const {
  for_each_message(bytes, max_message_bytes_, [&](std::size_t begin, std::size_t n) {
    check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + begin, static_cast<int>(n), MPI_BYTE,
                        static_cast<int>(from), tag, handle_, requests.add(members_[from], n)),
              "MPI_Irecv");
  });
}

void MpiGroup::gather_blocks(void* all, std::size_t bytes, const WaitedFor& waited) const {
  const int n = static_cast<int>(bytes);
  check_mpi(MPI_Iallgather(MPI_IN_PLACE, n, MPI_BYTE, all, n, MPI_BYTE, handle_, gathering_.add()),
            "MPI_Iallgather");
  wait(gathering_, waited);
}

}  // namespace heteroperf
