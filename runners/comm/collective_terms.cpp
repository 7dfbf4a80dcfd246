#include "runners/comm/collective_terms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/name_table.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/element_types.hpp"

// Ranks that call different collectives would wait for each other for ever. Transports that can
// compare the terms of all ranks find that, and here the comparison becomes a sentence that names
// every rank: ranks with equal terms form a camp, and the text goes through the camps. Block sizes
// would not fit into terms of a fixed size, so a hash of them stands there.

namespace heteroperf {
namespace {

constexpr const char* remedy = "Call the same collectives with the same counts on every rank.";

std::uint64_t hash_counts(Counts counts) {
  std::uint64_t hash = 0;
  for (std::size_t count : counts) hash = mix64(hash ^ count);
  return hash;
}

/// Describes the terms with everything that ranks can disagree about.
std::string describe_fully(const CollectiveTerms& terms) {
  const char* reduction = to_string(terms.reduction);
  const std::string text = describe(terms);
  switch (terms.kind) {
    case CollectiveKind::all_reduce:
      return fmt::format("{} ({})", text, reduction);
    case CollectiveKind::reduce:
      return fmt::format("{} ({}, root {})", text, reduction, terms.root);
    case CollectiveKind::broadcast:
      return fmt::format("{} (root {})", text, terms.root);
    case CollectiveKind::all_gather:
      return fmt::format("{} (block sizes #{:04x})", text, terms.counts_hash >> 48);
    case CollectiveKind::reduce_scatter:
      return fmt::format("{} ({}, block sizes #{:04x})", text, reduction, terms.counts_hash >> 48);
    default:
      return text;
  }
}

}  // namespace

CollectiveTerms all_gather_terms(ConstBuffer all, Counts counts) {
  return {CollectiveKind::all_gather, all.type, Reduction::sum, 0, all.count, hash_counts(counts)};
}
CollectiveTerms reduce_scatter_terms(ConstBuffer all, Counts counts, Reduction reduction) {
  return {CollectiveKind::reduce_scatter, all.type, reduction, 0, all.count, hash_counts(counts)};
}
std::string describe(const CollectiveTerms& terms) {
  const char* name = to_string(terms.kind);
  if (terms.kind == CollectiveKind::barrier || terms.kind == CollectiveKind::split) return name;
  if (terms.kind == CollectiveKind::all_to_all) {
    return fmt::format("{} of {}", name, to_string(terms.type));
  }
  return describe(name, ConstBuffer(nullptr, terms.count, terms.type));
}

Problem disagreement(std::span<const CollectiveTerms> terms, std::span<const RankId> ranks) {
  HETEROPERF_EXPECT(ranks.empty() || ranks.size() == terms.size());
  // A camp is all ranks that agree with each other.
  struct Camp {
    CollectiveTerms terms;
    std::vector<int> members;
  };
  std::vector<Camp> camps;
  for (std::size_t r = 0; r < terms.size(); ++r) {
    auto camp = std::ranges::find(camps, terms[r], &Camp::terms);
    if (camp == camps.end()) camp = camps.insert(camp, {terms[r], {}});
    camp->members.push_back(ranks.empty() ? static_cast<int>(r) : ranks[r].value());
  }
  std::string text;
  for (const Camp& camp : camps) {
    const char* verb = !text.empty() ? "" : camp.members.size() == 1 ? "is " : "are ";
    text += fmt::format("{}{} {}in {}", text.empty() ? "" : ", ", name_ranks(camp.members), verb,
                        describe_fully(camp.terms));
  }
  return {"the ranks of a group disagree: " + text,
          "collectives need the same order, counts, types, reduction and root on every rank",
          remedy};
}

Problem counts_disagreement(DataType type, RankId from, std::size_t sent, RankId to,
                            std::size_t awaited) {
  return {fmt::format("the ranks of a group disagree in all_to_all of {}: rank {} sends {} to rank "
                      "{}, which awaits {}",
                      to_string(type), from.value(), sent, to.value(), awaited),
          "both sides need the same count", remedy};
}

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const char* before = i == 0 ? " " : i + 1 == ranks.size() ? " and " : ", ";
    text += before + std::to_string(ranks[i]);
  }
  return text;
}

std::vector<RankId> SplitGroup::members(std::span<const RankId> all) const {
  std::vector<RankId> ranks;
  for (const std::size_t place : places) ranks.push_back(all[place]);
  return ranks;
}

/// All ranks have all wishes, so each works out its own group and all members get the same order.
SplitGroup split_group(std::span<const SplitWish> wishes, std::size_t self) {
  SplitGroup group;
  for (std::size_t place = 0; place < wishes.size(); ++place) {
    if (wishes[place].colour == wishes[self].colour) group.places.push_back(place);
  }
  group.colour = static_cast<int>(group.places.front());
  const auto key = [&wishes](std::size_t place) { return wishes[place].key; };
  std::ranges::stable_sort(group.places, {}, key);
  group.self_place =
      static_cast<std::size_t>(std::ranges::find(group.places, self) - group.places.begin());
  return group;
}

}  // namespace heteroperf
