#include "workloads/data/generated_tokens.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"
#include "metrics/statistics.hpp"
#include "workloads/data/sample_order.hpp"

// Each token has a row of likely successors, which a keyed permutation draws from the vocabulary.
// The next token is the r-th of the row, r from a Zipf law with integer weights: so no rounding
// enters, and every row has the same entropy.

namespace heteroperf {
namespace {

constexpr std::uint64_t row_key = 0x726f77, token_key = 0x73616d706c65;
constexpr std::uint64_t unit_weight = std::uint64_t{1} << 48;
constexpr std::int64_t fewest_tokens = 16, most_tokens = std::int64_t{1} << 20;
constexpr std::int64_t most_branches = 32;

/// Throws UserError with every value of the spec that is out of range.
void check(const SampleSpec& spec) {
  ProblemList problems;
  if (spec.length < 1) {
    problems.add(fmt::format("generated tokens need a length of at least 1, not {}", spec.length));
  }
  if (spec.classes < fewest_tokens || spec.classes > most_tokens) {
    problems.add(fmt::format("generated tokens cannot have a vocabulary of {}", spec.classes),
                 fmt::format("it must be from {} to {}", fewest_tokens, most_tokens));
  }
  problems.throw_if_any();
}

/// Sums up the Zipf weights 1 / (r + 1), scaled to integers.
std::vector<std::uint64_t> zipf_cumulative(std::size_t ranks) {
  std::vector<std::uint64_t> cumulative(ranks);
  std::uint64_t sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) cumulative[r] = sum += unit_weight / (r + 1);
  return cumulative;
}

/// Draws the successors of every token, in the order of their ranks.
std::vector<std::int32_t> draw_rows(std::uint64_t seed, std::uint64_t tokens, std::size_t ranks) {
  std::vector<std::int32_t> successors(tokens * ranks);
  for (std::uint64_t context = 0; context < tokens; ++context) {
    const KeyedPermutation row(random_bits(seed, row_key, context), tokens);
    for (std::size_t r = 0; r < ranks; ++r) {
      successors[context * ranks + r] = static_cast<std::int32_t>(row(r));
    }
  }
  return successors;
}

/// Returns floor(bits / 2^64 · bound).
std::uint64_t scale_bits(std::uint64_t bits, std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

}  // namespace

GeneratedTokens::GeneratedTokens(const SampleSpec& spec, std::uint64_t seed, Successors successors)
    : spec_(spec), seed_(seed) {
  check(spec_);
  spec_ = {.kind = SampleKind::tokens, .length = spec.length, .classes = spec.classes};
  branching_ = static_cast<std::size_t>(std::min(most_branches, spec_.classes / 4));
  cumulative_ = zipf_cumulative(branching_);
  if (successors == Successors::left_out) return;
  successors_ = draw_rows(seed_, static_cast<std::uint64_t>(spec_.classes), branching_);
}

std::uint64_t GeneratedTokens::size(Split) const { return std::uint64_t{1} << 40; }

void GeneratedTokens::read(Split split, std::uint64_t index, SampleView out) const {
  HETEROPERF_EXPECT(index < size(split) && !successors_.empty());
  HETEROPERF_EXPECT(std::ssize(out.tokens) == spec_.length);
  HETEROPERF_EXPECT(out.targets.size() == out.tokens.size());
  RandomStream random(random_bits(seed_, token_key, split, index));
  auto token = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(spec_.classes)));
  for (std::size_t t = 0; t < out.tokens.size(); ++t) {
    out.tokens[t] = token;
    out.targets[t] = token = draw_next(token, random.bits());
  }
}

std::int64_t GeneratedTokens::draw_next(std::int64_t context, std::uint64_t bits) const {
  const std::uint64_t point = scale_bits(bits, cumulative_.back());
  const auto rank = static_cast<std::size_t>(
      std::upper_bound(cumulative_.begin(), cumulative_.end(), point) - cumulative_.begin());
  return successors_[context * branching_ + rank];
}

double GeneratedTokens::probability(std::int64_t context, std::int64_t next) const {
  const auto row = successors_.begin() + context * static_cast<std::ptrdiff_t>(branching_);
  const auto successor = std::find(row, row + static_cast<std::ptrdiff_t>(branching_), next);
  if (successor == row + static_cast<std::ptrdiff_t>(branching_)) return 0;
  const auto rank = static_cast<std::uint64_t>(successor - row);
  return static_cast<double>(unit_weight / (rank + 1)) / static_cast<double>(cumulative_.back());
}

std::optional<double> GeneratedTokens::loss_floor() const {
  double entropy = 0;
  for (std::size_t r = 0; r < branching_; ++r) {
    const double p =
        static_cast<double>(unit_weight / (r + 1)) / static_cast<double>(cumulative_.back());
    entropy -= p * natural_log(p);
  }
  return entropy;
}

std::string GeneratedTokens::description() const {
  return fmt::format(
      "generated tokens: Zipf Markov chain, vocabulary {}, branching {}, length {}, "
      "seed {}, entropy {:.4f} nats",
      spec_.classes, branching_, spec_.length, seed_, *loss_floor());
}

std::string GeneratedTokens::fingerprint() const {
  Hash128 hash("generated tokens 1");
  hash.update(seed_).update(spec_.length).update(spec_.classes).update(branching_);
  return hash.hex();
}

}  // namespace heteroperf
