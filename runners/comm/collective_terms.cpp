#include "runners/comm/collective_terms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "metrics/random.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

/// In the order of Collective and Reduction.
constexpr const char* collective_names[] = {"all_reduce", "reduce",         "broadcast",
                                            "all_gather", "reduce_scatter", "all_to_all",
                                            "barrier",    "split"};
constexpr const char* reduction_names[] = {"sum", "min", "max", "average"};

std::uint64_t hash_counts(Counts counts) {
  std::uint64_t hash = 0;
  for (std::size_t count : counts) hash = mix64(hash ^ count);
  return hash;
}

/// With all that ranks can disagree about.
std::string describe_fully(const CollectiveTerms& terms) {
  const char* reduction = reduction_names[static_cast<std::size_t>(terms.reduction)];
  const std::string text = describe(terms);
  switch (terms.collective) {
    case Collective::all_reduce:
      return fmt::format("{} ({})", text, reduction);
    case Collective::reduce:
      return fmt::format("{} ({}, root {})", text, reduction, terms.root);
    case Collective::broadcast:
      return fmt::format("{} (root {})", text, terms.root);
    case Collective::all_gather:
      return fmt::format("{} (block sizes #{:04x})", text, terms.counts_hash >> 48);
    case Collective::reduce_scatter:
      return fmt::format("{} ({}, block sizes #{:04x})", text, reduction, terms.counts_hash >> 48);
    default:
      return text;
  }
}

}  // namespace

CollectiveTerms all_reduce_terms(ConstBuffer mine, Reduction reduction) {
  return {Collective::all_reduce, mine.type, reduction, 0, mine.count, 0};
}
CollectiveTerms reduce_terms(ConstBuffer mine, RankId root, Reduction reduction) {
  return {Collective::reduce, mine.type, reduction, root.value(), mine.count, 0};
}
CollectiveTerms broadcast_terms(ConstBuffer values, RankId root) {
  return {Collective::broadcast, values.type, Reduction::sum, root.value(), values.count, 0};
}
CollectiveTerms all_gather_terms(ConstBuffer all, Counts counts) {
  return {Collective::all_gather, all.type, Reduction::sum, 0, all.count, hash_counts(counts)};
}
CollectiveTerms reduce_scatter_terms(ConstBuffer all, Counts counts, Reduction reduction) {
  return {Collective::reduce_scatter, all.type, reduction, 0, all.count, hash_counts(counts)};
}
CollectiveTerms all_to_all_terms(ConstBuffer mine) {
  return {Collective::all_to_all, mine.type, Reduction::sum, 0, 0, 0};
}
CollectiveTerms barrier_terms() {
  return {Collective::barrier, DataType::u8, Reduction::sum, 0, 0, 0};
}
CollectiveTerms split_terms() { return {Collective::split, DataType::u8, Reduction::sum, 0, 0, 0}; }

std::string describe(const CollectiveTerms& terms) {
  const char* name = collective_names[static_cast<std::size_t>(terms.collective)];
  if (terms.collective == Collective::barrier || terms.collective == Collective::split) return name;
  if (terms.collective == Collective::all_to_all) {
    return fmt::format("{} of {}", name, to_string(terms.type));
  }
  return describe(name, ConstBuffer(nullptr, terms.count, terms.type));
}

std::string describe_disagreement(std::span<const CollectiveTerms> terms) {
  std::vector<std::pair<CollectiveTerms, std::vector<int>>> camps;
  for (std::size_t r = 0; r < terms.size(); ++r) {
    auto camp = std::ranges::find(camps, terms[r], [](const auto& one) { return one.first; });
    if (camp == camps.end()) camp = camps.insert(camp, {terms[r], {}});
    camp->second.push_back(static_cast<int>(r));
  }
  if (camps.size() < 2) return {};
  std::string text;
  for (const auto& [what, ranks] : camps) {
    const char* verb = !text.empty() ? "" : ranks.size() == 1 ? "is " : "are ";
    text += fmt::format("{}{} {}in {}", text.empty() ? "" : ", ", name_ranks(ranks), verb,
                        describe_fully(what));
  }
  return text;
}

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const char* before = i == 0 ? " " : i + 1 == ranks.size() ? " and " : ", ";
    text += before + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace heteroperf
