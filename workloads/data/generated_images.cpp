#include "workloads/data/generated_images.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t grammar_key = 0x6772616d, wave_key = 0x77617665, image_key = 0x73616d70;
constexpr std::int64_t fewest_pixels = 8, most_pixels = 4096, most_image_channels = 64;
constexpr std::int64_t most_classes = 4096;

void check_range(ProblemList& problems, const char* what, std::int64_t value, std::int64_t low,
                 std::int64_t high) {
  if (value >= low && value <= high) return;
  problems.add(fmt::format("generated images cannot have {} {}", value, what),
               fmt::format("from {} to {} are possible", low, high));
}

SampleSpec complete(SampleSpec spec) {
  const auto or_default = [](std::int64_t value, std::int64_t preset) {
    return value == 0 ? preset : value;
  };
  spec = {.kind = InputKind::images,
          .channels = or_default(spec.channels, 3),
          .height = or_default(spec.height, 32),
          .width = or_default(spec.width, 32),
          .classes = or_default(spec.classes, 10)};
  ProblemList problems;
  check_range(problems, "channels", spec.channels, 1, most_image_channels);
  check_range(problems, "rows of pixels", spec.height, fewest_pixels, most_pixels);
  check_range(problems, "columns of pixels", spec.width, fewest_pixels, most_pixels);
  check_range(problems, "classes", spec.classes, 2, most_classes);
  problems.throw_if_any();
  return spec;
}

/// Two levels up to 63 pixels, three beyond: cells of 4 pixels and more. The alphabet grows with
/// the classes so that productions stay rare among all tuples, which makes a string decodable in
/// spite of noise. More synonyms make learning harder steeply: about classes · synonyms^levels
/// samples.
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
  const auto other = static_cast<int>(random.below(classes));
  if (random.below(100) < label_noise_percent) latent.label = other;
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
  HETEROPERF_EXPECT(out.pixels.size() == static_cast<std::size_t>(pixels));
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
