#include "workloads/data/hierarchical_grammar.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

using Production = HierarchicalGrammar::Production;

std::size_t code_of(const Production& production, int symbols) {
  std::size_t code = 0;
  for (std::uint8_t symbol : production) code = code * static_cast<std::size_t>(symbols) + symbol;
  return code;
}

std::vector<std::uint8_t> shuffled_symbols(int symbols, RandomStream& random) {
  std::vector<std::uint8_t> order(static_cast<std::size_t>(symbols));
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

std::vector<Production> draw_productions(const GrammarShape& shape, RandomStream& random) {
  std::vector<Production> productions(static_cast<std::size_t>(shape.synonyms));
  for (std::size_t place = 0; place < Production{}.size(); ++place) {
    const std::vector<std::uint8_t> order = shuffled_symbols(shape.symbols, random);
    for (std::size_t i = 0; i < productions.size(); ++i) productions[i][place] = order[i];
  }
  return productions;
}

/// Productions for each of `parents`, no two alike. Draws again for a parent that meets a taken
/// one.
std::vector<Production> draw_level(const GrammarShape& shape, int parents, RandomStream& random) {
  const auto symbols = static_cast<std::size_t>(shape.symbols);
  std::vector<bool> taken(symbols * symbols * symbols * symbols, false);
  std::vector<Production> level;
  while (level.size() <
         static_cast<std::size_t>(parents) * static_cast<std::size_t>(shape.synonyms)) {
    const std::vector<Production> drawn = draw_productions(shape, random);
    bool is_free = true;
    for (const Production& p : drawn) is_free = is_free && !taken[code_of(p, shape.symbols)];
    if (!is_free) continue;
    for (const Production& p : drawn) taken[code_of(p, shape.symbols)] = true;
    level.insert(level.end(), drawn.begin(), drawn.end());
  }
  return level;
}

}  // namespace

HierarchicalGrammar::HierarchicalGrammar(const GrammarShape& shape, std::uint64_t seed)
    : shape_(shape) {
  HETEROPERF_EXPECT(shape.symbols >= 2 && shape.symbols <= 32);
  HETEROPERF_EXPECT(shape.synonyms >= 1 && shape.synonyms <= shape.symbols);
  HETEROPERF_EXPECT(shape.levels >= 1 && shape.levels <= 8 && shape.classes >= 2);
  // A quarter of all tuples at most: drawing without collision then ends soon.
  const int tuples = shape.symbols * shape.symbols * shape.symbols * shape.symbols;
  HETEROPERF_EXPECT(std::max(shape.classes, shape.symbols) * shape.synonyms <= tuples / 4);
  RandomStream random(seed);
  for (int level = 0; level < shape.levels; ++level) {
    productions_.push_back(draw_level(shape, level == 0 ? shape.classes : shape.symbols, random));
  }
}

const HierarchicalGrammar::Production& HierarchicalGrammar::production(int level, int parent,
                                                                       int synonym) const {
  return productions_[static_cast<std::size_t>(level)]
                     [static_cast<std::size_t>(parent * shape_.synonyms + synonym)];
}

void HierarchicalGrammar::expand(int label, RandomStream& random,
                                 std::span<std::uint8_t> symbols) const {
  HETEROPERF_EXPECT(label >= 0 && label < shape_.classes);
  HETEROPERF_EXPECT(symbols.size() == static_cast<std::size_t>(side() * side()));
  expand({0, 0, 0}, label, random, symbols);
}

void HierarchicalGrammar::expand(Place place, int parent, RandomStream& random,
                                 std::span<std::uint8_t> out) const {
  if (place.level == shape_.levels) {
    out[static_cast<std::size_t>(place.row * side() + place.column)] =
        static_cast<std::uint8_t>(parent);
    return;
  }
  const auto synonym = static_cast<int>(random.below(static_cast<std::uint64_t>(shape_.synonyms)));
  const Production& children = production(place.level, parent, synonym);
  for (int i = 0; i < 4; ++i) {
    expand({place.level + 1, 2 * place.row + i / 2, 2 * place.column + i % 2},
           children[static_cast<std::size_t>(i)], random, out);
  }
}

}  // namespace heteroperf
