#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metrics/base/random.hpp"
#include "workloads/data_source.hpp"

namespace heteroperf {

/// Draws a square of symbols as an image. Each symbol is a small windowed grating with its own
/// orientation and frequency; phase, strength, colour and place are random per patch, and
/// overlapping rectangles of random colours lie behind, so that a pixel's mean tells nothing about
/// the symbol.
///
/// All arithmetic is on integers, scaled by a power of two at the end: bits are equal everywhere.
class PatchRenderer {
 public:
  /// Spatial frequency in 1/65536 of a turn per pixel.
  struct Wave {
    std::int32_t per_column = 0, per_row = 0;
  };
  struct Cell {
    int row = 0, column = 0, height = 0, width = 0;
  };

  /// `side`² cells of at least 4×4 pixels; `symbols` at most 32. The seed decides which wave stands
  /// for which symbol.
  PatchRenderer(const SampleSpec& spec, int side, int symbols, std::uint64_t seed);

  /// `pixels`: channels · height · width, about zero mean and unit size.
  void render(std::span<const std::uint8_t> symbols, RandomStream& random,
              std::span<float> pixels) const;

  Cell cell(int row, int column) const;
  const Wave& wave(int symbol) const;

 private:
  void draw_background(RandomStream& random, std::span<float> pixels) const;
  void draw_patch(int symbol, const Cell& cell, RandomStream& random,
                  std::span<float> pixels) const;
  void add_row(const Cell& cell, int y, std::span<const std::int32_t> values,
               std::span<const std::int32_t> gains, std::span<float> pixels) const;

  int channels_, height_, width_, side_;
  std::vector<Wave> waves_;
};

}  // namespace heteroperf
