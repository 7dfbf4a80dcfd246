#pragma once

#include <sys/types.h>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/collective_terms.hpp"
#include "runners/comm/mpi/mpi_group.hpp"
#include "runners/comm/slice.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {

/// The way in which a group's collectives move data, and the things they need for it.
struct HostChoice {
  HostPath path = HostPath::messages;
  std::string reason;    ///< "2 ranks on one host", "the ranks are on 3 hosts", …
  bool crowded = false;  ///< more ranks than cores: a waiting rank gives its core away
  /// Memory that the processes share, zeros at first; null with messages.
  std::shared_ptr<std::byte> memory;
  std::vector<pid_t> members;  ///< processes of the group; unless messages
};

/// Collective. All ranks of the group come to the same choice: `widest` or, where a rank cannot go
/// as far, less. The memory has no name: it ends with the last process that has it, however that
/// ends.
HostChoice choose_host_path(const MpiGroup& group, HostPath widest, std::size_t bytes);

/// One collective in two forms: the terms that its ranks compare, and the operation that messages
/// name when a wait for it fails.
struct CollectiveCall {
  CollectiveTerms terms;
  WaitedFor waited;
};

/// Moves the data of one MPI group's collectives. Arguments are checked, there are at least two
/// ranks, ranks count within the group, and sums follow the order of ranks: their bits depend on
/// the number of ranks alone. Throws as Communicator does, and on one host Error{run_failed} when
/// the ranks disagree.
class MpiCollectives {
 public:
  virtual ~MpiCollectives() = default;

  virtual void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) = 0;
  virtual void reduce(ConstBuffer input, MutableBuffer result, std::size_t root,
                      Reduction reduction) = 0;
  virtual void broadcast(MutableBuffer values, std::size_t root) = 0;
  virtual void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) = 0;
  virtual void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                              Reduction reduction) = 0;
  virtual void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                          Counts from_each) = 0;
  virtual void barrier() = 0;
  /// Moves no data. On one host, meets the other ranks and throws when they disagree; between
  /// hosts it does nothing.
  virtual void agree(const CollectiveCall& call) = 0;
};

/// Cuts `count` elements into `slices` slices of whole cache lines, whatever the type.
inline Slice slice_of(std::size_t count, std::size_t index, std::size_t slices) {
  return even_slice(count, index, slices, 64);
}

/// Collectives made of MPI messages, for ranks on any hosts. `group` outlives them.
std::unique_ptr<MpiCollectives> make_message_collectives(const MpiGroup& group);

/// The number of bytes of shared memory that make_shared_collectives() needs for so many ranks.
std::size_t shared_memory_bytes(std::size_t ranks);

/// Collectives of ranks on one host. Small data are copied through shared memory, larger ones in
/// overlapping parts; with single copy, large ones go straight between the ranks' buffers. `group`
/// outlives them.
std::unique_ptr<MpiCollectives> make_shared_collectives(const MpiGroup& group, HostChoice choice);

}  // namespace heteroperf
