#pragma once

#include <vector>

#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Token streams with a known entropy: the row-permuted Zipf Markov chain. The next token after c
/// is pi_c(r), r from a Zipf law over `branching` ranks (weight 1 / (r + 1)), pi_c an injection
/// keyed by (seed, c). Every row has the same entropy, so the mean cross-entropy of any model is at
/// least
///
///   H = −Σ p_r ln p_r
///
/// and only a model that has learned each of the vocabulary's rows reaches it. The first token of a
/// sample is uniform; it is never a target. The splits differ in the key of their samples.
class GeneratedTokens : public DataSource {
 public:
  /// Drawing the rows takes most of a source's time; without them no sample can be read.
  enum class Successors { drawn, left_out };
  /// `spec` has tokens, length > 0 and 16 to 2^20 classes; branching is then min(32, classes / 4).
  /// Throws UserError with every value out of range.
  GeneratedTokens(const SampleSpec& spec, std::uint64_t seed,
                  Successors successors = Successors::drawn);

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override;
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override;
  std::string fingerprint() const override;
  std::optional<double> loss_floor() const override;

  /// Returns P(next | context), for oracles; it is 0 for tokens outside of the context's row.
  double probability(std::int64_t context, std::int64_t next) const;

 private:
  std::int64_t draw_next(std::int64_t context, std::uint64_t bits) const;

  SampleSpec spec_;
  std::uint64_t seed_;
  std::size_t branching_;
  std::vector<std::uint64_t> cumulative_;  ///< sums of the integer Zipf weights, per rank
  std::vector<std::int32_t> successors_;   ///< indexed by [context][rank]
};

}  // namespace heteroperf
