#pragma once

#include <cstring>

#include "runners/comm/mpi/host_path.hpp"
#include "runners/comm/mpi/host_room.hpp"
#include "runners/comm/mpi/mpi_collectives.hpp"
#include "runners/comm/mpi/peer_memory.hpp"

namespace heteroperf {

/// What collectives of ranks on one host work with. `the_group` outlives it.
struct SharedHost {
  /// From here on a rank's data go straight from buffer to buffer.
  static constexpr std::size_t single_copy_bytes = 16384;

  SharedHost(const MpiGroup& the_group, HostChoice choice)
      : group(the_group),
        memory(std::move(choice.memory)),
        room(group.size(), memory.data()),
        meeting(group, room.lines(), choice.crowded),
        single_copy(choice.path == HostPath::single_copy),
        peers(group, std::move(choice.members)) {}

  std::size_t members() const { return group.size(); }
  std::size_t self() const { return group.self(); }
  /// So that peers are not all read in the same order.
  std::size_t peer(std::size_t step) const { return (self() + step) % members(); }
  bool goes_direct(std::size_t bytes) const { return single_copy && bytes >= single_copy_bytes; }

  const MpiGroup& group;
  SharedMemory memory;
  HostRoom room;
  HostMeeting meeting;
  bool single_copy;
  PeerMemory peers;
};

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace heteroperf
