#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "metrics/base/random.hpp"

namespace heteroperf {

/// How rich a HierarchicalGrammar is.
struct GrammarShape {
  int classes = 10;
  int symbols = 8;   ///< per level, at most 32
  int synonyms = 2;  ///< productions of each class and symbol, at most `symbols`
  int levels = 2;    ///< the string is a square of 2^levels × 2^levels symbols
  friend bool operator==(const GrammarShape&, const GrammarShape&) = default;
};

/// A random hierarchy (Cagnetta et al., arXiv 2307.02129) over squares: a class becomes 2×2
/// symbols, each of these 2×2 of the level below, and so on; each time one of `synonyms`
/// productions is taken with equal chance. No two parents of a level share a production, so the
/// class is a function of the string.
///
/// The productions of a parent differ in every place. The more synonyms, the less a single symbol
/// tells: with synonyms = symbols each symbol stands in each place with equal chance whatever the
/// class, and only composition tells anything.
class HierarchicalGrammar {
 public:
  using Production = std::array<std::uint8_t, 4>;  ///< upper left, upper right, lower left, right

  HierarchicalGrammar(const GrammarShape& shape, std::uint64_t seed);

  const GrammarShape& shape() const { return shape_; }
  int side() const { return 1 << shape_.levels; }
  /// Level 0 holds the productions of classes, the others those of symbols.
  const Production& production(int level, int parent, int synonym) const;
  /// Draws a string of the class: side² symbols, row by row.
  void expand(int label, RandomStream& random, std::span<std::uint8_t> symbols) const;

 private:
  struct Place {
    int level, row, column;
  };
  void expand(Place place, int parent, RandomStream& random, std::span<std::uint8_t> out) const;

  GrammarShape shape_;
  std::vector<std::vector<Production>> productions_;  ///< [level][parent · synonyms + synonym]
};

}  // namespace heteroperf
