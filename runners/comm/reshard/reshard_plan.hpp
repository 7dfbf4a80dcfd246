#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/layout.hpp"
#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// The relation between the holders of one tile: equal values, or summands of the value.
enum class GradientKind { replicate, partial };

struct ReshardConfig {
  DataType type = DataType::f32;
  Bytes smallest_slice{16384};  ///< a box is not cut into slices smaller than this
  friend bool operator==(const ReshardConfig&, const ReshardConfig&) = default;
};
/// No box is cut into slices: each goes whole from a holder to every rank that lacks it.
ReshardConfig whole_boxes(DataType type);

/// A plan runs its stages in this order; a rank begins a stage when its own part of the one before
/// is done.
enum class ReshardStage {
  sum,      ///< partial values meet at one rank
  deliver,  ///< values leave the ranks that have them
  forward,  ///< those who got slices of a box pass them on to the ranks that still lack them
};
constexpr std::size_t reshard_stages = 3;

/// The memory in which a rank finds or puts a box: its source tensor, its result, or the block of a
/// summand of a Sum.
enum class ReshardPlace { source, sum, result };
constexpr std::int32_t no_sum = -1;

/// A box within a message.
struct Piece {
  Box box;
  ReshardPlace from = ReshardPlace::source;  ///< or result
  /// The sum of which it is a summand, as index into ReshardPlan::sums; none: goes to the result.
  std::int32_t into_sum = no_sum;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// All pieces that one rank sends to another in one stage.
struct ReshardMessage {
  ReshardStage stage = ReshardStage::deliver;
  std::int32_t round = 0;  ///< in a round of its stage no rank sends, nor receives, twice
  RankId from, to;
  std::uint32_t first_piece = 0, pieces = 0;  ///< a range of ReshardPlan::pieces
  Bytes size{0};
  friend bool operator==(const ReshardMessage&, const ReshardMessage&) = default;
};

/// A box that is added up at one rank at the end of the stage `sum`, into its result.
struct Sum {
  RankId at;
  Box box;
  std::vector<RankId> summands;  ///< the ranks whose boxes are added, in this order
  friend bool operator==(const Sum&, const Sum&) = default;
};

/// A box that its holder keeps.
struct LocalCopy {
  RankId rank;
  Box box;
  friend bool operator==(const LocalCopy&, const LocalCopy&) = default;
};

/// A plan says who sends which box to whom so that a tensor that is spread over ranks as `from`
/// becomes spread as `to`. It is a pure value, equal on all ranks.
struct ReshardPlan {
  Layout from, to;
  GradientKind sources = GradientKind::replicate;  ///< partial: holders of a source tile are added
  ReshardConfig config;

  std::vector<LocalCopy> copies;         ///< by rank
  std::vector<ReshardMessage> messages;  ///< by stage, round, sender
  std::vector<Piece> pieces;
  std::vector<Sum> sums;
  std::array<int, reshard_stages> rounds{};
  friend bool operator==(const ReshardPlan&, const ReshardPlan&) = default;
};

/// Every rank of `to` gets each element that it lacks exactly once. Among replicas the owner of a
/// box balances the ranks. The layouts have one shape.
ReshardPlan plan_reshard(const Layout& from, const Layout& to, const ReshardConfig& config);
/// The same where the holders of a tile of `from` have summands: every rank of `to` gets their
/// sum, the same bits on all of them. Summands are added in rank order, at a rank that wants the
/// sum and, where possible, holds a summand.
ReshardPlan plan_sum(const Layout& from, const Layout& to, const ReshardConfig& config);

/// The way back: the gradient of plan.to becomes that of plan.from, complete on every replica.
/// `kind` says what the replicas of plan.to hold: with equal gradients one of them is picked,
/// partial ones are added. So a gather becomes a slice, a slice of replicated data an all-gather,
/// and a broadcast a sum if and only if `kind` is partial.
///
/// Nothing in the suite calls this yet: it is here for models of several components with layouts of
/// their own, whose activations are resharded forwards and whose gradients come back.
ReshardPlan adjoint(const ReshardPlan& plan, GradientKind kind);

}  // namespace heteroperf
