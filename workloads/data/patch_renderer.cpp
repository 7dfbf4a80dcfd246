#include "workloads/data/patch_renderer.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr int unit_amplitude = 1 << 14;  // amplitude 1
constexpr float to_float = 0x1.0p-13f;
constexpr int quarter_turn = 1 << 14;
constexpr int rectangles = 6;
constexpr int most_channels = 64;

/// unit_amplitude · sin, by a parabola per half turn; phase in 1/65536 of a turn.
constexpr std::int32_t wave_value(std::uint32_t phase) {
  const std::int32_t x = static_cast<std::int16_t>(phase);
  return (x * (32768 - (x < 0 ? -x : x))) >> 14;
}

/// Cycles per cell in 1/16 and the number of orientations on each ring of the frequency plane; the
/// spacing of neighbours is about one cycle per cell, what a window of that size can resolve.
struct Ring {
  int cycles_16, orientations;
};
constexpr std::array<Ring, 2> rings_for_8{{{20, 4}, {40, 4}}};
constexpr std::array<Ring, 3> rings_for_16{{{20, 4}, {35, 5}, {50, 7}}};
constexpr std::array<Ring, 3> rings_for_32{{{20, 6}, {35, 11}, {50, 15}}};

std::span<const Ring> rings_for(int symbols) {
  if (symbols <= 8) return rings_for_8;
  if (symbols <= 16) return rings_for_16;
  return rings_for_32;
}

int turn_per_pixel(int cycles_16, std::int32_t direction, int cell_pixels) {
  return cycles_16 * 4096 / cell_pixels * direction / unit_amplitude;
}

std::vector<PatchRenderer::Wave> all_waves(std::span<const Ring> rings, int cell_width,
                                           int cell_height) {
  std::vector<PatchRenderer::Wave> waves;
  for (const Ring& ring : rings) {
    for (int i = 0; i < ring.orientations; ++i) {
      const auto angle = static_cast<std::uint32_t>(32768 * i / ring.orientations);
      waves.push_back({turn_per_pixel(ring.cycles_16, wave_value(angle + quarter_turn), cell_width),
                       turn_per_pixel(ring.cycles_16, wave_value(angle), cell_height)});
    }
  }
  return waves;
}

/// unit_amplitude at the centre, 0 from 0.65 cells on: 1 − (distance / radius)².
void fill_envelope(int pixels, int shift, std::span<std::int32_t> envelope) {
  const int radius_20 = 13 * pixels;
  for (int i = 0; i < pixels; ++i) {
    const std::int64_t distance_20 = 20 * (i - shift) - 10 * (pixels - 1);
    const std::int64_t square =
        distance_20 * distance_20 * unit_amplitude / (radius_20 * radius_20);
    envelope[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(std::max<std::int64_t>(0, unit_amplitude - square));
  }
}

int between(int low, int high, RandomStream& random) {
  return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1)));
}

}  // namespace

PatchRenderer::PatchRenderer(const SampleSpec& spec, int side, int symbols, std::uint64_t seed)
    : channels_(static_cast<int>(spec.channels)),
      height_(static_cast<int>(spec.height)),
      width_(static_cast<int>(spec.width)),
      side_(side),
      waves_(all_waves(rings_for(symbols), width_ / side, height_ / side)) {
  HETEROPERF_EXPECT(symbols <= static_cast<int>(waves_.size()));
  HETEROPERF_EXPECT(height_ >= 4 * side && width_ >= 4 * side && channels_ <= most_channels);
  RandomStream random(seed);
  for (std::size_t i = waves_.size(); i > 1; --i) std::swap(waves_[i - 1], waves_[random.below(i)]);
}

PatchRenderer::Cell PatchRenderer::cell(int row, int column) const {
  const int top = height_ * row / side_, left = width_ * column / side_;
  return {top, left, height_ * (row + 1) / side_ - top, width_ * (column + 1) / side_ - left};
}

const PatchRenderer::Wave& PatchRenderer::wave(int symbol) const {
  return waves_[static_cast<std::size_t>(symbol)];
}

void PatchRenderer::render(std::span<const std::uint8_t> symbols, RandomStream& random,
                           std::span<float> pixels) const {
  HETEROPERF_EXPECT(symbols.size() == static_cast<std::size_t>(side_ * side_));
  draw_background(random, pixels);
  for (int i = 0; i < side_ * side_; ++i) {
    draw_patch(symbols[static_cast<std::size_t>(i)], cell(i / side_, i % side_), random, pixels);
  }
}

void PatchRenderer::draw_background(RandomStream& random, std::span<float> pixels) const {
  const auto plane = static_cast<std::size_t>(height_ * width_);
  for (int c = 0; c < channels_; ++c) {
    std::fill_n(
        pixels.begin() + static_cast<std::ptrdiff_t>(plane) * c, plane,
        static_cast<float>(between(-unit_amplitude / 4, unit_amplitude / 4, random)) * to_float);
  }
  for (int i = 0; i < rectangles; ++i) {
    const int top = between(0, height_ - 1, random), left = between(0, width_ - 1, random);
    const int bottom = std::min(height_, top + between(2, height_ / 2, random));
    const int right = std::min(width_, left + between(2, width_ / 2, random));
    for (int c = 0; c < channels_; ++c) {
      const float colour =
          static_cast<float>(between(-unit_amplitude / 4, unit_amplitude / 4, random)) * to_float;
      for (int y = top; y < bottom; ++y) {
        float* row = pixels.data() + (c * height_ + y) * static_cast<std::ptrdiff_t>(width_);
        std::fill(row + left, row + right, colour);
      }
    }
  }
}

void PatchRenderer::draw_patch(int symbol, const Cell& cell, RandomStream& random,
                               std::span<float> pixels) const {
  const Wave& wave = waves_[static_cast<std::size_t>(symbol)];
  const int strength = between(unit_amplitude * 5 / 8, unit_amplitude, random);
  std::array<std::int32_t, most_channels> gains{};
  for (int c = 0; c < channels_; ++c) {
    gains[static_cast<std::size_t>(c)] = strength * between(64, 128, random) / 128;
  }
  const auto height = static_cast<std::size_t>(cell.height);
  const auto width = static_cast<std::size_t>(cell.width);
  std::vector<std::int32_t> scratch(height + 2 * width);
  const auto down = std::span(scratch).first(height);
  const auto across = std::span(scratch).subspan(height, width);
  const auto values = std::span(scratch).last(width);
  const int sway_y = cell.height / 8, sway_x = cell.width / 8;
  fill_envelope(cell.height, between(-sway_y, sway_y, random), down);
  fill_envelope(cell.width, between(-sway_x, sway_x, random), across);

  auto phase = static_cast<std::uint32_t>(random.bits());
  for (std::size_t y = 0; y < height; ++y, phase += static_cast<std::uint32_t>(wave.per_row)) {
    for (std::size_t x = 0; x < width; ++x) {
      const auto turn = static_cast<std::uint32_t>(static_cast<int>(x) * wave.per_column);
      const std::int32_t window = (across[x] * (down[y] >> 3)) >> 11;
      values[x] = (wave_value(phase + turn) * (window >> 2)) >> 12;
    }
    add_row(cell, static_cast<int>(y), values, gains, pixels);
  }
}

void PatchRenderer::add_row(const Cell& cell, int y, std::span<const std::int32_t> values,
                            std::span<const std::int32_t> gains, std::span<float> pixels) const {
  for (int c = 0; c < channels_; ++c) {
    const std::ptrdiff_t row = c * height_ + cell.row + y;
    float* out = pixels.data() + row * width_ + cell.column;
    const std::int32_t gain = gains[static_cast<std::size_t>(c)] >> 3;
    for (std::size_t x = 0; x < values.size(); ++x) {
      // Both terms are whole multiples of to_float, below 2^24 of them: the sum is exact.
      out[x] += static_cast<float>((values[x] * gain) >> 11) * to_float;
    }
  }
}

}  // namespace heteroperf
