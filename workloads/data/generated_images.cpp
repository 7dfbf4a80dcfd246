#include "workloads/data/generated_images.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"

// Two parts make a generated image. HierarchicalGrammar turns a class into a square of symbols;
// PatchRenderer draws every symbol as a small grating. Both draw their structure from the seed, and
// their variations from the stream of the sample, so any rank makes any sample in O(1).

namespace heteroperf {
namespace {

using Production = HierarchicalGrammar::Production;

/// Numbers a production: its four symbols are the digits.
std::size_t code_of(const Production& production, int symbols) {
  std::size_t code = 0;
  for (std::uint8_t symbol : production) code = code * static_cast<std::size_t>(symbols) + symbol;
  return code;
}

/// Returns the symbols in a random order (Fisher and Yates).
std::vector<std::uint8_t> shuffled_symbols(int symbols, RandomStream& random) {
  std::vector<std::uint8_t> order(symbols);
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

/// Draws the productions of one parent, which differ in every place: each place takes its symbols
/// from a shuffled order of its own.
std::vector<Production> draw_productions(const GrammarShape& shape, RandomStream& random) {
  std::vector<Production> productions(shape.synonyms);
  for (std::size_t place = 0; place < Production{}.size(); ++place) {
    const std::vector<std::uint8_t> order = shuffled_symbols(shape.symbols, random);
    for (std::size_t i = 0; i < productions.size(); ++i) productions[i][place] = order[i];
  }
  return productions;
}

/// Draws the productions of each of `parents`, no two alike. It draws again for a parent that meets
/// a production already taken.
std::vector<Production> draw_level(const GrammarShape& shape, int parents, RandomStream& random) {
  const std::size_t symbols = shape.symbols;
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
  // At most a quarter of all tuples is used, so that drawing without collision ends soon.
  const int tuples = shape.symbols * shape.symbols * shape.symbols * shape.symbols;
  HETEROPERF_EXPECT(std::max(shape.classes, shape.symbols) * shape.synonyms <= tuples / 4);
  RandomStream random(seed);
  for (int level = 0; level < shape.levels; ++level) {
    productions_.push_back(draw_level(shape, level == 0 ? shape.classes : shape.symbols, random));
  }
}

const HierarchicalGrammar::Production& HierarchicalGrammar::production(int level, int parent,
                                                                       int synonym) const {
  return productions_[level][parent * shape_.synonyms + synonym];
}

void HierarchicalGrammar::expand(int label, RandomStream& random,
                                 std::span<std::uint8_t> symbols) const {
  HETEROPERF_EXPECT(label >= 0 && label < shape_.classes);
  HETEROPERF_EXPECT(std::ssize(symbols) == side() * side());
  expand({0, 0, 0}, label, random, symbols);
}

void HierarchicalGrammar::expand(Place place, int parent, RandomStream& random,
                                 std::span<std::uint8_t> out) const {
  if (place.level == shape_.levels) {
    out[place.row * side() + place.column] = static_cast<std::uint8_t>(parent);
    return;
  }
  const auto synonym = static_cast<int>(random.below(static_cast<std::uint64_t>(shape_.synonyms)));
  const Production& children = production(place.level, parent, synonym);
  for (int i = 0; i < 4; ++i) {
    expand({place.level + 1, 2 * place.row + i / 2, 2 * place.column + i % 2}, children[i], random,
           out);
  }
}

namespace {

constexpr int unit_amplitude = 1 << 14;  ///< stands for the amplitude 1
constexpr float to_float = 0x1.0p-13f;
constexpr int quarter_turn = 1 << 14;
constexpr int rectangles = 6;
constexpr int most_channels = 64;

/// Returns unit_amplitude · sin, as a parabola per half turn; `phase` is in 1/65536 of a turn.
constexpr std::int32_t wave_value(std::uint32_t phase) {
  const std::int32_t x = static_cast<std::int16_t>(phase);
  return (x * (32768 - (x < 0 ? -x : x))) >> 14;
}

/// A ring of the frequency plane: cycles per cell in 1/16, and the number of orientations on it.
/// Neighbours are about one cycle per cell apart, which a window of that size can just resolve.
struct Ring {
  int cycles_16, orientations;
};
constexpr std::array<Ring, 2> rings_for_8{{{20, 4}, {40, 4}}};
constexpr std::array<Ring, 3> rings_for_16{{{20, 4}, {35, 5}, {50, 7}}};
constexpr std::array<Ring, 3> rings_for_32{{{20, 6}, {35, 11}, {50, 15}}};

/// Returns rings with at least as many waves as there are symbols.
std::span<const Ring> rings_for(int symbols) {
  if (symbols <= 8) return rings_for_8;
  if (symbols <= 16) return rings_for_16;
  return rings_for_32;
}

/// Turns cycles per cell along a direction into 1/65536 of a turn per pixel.
int turn_per_pixel(int cycles_16, std::int32_t direction, int cell_pixels) {
  return cycles_16 * 4096 / cell_pixels * direction / unit_amplitude;
}

/// Lists the waves of all orientations on all rings.
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

/// Fills 1 − (distance / radius)²: unit_amplitude at the centre, 0 from 0.65 cells on.
void fill_envelope(int pixels, int shift, std::span<std::int32_t> envelope) {
  const int radius_20 = 13 * pixels;
  for (int i = 0; i < pixels; ++i) {
    const std::int64_t distance_20 = 20 * (i - shift) - 10 * (pixels - 1);
    const std::int64_t square =
        distance_20 * distance_20 * unit_amplitude / (radius_20 * radius_20);
    envelope[i] = static_cast<std::int32_t>(std::max<std::int64_t>(0, unit_amplitude - square));
  }
}

/// Draws an integer from low to high, both included.
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

const PatchRenderer::Wave& PatchRenderer::wave(int symbol) const { return waves_[symbol]; }

void PatchRenderer::render(std::span<const std::uint8_t> symbols, RandomStream& random,
                           std::span<float> pixels) const {
  HETEROPERF_EXPECT(std::ssize(symbols) == side_ * side_);
  draw_background(random, pixels);
  for (int i = 0; i < side_ * side_; ++i) {
    draw_patch(symbols[i], cell(i / side_, i % side_), random, pixels);
  }
}

void PatchRenderer::draw_background(RandomStream& random, std::span<float> pixels) const {
  const auto fill = [&](int top, int left, int bottom, int right) {
    for (int c = 0; c < channels_; ++c) {
      const float colour =
          static_cast<float>(between(-unit_amplitude / 4, unit_amplitude / 4, random)) * to_float;
      for (int y = top; y < bottom; ++y) {
        float* row = pixels.data() + (c * height_ + y) * static_cast<std::ptrdiff_t>(width_);
        std::fill(row + left, row + right, colour);
      }
    }
  };
  fill(0, 0, height_, width_);
  for (int i = 0; i < rectangles; ++i) {
    const int top = between(0, height_ - 1, random), left = between(0, width_ - 1, random);
    const int bottom = std::min(height_, top + between(2, height_ / 2, random));
    fill(top, left, bottom, std::min(width_, left + between(2, width_ / 2, random)));
  }
}

void PatchRenderer::draw_patch(int symbol, const Cell& cell, RandomStream& random,
                               std::span<float> pixels) const {
  const Wave& wave = waves_[symbol];
  const int strength = between(unit_amplitude * 5 / 8, unit_amplitude, random);
  std::array<std::int32_t, most_channels> gains{};
  for (int c = 0; c < channels_; ++c) {
    gains[c] = strength * between(64, 128, random) / 128;
  }
  const std::size_t height = cell.height;
  const std::size_t width = cell.width;
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
    for (int c = 0; c < channels_; ++c) {
      const std::ptrdiff_t row = c * height_ + cell.row + static_cast<int>(y);
      float* out = pixels.data() + row * width_ + cell.column;
      const std::int32_t gain = gains[c] >> 3;
      for (std::size_t x = 0; x < width; ++x) {
        // Both terms are whole multiples of to_float, fewer than 2^24 of them, so the sum is exact.
        out[x] += static_cast<float>((values[x] * gain) >> 11) * to_float;
      }
    }
  }
}

namespace {

constexpr std::uint64_t grammar_key = 0x6772616d, wave_key = 0x77617665, image_key = 0x73616d70;

/// A number of the spec with its default and the values that are possible.
struct Extent {
  const char* name;
  std::int64_t SampleSpec::*member;
  std::int64_t preset, low, high;
};
constexpr Extent extents[] = {{"channels", &SampleSpec::channels, 3, 1, most_channels},
                              {"rows of pixels", &SampleSpec::height, 32, 8, 4096},
                              {"columns of pixels", &SampleSpec::width, 32, 8, 4096},
                              {"classes", &SampleSpec::classes, 10, 2, 4096}};

/// Fills in the defaults and checks all values.
SampleSpec complete(const SampleSpec& asked) {
  SampleSpec spec;
  ProblemList problems;
  for (const auto& [name, member, preset, low, high] : extents) {
    spec.*member = asked.*member == 0 ? preset : asked.*member;
    if (spec.*member >= low && spec.*member <= high) continue;
    problems.add(fmt::format("generated images cannot have {} {}", spec.*member, name),
                 fmt::format("from {} to {} are possible", low, high));
  }
  problems.throw_if_any();
  return spec;
}

/// Chooses a grammar that fills the image: two levels up to 63 pixels, three beyond, so that cells
/// have 4 pixels or more. The alphabet grows with the classes, so that productions stay rare among
/// all tuples, which makes a string decodable in spite of noise. More synonyms make learning harder
/// steeply: it takes about classes · synonyms^levels samples.
GrammarShape grammar_for(const SampleSpec& spec) {
  GrammarShape shape;
  const std::int64_t pixels = std::min(spec.height, spec.width);
  shape.classes = static_cast<int>(spec.classes);
  shape.levels = pixels < 16 ? 1 : pixels < 64 ? 2 : 3;
  shape.symbols = spec.classes <= 64 ? 8 : spec.classes <= 512 ? 16 : 32;
  shape.synonyms = shape.symbols / 4;
  return shape;
}

}  // namespace

GeneratedImages::GeneratedImages(const SampleSpec& spec, std::uint64_t seed)
    : spec_(complete(spec)),
      seed_(seed),
      grammar_(grammar_for(spec_), random_bits(seed, grammar_key)),
      renderer_(spec_, grammar_.side(), grammar_.shape().symbols, random_bits(seed, wave_key)) {}

std::uint64_t GeneratedImages::size(Split) const { return std::uint64_t{1} << 40; }

RandomStream GeneratedImages::stream(Split split, std::uint64_t index) const {
  HETEROPERF_EXPECT(index < size(split));
  return RandomStream(random_bits(seed_, image_key, split, index));
}

GeneratedImages::Latent GeneratedImages::draw_latent(RandomStream& random) const {
  const auto classes = static_cast<std::uint64_t>(spec_.classes);
  Latent latent;
  latent.clean_label = latent.label = static_cast<int>(random.below(classes));
  const auto noisy_label = static_cast<int>(random.below(classes));
  if (random.below(100) < label_noise_percent) latent.label = noisy_label;
  latent.symbols.resize(static_cast<std::size_t>(grammar_.side() * grammar_.side()));
  grammar_.expand(latent.clean_label, random, latent.symbols);
  return latent;
}

GeneratedImages::Latent GeneratedImages::latent(Split split, std::uint64_t index) const {
  RandomStream random = stream(split, index);
  return draw_latent(random);
}

void GeneratedImages::read(Split split, std::uint64_t index, SampleView out) const {
  const std::int64_t pixels = spec_.channels * spec_.height * spec_.width;
  HETEROPERF_EXPECT(std::ssize(out.pixels) == pixels);
  HETEROPERF_EXPECT(out.targets.size() == 1);
  RandomStream random = stream(split, index);
  const Latent latent = draw_latent(random);
  renderer_.render(latent.symbols, random, out.pixels);
  out.targets[0] = latent.label;
}

std::optional<double> GeneratedImages::error_floor() const {
  const auto classes = static_cast<double>(spec_.classes);
  return label_noise_percent * (classes - 1) / (100 * classes);
}

std::string GeneratedImages::description() const {
  const GrammarShape& shape = grammar_.shape();
  return fmt::format(
      "generated images: hierarchical grammar of {} levels, {} symbols, {} synonyms, "
      "{}×{}×{}, {} classes, seed {}, Bayes error {:.4f}",
      shape.levels, shape.symbols, shape.synonyms, spec_.channels, spec_.height, spec_.width,
      spec_.classes, seed_, *error_floor());
}

std::string GeneratedImages::fingerprint() const {
  Hash128 hash("generated images 1");
  hash.update(seed_).update(spec_.channels).update(spec_.height).update(spec_.width);
  hash.update(spec_.classes).update(label_noise_percent).update(grammar_.shape().levels);
  hash.update(grammar_.shape().symbols).update(grammar_.shape().synonyms);
  return hash.hex();
}

}  // namespace heteroperf
