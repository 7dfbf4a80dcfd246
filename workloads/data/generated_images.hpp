#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "metrics/base/random.hpp"
#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// The size of a HierarchicalGrammar.
struct GrammarShape {
  int classes = 10;
  int symbols = 8;   ///< symbols per level, at most 32
  int synonyms = 2;  ///< productions of each class and symbol, at most `symbols`
  int levels = 2;    ///< the string is a square of 2^levels × 2^levels symbols
  friend bool operator==(const GrammarShape&, const GrammarShape&) = default;
};

/// A random hierarchy (Cagnetta et al., arXiv 2307.02129) over squares. A class becomes 2×2
/// symbols, each of these 2×2 symbols of the level below, and so on; each time one of `synonyms`
/// productions is taken with equal chance. No two parents of a level share a production, so the
/// class is a function of the string.
///
/// The productions of a parent differ in every place. The more synonyms, the less a single symbol
/// tells: with synonyms = symbols each symbol stands in each place with equal chance whatever the
/// class, and only composition tells anything.
class HierarchicalGrammar {
 public:
  using Production =
      std::array<std::uint8_t, 4>;  ///< upper left, upper right, lower left, lower right

  HierarchicalGrammar(const GrammarShape& shape, std::uint64_t seed);

  const GrammarShape& shape() const { return shape_; }
  /// Returns the number of symbols along one side of the square.
  int side() const { return 1 << shape_.levels; }
  /// Returns a production; level 0 holds those of classes, the other levels those of symbols.
  const Production& production(int level, int parent, int synonym) const;
  /// Draws a string of the class: side² symbols, row by row.
  void expand(int label, RandomStream& random, std::span<std::uint8_t> symbols) const;

 private:
  struct Place {
    int level, row, column;
  };
  void expand(Place place, int parent, RandomStream& random, std::span<std::uint8_t> out) const;

  GrammarShape shape_;
  /// Indexed by [level][parent · synonyms + synonym].
  std::vector<std::vector<Production>> productions_;
};

/// Draws a square of symbols as an image. Each symbol is a small windowed grating with its own
/// orientation and frequency. Phase, strength, colour and place are random per patch, and
/// overlapping rectangles of random colours lie behind, so that a pixel's mean tells nothing about
/// the symbol.
///
/// All arithmetic is on integers, scaled by a power of two at the end: bits are equal everywhere.
class PatchRenderer {
 public:
  /// A spatial frequency, in 1/65536 of a turn per pixel.
  struct Wave {
    std::int32_t per_column = 0, per_row = 0;
  };
  struct Cell {
    int row = 0, column = 0, height = 0, width = 0;
  };

  /// There are `side`² cells of at least 4×4 pixels, and at most 32 symbols. The seed decides which
  /// wave stands for which symbol.
  PatchRenderer(const SampleSpec& spec, int side, int symbols, std::uint64_t seed);

  /// Writes channels · height · width pixels of about zero mean and unit size.
  void render(std::span<const std::uint8_t> symbols, RandomStream& random,
              std::span<float> pixels) const;

  /// Returns the pixels that belong to the symbol at a place.
  Cell cell(int row, int column) const;
  /// Returns the wave that stands for a symbol.
  const Wave& wave(int symbol) const;

 private:
  /// Fills all pixels with colours and overlapping rectangles.
  void draw_background(RandomStream& random, std::span<float> pixels) const;
  /// Adds one grating, windowed to its cell, with random phase, strength, colour and place.
  void draw_patch(int symbol, const Cell& cell, RandomStream& random,
                  std::span<float> pixels) const;

  int channels_, height_, width_, side_;
  std::vector<Wave> waves_;
};

/// Labelled images with a known Bayes error ("RHM texture"). A class grows into a square of symbols
/// (HierarchicalGrammar), each drawn as a noisy patch (PatchRenderer). With chance e the label is
/// replaced by one drawn from all classes, so no classifier errs less than e · (1 − 1 / classes),
/// and one that reads the patches and knows the grammar reaches that. The splits differ in
/// the key of their samples; the structure comes from the seed.
class GeneratedImages : public DataSource {
 public:
  static constexpr int label_noise_percent = 5;

  /// Zeros in `spec` stand for 3×32×32 and 10 classes. Throws UserError with all values out of
  /// range.
  GeneratedImages(const SampleSpec& spec, std::uint64_t seed);

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override;
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override;
  std::string fingerprint() const override;
  std::optional<double> error_floor() const override;

  /// The hidden cause of a sample, for oracles: its class before label noise and its symbols.
  struct Latent {
    int clean_label = 0, label = 0;
    std::vector<std::uint8_t> symbols;
  };
  Latent latent(Split split, std::uint64_t index) const;
  const HierarchicalGrammar& grammar() const { return grammar_; }
  const PatchRenderer& renderer() const { return renderer_; }

 private:
  Latent draw_latent(RandomStream& random) const;
  RandomStream stream(Split split, std::uint64_t index) const;

  SampleSpec spec_;
  std::uint64_t seed_;
  HierarchicalGrammar grammar_;
  PatchRenderer renderer_;
};

}  // namespace heteroperf
