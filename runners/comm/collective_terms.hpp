#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

enum class CollectiveKind : std::int32_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  barrier,
  split,
};
constexpr std::array<const char*, 8> value_names(CollectiveKind) {
  return {"all_reduce",     "reduce",     "broadcast", "all_gather",
          "reduce_scatter", "all_to_all", "barrier",   "split"};
}

/// Everything about one collective that its ranks must agree about. Plain bytes without gaps, so
/// that ranks can show them to each other.
struct CollectiveTerms {
  CollectiveKind kind = CollectiveKind::barrier;
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  std::int32_t root = 0;
  std::uint64_t count = 0;        ///< elements of the whole vector; 0 in all_to_all
  std::uint64_t counts_hash = 0;  ///< hash of the sizes of blocks

  friend bool operator==(const CollectiveTerms&, const CollectiveTerms&) = default;
};

// The terms of each collective, from the arguments of its call.
inline CollectiveTerms all_reduce_terms(ConstBuffer input, Reduction reduction) {
  return {CollectiveKind::all_reduce, input.type, reduction, 0, input.count, 0};
}
inline CollectiveTerms reduce_terms(ConstBuffer input, RankId root, Reduction reduction) {
  return {CollectiveKind::reduce, input.type, reduction, root.value(), input.count, 0};
}
inline CollectiveTerms broadcast_terms(ConstBuffer values, RankId root) {
  return {CollectiveKind::broadcast, values.type, Reduction::sum, root.value(), values.count, 0};
}
CollectiveTerms all_gather_terms(ConstBuffer all, Counts counts);
CollectiveTerms reduce_scatter_terms(ConstBuffer all, Counts counts, Reduction reduction);
inline CollectiveTerms all_to_all_terms(ConstBuffer input) {
  return {CollectiveKind::all_to_all, input.type, Reduction::sum, 0, 0, 0};
}
/// The terms of a barrier or a split, which have nothing but their kind.
inline CollectiveTerms bare_terms(CollectiveKind kind) {
  return {kind, DataType::u8, Reduction::sum, 0, 0, 0};
}

/// The remedy for a message whose two sides differ, for the texts of errors.
inline constexpr const char* remedy_of_misfit =
    "Send and receive the same count and type on both sides.";

/// "all_reduce of 8 f32", "barrier".
std::string describe(const CollectiveTerms& terms);

/// The problem for an Error{run_failed} when terms differ. Says which ranks are in which
/// collective, every rank named: "ranks 0 and 2 are in all_reduce of 8 f32 (sum), rank 1 in
/// barrier". `ranks` are the ranks of the terms; without them these are 0, 1, 2, …
Problem disagreement(std::span<const CollectiveTerms> terms, std::span<const RankId> ranks = {});

/// The problem for an Error{run_failed} when the counts of two ranks of an all_to_all differ.
Problem counts_disagreement(DataType type, RankId from, std::size_t sent, RankId to,
                            std::size_t awaited);

/// Writes ranks as people do: "rank 1", "ranks 0, 2 and 5".
std::string name_ranks(std::span<const int> ranks);

/// One rank's arguments of a split.
struct SplitWish {
  std::int32_t colour = 0, key = 0;
};

/// One group that a split makes: its members by their place in the group that is split, ordered by
/// (key, place).
struct SplitGroup {
  std::vector<std::size_t> places;
  int colour = 0;              ///< the lowest place, so never negative, as MPI and NCCL need it
  std::size_t self_place = 0;  ///< this rank's place in the new group

  /// The world ranks of the members, from those of the group that is split.
  std::vector<RankId> members(std::span<const RankId> all) const;
};

/// The group of rank `self`, from the wishes of all ranks.
SplitGroup split_group(std::span<const SplitWish> wishes, std::size_t self);

}  // namespace heteroperf
