#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

/// What the ranks of one collective must agree about. Plain bytes without gaps.
struct CollectiveTerms {
  CollectiveKind kind = CollectiveKind::barrier;
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  std::int32_t root = 0;
  std::uint64_t count = 0;        ///< of the whole vector; 0 in all_to_all
  std::uint64_t counts_hash = 0;  ///< of the sizes of blocks

  friend bool operator==(const CollectiveTerms&, const CollectiveTerms&) = default;
};

CollectiveTerms all_reduce_terms(ConstBuffer mine, Reduction reduction);
CollectiveTerms reduce_terms(ConstBuffer mine, RankId root, Reduction reduction);
CollectiveTerms broadcast_terms(ConstBuffer values, RankId root);
CollectiveTerms all_gather_terms(ConstBuffer all, Counts counts);
CollectiveTerms reduce_scatter_terms(ConstBuffer all, Counts counts, Reduction reduction);
CollectiveTerms all_to_all_terms(ConstBuffer mine);
CollectiveTerms barrier_terms();
CollectiveTerms split_terms();

/// What to do about a message whose two sides differ.
inline constexpr const char* remedy_of_misfit =
    "Send and receive the same count and type on both sides.";

/// "all_reduce of 8 f32", "barrier".
std::string describe(const CollectiveTerms& terms);

/// Who is in which collective, every rank named: "ranks 0 and 2 are in all_reduce of 8 f32 (sum),
/// rank 1 in barrier". Empty when all agree. `ranks`: whose terms; empty: 0, 1, 2, …
std::string describe_disagreement(std::span<const CollectiveTerms> terms,
                                  std::span<const RankId> ranks = {});

/// For an Error{run_failed} when describe_disagreement() is not empty.
Problem disagreement(std::span<const CollectiveTerms> terms, std::span<const RankId> ranks = {});

/// For an Error{run_failed}: two ranks of an all_to_all have other counts for each other.
Problem counts_disagreement(DataType type, RankId from, std::size_t sent, RankId to,
                            std::size_t awaited);

/// "rank 1", "ranks 0, 2 and 5".
std::string name_ranks(std::span<const int> ranks);

}  // namespace heteroperf
