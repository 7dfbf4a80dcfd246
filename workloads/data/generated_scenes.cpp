#include "workloads/data/generated_scenes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"
#include "metrics/statistics.hpp"

// One stream of a sample gives the scene and its caption, another one what is random in the
// picture. The law of scenes and captions is small enough to be computed, which gives the floors.

namespace heteroperf {
namespace {

using Objects = std::span<const SceneObject>;

constexpr int fewest_objects = 2, most_objects = 5, most_phrases = 3;
constexpr int cell_count = 9, shape_count = 8, colour_count = 8, size_count = 3;
constexpr int told_quarters = 3;  ///< the chance that a phrase tells a fact, in quarters
constexpr std::uint64_t scene_key = 0x7363656e65, picture_key = 0x7069637475, law_key = 0x6c6177,
                        label_key = 0x6c6162656c, images_key = 0x696d61676573;

int draw_below(int bound, RandomStream& random) {
  return static_cast<int>(random.below(static_cast<std::uint64_t>(bound)));
}

/// Draws which `taken` of `all` things are taken, any choice as likely: a bit for each.
unsigned draw_subset(int taken, int all, RandomStream& random) {
  unsigned subset = 0;
  for (int i = 0; i < all; ++i) {
    if (draw_below(all - i, random) >= taken) continue;
    subset |= 1u << i;
    --taken;
  }
  return subset;
}

GeneratedScenes::Scene draw_scene(RandomStream& random) {
  const auto draw = [&random](int bound) {
    return static_cast<std::int8_t>(draw_below(bound, random));
  };
  GeneratedScenes::Scene scene;
  const int objects = fewest_objects + draw(most_objects - fewest_objects + 1);
  const unsigned occupied = draw_subset(objects, cell_count, random);
  for (std::int8_t cell = 0; cell < cell_count; ++cell) {
    if ((occupied >> cell & 1) == 0) continue;
    scene.objects.push_back({cell, draw(shape_count), draw(colour_count), draw(size_count)});
  }
  const int phrases = 1 + draw(std::min(objects, most_phrases));
  const unsigned told = draw_subset(phrases, objects, random);
  for (int i = 0; i < objects; ++i) {
    if ((told >> i & 1) == 0) continue;
    SceneObject& phrase = scene.caption.emplace_back(scene.objects[i]);
    for (std::int8_t* fact : {&phrase.colour, &phrase.size, &phrase.cell}) {
      if (draw(4) >= told_quarters) *fact = -1;
    }
  }
  return scene;
}

/// Tells whether the object has every fact that the phrase tells. A fact is one byte of four, which
/// are compared at once; the highest bit of a byte says that the fact was left out.
bool fits(const SceneObject& phrase, const SceneObject& object) {
  const auto facts = std::bit_cast<std::uint32_t>(phrase);
  const std::uint32_t left_out = (facts >> 7 & 0x01010101) * 0xff;
  return ((facts ^ std::bit_cast<std::uint32_t>(object)) & ~left_out) == 0;
}

/// Counts the choices of objects, in their order, that the phrases fit one by one.
int matches(Objects caption, Objects objects) {
  std::array<int, most_phrases + 1> ways{1};  // by the number of phrases that found an object
  for (const SceneObject& object : objects) {
    for (std::size_t p = caption.size(); p > 0; --p) {
      if (fits(caption[p - 1], object)) ways[p] += ways[p - 1];
    }
  }
  return ways[caption.size()];
}

/// Returns P(caption | scene) / keep.
double kept_chance(Objects caption, Objects objects) {
  // By k − 2 and n: 1 / (min(k, 3) · C(k, n)), the chance of n phrases and of a choice of objects.
  constexpr double choice[][most_phrases + 1] = {{0, 1 / 4., 1 / 2., 0},
                                                 {0, 1 / 9., 1 / 9., 1 / 3.},
                                                 {0, 1 / 12., 1 / 18., 1 / 12.},
                                                 {0, 1 / 15., 1 / 30., 1 / 30.}};
  return choice[objects.size() - fewest_objects][caption.size()] * matches(caption, objects);
}

/// Returns P(caption) / keep: the chance of so many phrases, that they are about cells which agree
/// with the told ones (any n of the nine are as likely), and that these hold what is told.
double kept_chance(Objects caption) {
  constexpr std::array<double, most_phrases + 1> choice{0, 3 / 8.0 / 9, 3 / 8.0 / 36, 1 / 4.0 / 84};
  std::array<SceneObject, cell_count> all_cells;
  for (std::int8_t i = 0; i < cell_count; ++i) all_cells[i].cell = i;
  std::array<SceneObject, most_phrases> told_cells;
  double facts = 1;
  for (std::size_t p = 0; p < caption.size(); ++p) {
    told_cells[p].cell = caption[p].cell;
    facts /= shape_count;
    if (caption[p].colour >= 0) facts /= colour_count;
    if (caption[p].size >= 0) facts /= size_count;
  }
  const Objects told = Objects(told_cells).first(caption.size());
  return choice[caption.size()] * matches(told, all_cells) * facts;
}

/// Returns the chance that just those facts are told that the caption tells.
double keep(Objects caption) {
  HETEROPERF_EXPECT(!caption.empty() && caption.size() <= most_phrases);
  double chance = 1;
  for (const SceneObject& phrase : caption) {
    for (std::int8_t fact : {phrase.colour, phrase.size, phrase.cell}) {
      chance *= (fact < 0 ? 4 - told_quarters : told_quarters) / 4.0;
    }
  }
  return chance;
}

/// Averages over 2^16 pairs, the same ones each time.
template <class Function>
double mean_over_scenes(const Function& function) {
  constexpr int pairs = 1 << 16;
  RandomStream random(random_bits(law_key, 0));
  double sum = 0;
  for (int i = 0; i < pairs; ++i) sum += function(draw_scene(random));
  return sum / pairs;
}

}  // namespace

double GeneratedScenes::chance(Objects caption) {
  const double told = keep(caption);
  return told * kept_chance(caption);
}

double GeneratedScenes::chance(Objects caption, Objects objects) {
  HETEROPERF_EXPECT(objects.size() >= fewest_objects && objects.size() <= most_objects);
  const double told = keep(caption);
  return told * kept_chance(caption, objects);
}

double GeneratedScenes::caption_entropy_given_scene() {
  return mean_over_scenes(
      [](const Scene& scene) { return -natural_log(chance(scene.caption, scene.objects)); });
}

double GeneratedScenes::caption_entropy() {
  return mean_over_scenes([](const Scene& scene) { return -natural_log(chance(scene.caption)); });
}

// The mean of ln (1 + r) over captions of other scenes is that of ln (1 + r) / r over captions of
// the scene itself, since r is the ratio of their chances; it varies far less.
double GeneratedScenes::match_entropy() {
  return mean_over_scenes([](const Scene& scene) {
    const double ratio = kept_chance(scene.caption, scene.objects) / kept_chance(scene.caption);
    return (natural_log(1 + 1 / ratio) + natural_log(1 + ratio) / ratio) / 2;
  });
}

// The mean of r over other captions, or over other scenes, is 1, so a loss is about ln (1 + (B − 1)
// / r(i, i)). Its mean over many pairs is cheap and has most of the variance; the rest is the mean
// difference of losses in whole batches to it.
double GeneratedScenes::contrastive_floor(std::uint64_t contrasted) {
  HETEROPERF_EXPECT(contrasted >= 1);
  const auto others = static_cast<double>(contrasted - 1);
  const double approximate = mean_over_scenes([others](const Scene& scene) {
    const double own = kept_chance(scene.caption, scene.objects) / kept_chance(scene.caption);
    return natural_log(1 + others / own);
  });

  const std::uint64_t anchors = std::min<std::uint64_t>(contrasted, 64);  // of each batch
  const std::uint64_t batches =
      std::clamp<std::uint64_t>((1 << 21) / contrasted, 128, 1 << 14) / anchors;
  RandomStream random(random_bits(law_key, 1));
  std::vector<Scene> batch(contrasted);
  std::vector<double> chances(contrasted);
  double difference = 0;
  for (std::uint64_t i = 0; i < batches * anchors; ++i) {
    for (std::uint64_t j = 0; i % anchors == 0 && j < contrasted; ++j) {
      batch[j] = draw_scene(random);
      chances[j] = kept_chance(batch[j].caption);
    }
    const auto& [objects, caption] = batch[i % anchors];
    const double own_chance = chances[i % anchors];
    double row = 0, column = 0;
    for (std::uint64_t j = 0; j < contrasted; ++j) {
      row += kept_chance(batch[j].caption, objects) / chances[j];
      column += kept_chance(caption, batch[j].objects) / own_chance;
    }
    const double expected = kept_chance(caption, objects) / own_chance + others;
    difference += natural_log(row / expected * (column / expected)) / 2;
  }
  return approximate + difference / static_cast<double>(batches * anchors);
}

namespace {

constexpr int start_token = 0, and_token = 29;
constexpr int first_shape = 1, first_colour = 9, first_size = 17, first_cell = 20;

/// Writes the caption and returns the number of its tokens.
std::size_t write_caption(Objects caption, std::span<std::int64_t> tokens) {
  std::size_t at = 0;
  const auto tell = [&](int first, std::int8_t fact) {
    if (fact >= 0) tokens[at++] = first + fact;
  };
  tell(start_token, 0);
  for (const SceneObject& phrase : caption) {
    if (at > 1) tell(and_token, 0);
    tell(first_size, phrase.size);
    tell(first_colour, phrase.colour);
    tell(first_shape, phrase.shape);
    tell(first_cell, phrase.cell);
  }
  return at;
}

// Values of pixels are whole multiples of `pixel_step`, so that sums are exact. An object differs
// from what lies behind it by 1.25 at least in every channel; noise is up to 0.25. With more of
// both, small models spend most of a training on finding objects, not on what texts say of them.
constexpr float pixel_step = 0x1.0p-13f;
constexpr int behind_most = 1 << 11, object_least = 3 << 12, object_range = 2 << 12, noise_unit = 8;
constexpr int rectangles_behind = 4;
constexpr std::array<int, size_count> size_percent{50, 72, 95};

struct Canvas {
  int height, width;
  std::span<float> pixels;
};
struct Box {
  int top, left, height, width;
};
using Colour = std::array<int, 3>;

/// Gives the pixels of the box that `covers` accepts the colour.
template <class Covers>
void paint(const Canvas& canvas, const Box& box, const Colour& colour, const Covers& covers) {
  for (std::size_t c = 0; c < colour.size(); ++c) {
    const float value = static_cast<float>(colour[c]) * pixel_step;
    for (int y = 0; y < box.height; ++y) {
      const std::ptrdiff_t row = static_cast<int>(c) * canvas.height + box.top + y;
      float* out = canvas.pixels.data() + row * canvas.width + box.left;
      for (int x = 0; x < box.width; ++x) {
        if (covers(y, x)) out[x] = value;
      }
    }
  }
}

/// Tells whether a shape has the pixel at `u` to the right of its centre and `v` below it, both
/// counted in half pixels. The shape is `side` pixels high and wide.
bool shape_covers(int shape, int side, int u, int v) {
  const int across = std::abs(u), down = std::abs(v);
  const std::array<bool, shape_count> covers{true,                                 // square
                                             2 * std::max(across, down) >= side,   // frame
                                             3 * std::min(across, down) <= side,   // plus
                                             3 * std::abs(across - down) <= side,  // saltire
                                             2 * across <= side + 1 + v,           // triangle, up
                                             2 * across <= side + 1 - v,           // triangle, down
                                             2 * down <= side,                     // flat bar
                                             2 * across <= side};                  // upright bar
  return covers[shape];
}

void paint_background(const Canvas& canvas, RandomStream& random) {
  Box box{0, 0, canvas.height, canvas.width};
  for (int i = 0; i <= rectangles_behind; ++i) {
    Colour colour{};
    for (int& value : colour) value = draw_below(2 * behind_most + 1, random) - behind_most;
    paint(canvas, box, colour, [](int, int) { return true; });
    box.top = draw_below(canvas.height, random);
    box.left = draw_below(canvas.width, random);
    box.height = std::min(canvas.height - box.top, 2 + draw_below(canvas.height / 2, random));
    box.width = std::min(canvas.width - box.left, 2 + draw_below(canvas.width / 2, random));
  }
}

/// Paints the object near the middle of its cell, which is at half of (`twice_y`, `twice_x`).
void paint_object(const Canvas& canvas, const SceneObject& object, RandomStream& random) {
  const int room = std::min(canvas.height, canvas.width) / 3;
  const int side = room * size_percent[object.size] / 100;
  const int sway = std::min(room / 8, (room - side) / 2);
  const int twice_y = canvas.height * (2 * (object.cell / 3) + 1) / 3;
  const int twice_x = canvas.width * (2 * (object.cell % 3) + 1) / 3;
  const Box box{(twice_y - side) / 2 + draw_below(2 * sway + 1, random) - sway,
                (twice_x - side) / 2 + draw_below(2 * sway + 1, random) - sway, side, side};
  Colour colour{};
  for (std::size_t c = 0; c < colour.size(); ++c) {
    const int strength = object_least + draw_below(object_range, random);
    colour[c] = (object.colour >> c & 1) != 0 ? strength : -strength;
  }
  paint(canvas, box, colour, [&](int y, int x) {
    return shape_covers(object.shape, side, 2 * x + 1 - side, 2 * y + 1 - side);
  });
}

/// Adds noise to each pixel, one byte of the stream.
void add_noise(std::span<float> pixels, RandomStream& random) {
  for (std::size_t start = 0; start < pixels.size(); start += 8) {
    const std::uint64_t bits = random.bits();
    const std::size_t count = std::min<std::size_t>(8, pixels.size() - start);
    for (std::size_t i = 0; i < count; ++i) {
      const int noise = 2 * static_cast<int>(bits >> (8 * i) & 0xff) - 255;
      pixels[start + i] += static_cast<float>(noise_unit * noise) * pixel_step;
    }
  }
}

/// A number of the spec with its default and the values that are possible.
struct SceneExtent {
  const char* name;
  std::int64_t SampleSpec::*member;
  std::int64_t preset, low, high;
};
constexpr SceneExtent scene_extents[] = {
    {"channels", &SampleSpec::channels, 3, 3, 3},
    {"rows of pixels", &SampleSpec::height, 32, 24, 4096},
    {"columns of pixels", &SampleSpec::width, 32, 24, 4096},
    {"tokens in a text", &SampleSpec::length, 16, GeneratedScenes::longest_caption, 1 << 20},
    {"tokens to choose from", &SampleSpec::classes, 32, GeneratedScenes::fewest_tokens, 1 << 20}};

/// Fills in the defaults and checks all values.
SampleSpec complete_scenes(const SampleSpec& asked) {
  const bool captions = asked.kind == SampleKind::captions;
  const bool matches = asked.kind == SampleKind::matches;
  SampleSpec spec{.kind = captions || matches ? asked.kind : SampleKind::pairs,
                  .image_places = captions ? asked.image_places : 0,
                  .images = captions ? asked.images : 0,
                  .fewest_images = captions ? asked.fewest_images : 0};
  ProblemList problems;
  const std::int64_t captions_most = std::max<std::int64_t>(1, spec.images);
  for (const auto& [name, member, preset, low, high] : scene_extents) {
    const bool is_text = member == &SampleSpec::length;
    const std::int64_t places = is_text ? spec.image_places : 0,
                       times = is_text ? captions_most : 1;
    const std::int64_t least = times * (low + places);
    spec.*member = asked.*member == 0 ? times * (preset + places) : asked.*member;
    if (spec.*member >= least && spec.*member <= high) continue;
    problems.add(fmt::format("generated scenes cannot have {} {}", spec.*member, name),
                 least == high ? fmt::format("they have {}", least)
                               : fmt::format("from {} to {} are possible", least, high));
  }
  problems.throw_if_any();
  return spec;
}

}  // namespace

GeneratedScenes::GeneratedScenes(const SampleSpec& spec, std::uint64_t seed)
    : spec_(complete_scenes(spec)), seed_(seed) {}

std::uint64_t GeneratedScenes::size(Split) const { return std::uint64_t{1} << 40; }

std::uint64_t GeneratedScenes::drawn(std::uint64_t key, Split split, std::uint64_t index,
                                     std::int64_t image) const {
  HETEROPERF_EXPECT(index < size(split));
  if (image == 0) return random_bits(seed_, key, split, index);
  return random_bits(seed_, key, split, index, image);
}

std::int64_t GeneratedScenes::images(Split split, std::uint64_t index) const {
  if (spec_.images == 0) return 1;
  RandomStream random(drawn(images_key, split, index, 0));
  return spec_.fewest_images +
         draw_below(static_cast<int>(spec_.images - spec_.fewest_images) + 1, random);
}

double GeneratedScenes::caption_floor() const {
  const double alone = caption_entropy(), given = caption_entropy_given_scene();
  if (spec_.images == 0) return given / mean_caption_tokens();
  const auto fewest = static_cast<double>(spec_.fewest_images);
  const auto most = static_cast<double>(spec_.images);
  const double without = fewest > 0 ? 0 : 1 / (most + 1), with = (fewest + most) / 2;
  return (without * alone + with * given) / ((without + with) * mean_caption_tokens());
}

GeneratedScenes::Scene GeneratedScenes::scene(Split split, std::uint64_t index,
                                              std::int64_t image) const {
  RandomStream random(drawn(scene_key, split, index, image));
  Scene scene = draw_scene(random);
  // The same stream goes on with another scene.
  if (!has_own_caption(split, index)) scene.caption = draw_scene(random).caption;
  return scene;
}

bool GeneratedScenes::has_own_caption(Split split, std::uint64_t index) const {
  return spec_.kind != SampleKind::matches ||
         (random_bits(seed_, label_key, split, index) & 1) == 1;
}

void GeneratedScenes::read(Split split, std::uint64_t index, SampleView out) const {
  const std::int64_t number = images(split, index);
  HETEROPERF_EXPECT(std::ssize(out.pixels) == number * spec_.pixels());
  HETEROPERF_EXPECT(std::ssize(out.tokens) == spec_.length);
  HETEROPERF_EXPECT(std::ssize(out.targets) == spec_.targets());
  std::ranges::fill(out.tokens, spec_.classes - 1);
  std::size_t at = 0;
  for (std::int64_t image = 0; image < std::max<std::int64_t>(1, number); ++image) {
    const auto [objects, caption] = scene(split, index, image);
    if (image < number) {
      const std::size_t pixels = spec_.pixels(), places = spec_.image_places;
      RandomStream random(drawn(picture_key, split, index, image));
      const Canvas canvas{static_cast<int>(spec_.height), static_cast<int>(spec_.width),
                          out.pixels.subspan(image * pixels, pixels)};
      paint_background(canvas, random);
      for (const SceneObject& object : objects) paint_object(canvas, object, random);
      add_noise(canvas.pixels, random);
      std::ranges::fill(out.tokens.subspan(at, places), spec_.classes - 2);
      at += places;
    }
    // A last token stands behind each caption.
    at += write_caption(caption, out.tokens.subspan(at)) + 1;
  }
  if (spec_.kind == SampleKind::captions) write_caption_targets(spec_, out.tokens, out.targets);
  if (spec_.kind == SampleKind::matches) out.targets[0] = has_own_caption(split, index) ? 1 : 0;
}

std::string GeneratedScenes::description() const {
  std::string behind;
  if (spec_.images > 0) {
    behind = fmt::format(" with {} places for each of {} to {} images", spec_.image_places,
                         spec_.fewest_images, spec_.images);
  } else if (spec_.image_places > 0) {
    behind = fmt::format(" behind {} places", spec_.image_places);
  }
  const std::int64_t of_image = spec_.images > 0 ? 0 : spec_.image_places;
  return fmt::format(
      "generated scenes: {} to {} objects of {} shapes, {} colours and {} sizes on {} cells, "
      "{}×{}×{}, captions of up to {} phrases in {} tokens{}{}, vocabulary {}, seed {}",
      fewest_objects, most_objects, shape_count, colour_count, size_count, cell_count,
      spec_.channels, spec_.height, spec_.width, most_phrases, spec_.length - of_image, behind,
      spec_.kind == SampleKind::matches ? ", half of them of another scene" : "", spec_.classes,
      seed_);
}

std::string GeneratedScenes::fingerprint() const {
  const bool captions = spec_.kind == SampleKind::captions;
  const bool matches = spec_.kind == SampleKind::matches;
  const char* what = captions ? "captions" : matches ? "matches" : "scenes";
  Hash128 hash(fmt::format("generated {} 2", what));
  hash.update(seed_).update(spec_.channels).update(spec_.height).update(spec_.width);
  hash.update(spec_.length).update(spec_.classes);
  if (captions) hash.update(spec_.image_places);
  if (spec_.images > 0) hash.update(spec_.images).update(spec_.fewest_images);
  return hash.hex();
}

}  // namespace heteroperf
