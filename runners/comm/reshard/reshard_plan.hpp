#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/layout.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// The relation between the holders of one tile: equal values, or summands of the value.
enum class GradientKind { replicate, partial };

struct ReshardConfig {
  RankClusters clusters;  ///< they cover all ranks; none: all in one
  DataType type = DataType::f32;
  Bytes smallest_slice{16384};  ///< a box is not cut into slices smaller than this
  friend bool operator==(const ReshardConfig&, const ReshardConfig&) = default;
};

/// A plan runs its stages in this order; a rank begins a stage when its own part of the one before
/// is done.
enum class ReshardStage {
  sum_inside,  ///< partial values meet at one rank of each cluster
  sum_across,  ///< the clusters' sums meet at one rank
  deliver,     ///< values reach every cluster that lacks them, once
  forward,     ///< inside a cluster, values reach the ranks that still lack them
};
constexpr std::size_t reshard_stages = 4;

/// The memory in which a rank finds or puts a box: its source tensor, its result, or the block of a
/// Sum.
enum class ReshardPlace { source, sum, result };

constexpr std::int32_t no_sum = -1;

/// A box within a message.
struct Piece {
  Box box;
  ReshardPlace from = ReshardPlace::source;
  std::int32_t from_sum = no_sum;  ///< index into ReshardPlan::sums, with ReshardPlace::sum
  std::int32_t into_sum = no_sum;  ///< the sum of which it is a summand; none: goes to the result
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

/// A box that is added up at one rank at the end of a stage.
struct Sum {
  struct Summand {
    RankId rank;
    ReshardPlace from = ReshardPlace::source;
    std::int32_t from_sum = no_sum;
    friend bool operator==(const Summand&, const Summand&) = default;
  };
  RankId at;
  ReshardStage stage = ReshardStage::sum_inside;
  Box box;
  ReshardPlace into = ReshardPlace::sum;  ///< or result
  std::vector<Summand> summands;          ///< in the order of adding
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
  std::vector<Sum> sums;  ///< each after the sums that it adds
  std::array<int, reshard_stages> rounds{};
  friend bool operator==(const ReshardPlan&, const ReshardPlan&) = default;
};

/// Every rank of `to` gets each element that it lacks exactly once; a cluster without the element
/// gets it exactly once from outside. Among replicas the owner of a box balances first the network
/// cards, then the ranks. Throws UserError with everything wrong: different shapes, ranks that are
/// in no cluster.
ReshardPlan plan_reshard(const Layout& from, const Layout& to, const ReshardConfig& config);

/// The same where the holders of a tile of `from` have summands: every rank of `to` gets their
/// sum, the same bits on all of them. Let P be the clusters that hold summands and R those that
/// want the sum; an element crosses |P \ r| + |R \ r| times, r one of R, where possible of P too.
/// Summands are added in rank order inside a cluster, then cluster by cluster.
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
