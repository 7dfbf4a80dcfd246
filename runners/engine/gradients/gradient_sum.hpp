#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/parameters/parameter_store.hpp"

namespace heteroperf {

/// A stretch of a store's arenas, as sums use it. The arenas stay alive for as long as this object.
struct ArenaPart {
  ArenaRange range;
  at::Tensor gradients, masters;
};
ArenaPart arena_part(const ParameterStore& store, const ArenaRange& range);

/// Gradients that are summed in one operation among a group of ranks, in the group's order.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  /// Replaces the gradients by their sums. Collective.
  virtual void run() = 0;
  /// Collective: after the update of what each rank owns, all have all of it again.
  virtual void share() {}
  /// The elements that this rank updates.
  virtual std::vector<ArenaRange> owned() const = 0;
};

/// With ZeRO-1 every rank of a group gets the sums of its own part alone, else of all it holds.
enum class SumTarget { all, own_part };

/// Sums elements that lie alike on all ranks of the group. Rank r's own part is slice r; slices
/// begin on cache lines. The elements of a device go through the host's memory unless the group's
/// buffers are on the device.
std::unique_ptr<GradientSum> flat_sum(Communicator& group, const ArenaPart& part, SumTarget target);

/// A rank of a group and the part of a parameter that it holds. A copy whose ranks all hold the
/// same has its summand on the first.
struct ParameterHolder {
  RankId rank;
  std::size_t copy = 0;
  ParameterShard shard;
};

/// Sums one parameter that the copies of a stage have cut differently: every element gets one
/// summand from each copy. With ZeRO-1 each copy owns a part of every piece that no copy cuts: rows
/// of it or, where pieces are columns, rows of the parameter. `holders` follow one another copy by
/// copy; `shape` is the full parameter's, in the order of memory; `part` is this rank's part of
/// it. `tag` and the one after it are used by this sum alone.
std::unique_ptr<GradientSum> resharded_sum(Communicator& group, const ArenaPart& part,
                                           const Shape& shape,
                                           const std::vector<ParameterHolder>& holders,
                                           SumTarget target, int tag);

}  // namespace heteroperf
