#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/parameters/parameter_store.hpp"

namespace heteroperf {

/// The arenas of a store, as sums use them. They stay alive for as long as this object.
struct GradientArenas {
  explicit GradientArenas(const ParameterStore& store)
      : gradient_(store.reduced_gradient()), master_(store.master()) {}

  at::Tensor gradients(const ArenaRange& range) const;
  at::Tensor masters(const ArenaRange& range) const;
  DataType type() const;

 private:
  at::Tensor gradient_, master_;
};

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
class FlatSum final : public GradientSum {
 public:
  FlatSum(Communicator& group, const GradientArenas& arenas, const ArenaRange& range,
          SumTarget target);

  void run() override;
  void share() override;
  std::vector<ArenaRange> owned() const override { return {slice_}; }

 private:
  at::Tensor slice_of(const at::Tensor& range) const;
  at::Tensor room_like(const at::Tensor& slice);

  Communicator& group_;
  GradientArenas arenas_;
  ArenaRange range_, slice_;
  SumTarget target_;
  std::vector<std::size_t> counts_;
  std::unique_ptr<std::byte[]> room_;
};

/// Sums one parameter that the copies of a stage have cut differently: every element gets one
/// summand from each copy. With ZeRO-1 each copy owns a part of every piece that no copy cuts: rows
/// of it or, where pieces are columns, rows of the parameter.
class ReshardedSum final : public GradientSum {
 public:
  /// A rank of the group and the part of the parameter that it holds. A copy whose ranks all hold
  /// the same has its summand on the first.
  struct Holder {
    RankId rank;
    std::size_t copy = 0;
    ParameterShard shard;
  };
  /// `holders` follow one another copy by copy; `shape` is the full parameter's, in the order of
  /// memory; `range` has this rank's part of it. `tag` and the one after it are used by this sum
  /// alone.
  ReshardedSum(Communicator& group, const GradientArenas& arenas, const ArenaRange& range,
               const Shape& shape, const std::vector<Holder>& holders, SumTarget target, int tag);
  ~ReshardedSum() override;

  void run() override;
  void share() override;
  std::vector<ArenaRange> owned() const override;

 private:
  class Move;
  GradientArenas arenas_;
  ArenaRange range_;
  std::unique_ptr<Move> sum_, share_;  ///< nothing to share where every rank has all
};

}  // namespace heteroperf
