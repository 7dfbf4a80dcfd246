#include "workloads/data/generated_scenes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "metrics/base/error.hpp"
#include "tests/unit/workloads/data/sample_buffer.hpp"

namespace heteroperf {
namespace {

using Caption = std::vector<SceneObject>;

SampleSpec pair_spec(std::int64_t side, std::int64_t length = 16, std::int64_t classes = 32) {
  return {.kind = SampleKind::pairs,
          .channels = 3,
          .height = side,
          .width = side,
          .length = length,
          .classes = classes};
}

/// An order, so that captions can be counted.
std::vector<std::tuple<int, int, int, int>> sorting_key(const Caption& caption) {
  std::vector<std::tuple<int, int, int, int>> key;
  for (const SceneObject& p : caption) key.emplace_back(p.cell, p.shape, p.colour, p.size);
  return key;
}

/// Reads a text back. Ranges of tokens are those that the header documents.
Caption parse(const std::vector<std::int64_t>& tokens, std::int64_t end) {
  Caption caption(1);
  std::size_t at = 1;
  EXPECT_EQ(tokens[0], 0);
  for (; at < tokens.size() && tokens[at] != end; ++at) {
    const std::int64_t token = tokens[at];
    SceneObject& phrase = caption.back();
    if (token == 29) {
      caption.emplace_back();
    } else if (token >= 20) {
      phrase.cell = static_cast<std::int8_t>(token - 20);
    } else if (token >= 17) {
      phrase.size = static_cast<std::int8_t>(token - 17);
    } else if (token >= 9) {
      phrase.colour = static_cast<std::int8_t>(token - 9);
    } else {
      phrase.shape = static_cast<std::int8_t>(token - 1);
    }
  }
  EXPECT_LT(at, tokens.size());
  for (; at < tokens.size(); ++at) EXPECT_EQ(tokens[at], end);
  return caption;
}

bool tells_of(const SceneObject& phrase, const SceneObject& object) {
  return phrase.shape == object.shape && (phrase.colour < 0 || phrase.colour == object.colour) &&
         (phrase.size < 0 || phrase.size == object.size) &&
         (phrase.cell < 0 || phrase.cell == object.cell);
}

TEST(GeneratedScenes, TextsParseBackToCaptionsOfTheirScenes) {
  for (const SampleSpec& spec : {pair_spec(24), pair_spec(24, 77, 49408)}) {
    const GeneratedScenes source(spec, 3);
    SampleBuffer sample(source.spec());
    std::set<std::size_t> lengths;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const GeneratedScenes::Scene scene = source.scene(Split::train, i);
      ASSERT_EQ(parse(sample.read(source, Split::train, i).tokens, spec.classes - 1),
                scene.caption);
      ASSERT_TRUE(std::is_sorted(
          scene.objects.begin(), scene.objects.end(),
          [](const SceneObject& a, const SceneObject& b) { return a.cell < b.cell; }));
      auto object = scene.objects.begin();
      for (const SceneObject& phrase : scene.caption) {
        object = std::find_if(object, scene.objects.end(),
                              [&](const SceneObject& o) { return tells_of(phrase, o); });
        ASSERT_NE(object, scene.objects.end());
        ++object;
      }
      lengths.insert(static_cast<std::size_t>(
          std::find(sample.tokens.begin(), sample.tokens.end(), spec.classes - 1) -
          sample.tokens.begin()));
    }
    EXPECT_EQ(*lengths.begin(), 2u);  // a shape alone
    EXPECT_EQ(*lengths.rbegin(), static_cast<std::size_t>(GeneratedScenes::longest_caption - 1));
  }
}

/// All captions that the scene may get: choices of objects, with facts left out.
void list_captions(const Caption& objects, std::size_t next, Caption& caption,
                   std::map<std::vector<std::tuple<int, int, int, int>>, Caption>& all) {
  if (!caption.empty()) all.emplace(sorting_key(caption), caption);
  if (caption.size() == 3) return;
  for (std::size_t i = next; i < objects.size(); ++i) {
    for (int told = 0; told < 8; ++told) {
      SceneObject phrase = objects[i];
      if ((told & 1) == 0) phrase.colour = -1;
      if ((told & 2) == 0) phrase.size = -1;
      if ((told & 4) == 0) phrase.cell = -1;
      caption.push_back(phrase);
      list_captions(objects, i + 1, caption, all);
      caption.pop_back();
    }
  }
}

// The tokens behind the places are those of the same sample as a pair; the targets are the next
// ones up to the first of the last tokens, whose mean number is documented.
TEST(GeneratedScenes, CaptionsStandBehindThePlacesOfTheirImage) {
  constexpr std::int64_t places = 9, end = 31;
  SampleSpec spec = pair_spec(24, 16 + places);
  spec.kind = SampleKind::captions;
  spec.image_places = places;
  const GeneratedScenes source(spec, 3), pairs(pair_spec(24), 3);
  SampleBuffer sample(source.spec()), pair(pairs.spec());
  double targets = 0;
  constexpr std::uint64_t samples = 4000;
  for (std::uint64_t i = 0; i < samples; ++i) {
    sample.read(source, Split::train, i);
    pair.read(pairs, Split::train, i);
    ASSERT_EQ(sample.pixels, pair.pixels);
    bool ended = false;
    for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
      const bool in_image = t < places;
      ASSERT_EQ(sample.tokens[t], in_image ? end - 1 : pair.tokens[t - places]);
      ended = ended || (!in_image && sample.tokens[t] == end);
      ASSERT_EQ(sample.targets[t], in_image || ended ? -1 : sample.tokens[t + 1]);
      targets += sample.targets[t] >= 0 ? 1 : 0;
    }
    ASSERT_TRUE(ended);
  }
  EXPECT_NEAR(targets / samples, GeneratedScenes::mean_caption_tokens(), 0.2);
  EXPECT_NEAR(*source.loss_floor(), 0.667, 0.003);
  EXPECT_NE(source.fingerprint(), pairs.fingerprint());
}

// Each image stands before its own caption; the scenes are told apart by it, and the numbers of
// images are as likely. The floor weighs captions with a picture and without one.
TEST(GeneratedScenes, SamplesHaveAnyNumberOfImages) {
  constexpr std::int64_t places = 9, most = 3, end = 31;
  SampleSpec spec = pair_spec(24, most * (16 + places));
  spec.kind = SampleKind::captions;
  spec.image_places = places;
  spec.images = most;
  const GeneratedScenes source(spec, 3);
  std::vector<int> seen(most + 1);
  const double given = GeneratedScenes::caption_entropy_given_scene();
  const double alone = GeneratedScenes::caption_entropy();
  double entropy = 0, targets = 0;
  constexpr std::uint64_t samples = 4000;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::int64_t images = source.images(Split::train, i);
    ASSERT_GE(images, 0);
    ASSERT_LE(images, most);
    ++seen[images];
    std::vector<float> pixels(images * spec.pixels(), -9.0F);
    std::vector<std::int64_t> tokens(spec.length), wanted(spec.length);
    source.read(Split::train, i, {pixels, tokens, wanted, {}});
    EXPECT_EQ(std::ranges::count(pixels, -9.0F), 0);
    std::size_t at = 0;
    for (std::int64_t image = 0; image < std::max<std::int64_t>(1, images); ++image) {
      for (int place = 0; images > 0 && place < places; ++place, ++at) {
        ASSERT_EQ(tokens[at], end - 1);
        ASSERT_EQ(wanted[at], -1);
      }
      const auto stop = std::find(tokens.begin() + at, tokens.end(), end);
      std::vector<std::int64_t> text(tokens.begin() + at, stop);
      text.push_back(end);
      EXPECT_EQ(sorting_key(parse(text, end)),
                sorting_key(source.scene(Split::train, i, image).caption));
      for (; tokens.begin() + at != stop; ++at) ASSERT_EQ(wanted[at], tokens[at + 1]);
      ASSERT_EQ(wanted[at++], -1);
      entropy += images > 0 ? given : alone;
    }
    for (; at < tokens.size(); ++at)
      ASSERT_EQ(std::pair(tokens[at], wanted[at]), std::pair(end, std::int64_t{-1}));
    targets += static_cast<double>(std::ranges::count_if(wanted, [](auto t) { return t >= 0; }));
    EXPECT_NE(source.scene(Split::train, i, 0).objects, source.scene(Split::train, i, 1).objects);
  }
  for (const int count : seen) EXPECT_NEAR(count, samples / 4.0, 110);
  EXPECT_NEAR(*source.loss_floor(), entropy / targets, 0.02);
  SampleSpec one = spec;
  one.images = 0;
  EXPECT_NE(source.fingerprint(), GeneratedScenes(one, 3).fingerprint());
}

// The label says whose caption it is, and the posterior of the label has the documented entropy:
// the mean over samples of −ln P(label) is the floor, which is far below that of a guess.
TEST(GeneratedScenes, HalfOfTheMatchesHaveTheCaptionOfAnotherScene) {
  SampleSpec spec = pair_spec(24);
  spec.kind = SampleKind::matches;
  const GeneratedScenes source(spec, 3), pairs(pair_spec(24), 3);
  SampleBuffer sample(source.spec()), pair(pairs.spec());
  constexpr std::uint64_t samples = 40000;
  double own = 0, loss = 0, squares = 0, likely = 0;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const auto [objects, caption] = source.scene(Split::train, i);
    const double ratio =
        GeneratedScenes::chance(caption, objects) / GeneratedScenes::chance(caption);
    const bool is_own = caption == pairs.scene(Split::train, i).caption;
    const double nats = std::log(1 + (is_own ? 1 / ratio : ratio));
    own += is_own ? 1 : 0;
    loss += nats;
    squares += nats * nats;
    likely += is_own == (ratio > 1) ? 1 : 0;
    if (i >= 200) continue;
    sample.read(source, Split::train, i);
    pair.read(pairs, Split::train, i);
    EXPECT_EQ(sample.pixels, pair.pixels);
    EXPECT_EQ(sample.targets, (std::vector<std::int64_t>{is_own ? 1 : 0}));
    EXPECT_EQ(parse(sample.tokens, 31), caption);
  }
  EXPECT_NEAR(own / samples, 0.5, 0.01);
  const double mean = loss / samples;
  EXPECT_NEAR(mean, GeneratedScenes::match_entropy(),
              5 * std::sqrt((squares / samples - mean * mean) / samples));
  EXPECT_EQ(source.loss_floor(), GeneratedScenes::match_entropy());
  EXPECT_LT(mean, 0.2);
  EXPECT_GT(likely / samples, 0.9);
  EXPECT_NE(source.fingerprint(), pairs.fingerprint());
}

TEST(GeneratedScenes, ChancesOfASceneSumToOne) {
  const GeneratedScenes source({}, 7);
  std::vector<Caption> scenes = {
      {{0, 1, 2, 0}, {3, 1, 2, 0}},
      {{1, 5, 5, 2}, {2, 5, 5, 2}, {4, 5, 5, 1}, {6, 5, 5, 2}, {8, 5, 0, 2}}};
  for (std::uint64_t i = 0; i < 20; ++i) scenes.push_back(source.scene(Split::train, i).objects);
  for (const Caption& objects : scenes) {
    std::map<std::vector<std::tuple<int, int, int, int>>, Caption> all;
    Caption empty;
    list_captions(objects, 0, empty, all);
    double sum = 0;
    for (const auto& [key, caption] : all) sum += GeneratedScenes::chance(caption, objects);
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

/// The chance of all captions that begin with this one. What a phrase tells as shape, colour and
/// size does not matter to its chance, so that one of each stands for all.
double sum_of_chances(Caption& caption, double alike) {
  double sum = caption.empty() ? 0 : alike * GeneratedScenes::chance(caption);
  if (caption.size() == 3) return sum;
  for (int told = 0; told < 4; ++told) {
    const double kinds = 8 * ((told & 1) != 0 ? 8 : 1) * ((told & 2) != 0 ? 3 : 1);
    for (std::int8_t cell = -1; cell < 9; ++cell) {
      caption.push_back({cell, 0, static_cast<std::int8_t>((told & 1) - 1),
                         static_cast<std::int8_t>((told >> 1) - 1)});
      sum += sum_of_chances(caption, alike * kinds);
      caption.pop_back();
    }
  }
  return sum;
}

TEST(GeneratedScenes, ChancesOfAllCaptionsSumToOne) {
  Caption empty;
  EXPECT_NEAR(sum_of_chances(empty, 1), 1, 1e-9);
}

// The mean of P(caption | scene) over scenes is P(caption).
TEST(GeneratedScenes, ChancesOfCaptionsAreMeansOverScenes) {
  const std::vector<Caption> captions = {{{-1, 0, -1, -1}},
                                         {{4, 7, -1, -1}},
                                         {{-1, 3, 6, 2}},
                                         {{8, 1, 1, -1}},
                                         {{-1, 2, -1, -1}, {-1, 2, -1, -1}},
                                         {{-1, 2, -1, 1}, {3, 6, -1, -1}},
                                         {{5, 2, -1, -1}, {-1, 6, -1, -1}},
                                         {{-1, 0, -1, -1}, {-1, 1, -1, -1}, {-1, 0, -1, -1}},
                                         {{-1, 0, -1, -1}, {4, 1, -1, -1}, {-1, 7, -1, -1}}};
  const GeneratedScenes source({}, 21);
  std::vector<double> sums(captions.size(), 0), squares(captions.size(), 0);
  const int scenes = 200000;
  for (std::uint64_t i = 0; i < scenes; ++i) {
    const Caption objects = source.scene(Split::train, i).objects;
    for (std::size_t c = 0; c < captions.size(); ++c) {
      const double p = GeneratedScenes::chance(captions[c], objects);
      sums[c] += p;
      squares[c] += p * p;
    }
  }
  for (std::size_t c = 0; c < captions.size(); ++c) {
    const double mean = sums[c] / scenes;
    const double error = std::sqrt((squares[c] / scenes - mean * mean) / scenes);
    EXPECT_LT(error, mean / 10) << c;
    EXPECT_NEAR(GeneratedScenes::chance(captions[c]), mean, 5 * error) << c;
  }
}

TEST(GeneratedScenes, FrequentCaptionsComeAsOftenAsTheirChancesSay) {
  const GeneratedScenes source({}, 5);
  const int samples = 200000;
  std::map<std::vector<std::tuple<int, int, int, int>>, int> counts;
  double phrases = 0;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const GeneratedScenes::Scene scene = source.scene(Split::validation, i);
    ++counts[sorting_key(scene.caption)];
    phrases += static_cast<double>(scene.caption.size());
  }
  EXPECT_NEAR(phrases / samples, 1.875, 5 * 0.8 / std::sqrt(samples));
  double chi_square = 0;
  int kinds = 0;
  for (const auto& [key, count] : counts) {
    Caption caption;
    for (const auto& [cell, shape, colour, size] : key) {
      caption.push_back({static_cast<std::int8_t>(cell), static_cast<std::int8_t>(shape),
                         static_cast<std::int8_t>(colour), static_cast<std::int8_t>(size)});
    }
    const double expected = samples * GeneratedScenes::chance(caption);
    if (expected < 40) continue;
    ++kinds;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_EQ(kinds, 8 * (1 + 3 + 8 + 9 + 24 + 27));  // one phrase, unless colour and cell are told
  EXPECT_NEAR(chi_square, kinds, 5 * std::sqrt(2 * kinds));
}

TEST(GeneratedScenes, FloorIsTheLossOfTheBestCritic) {
  const GeneratedScenes source({}, 9);
  const std::uint64_t pairs = 32, batches = 300;
  double sum = 0;
  for (std::uint64_t round = 0; round < batches; ++round) {
    std::vector<GeneratedScenes::Scene> batch;
    for (std::uint64_t i = 0; i < pairs; ++i) {
      batch.push_back(source.scene(Split::train, round * pairs + i));
    }
    std::vector<double> rows(pairs, 0), columns(pairs, 0), own(pairs, 0);
    for (std::size_t i = 0; i < pairs; ++i) {
      for (std::size_t j = 0; j < pairs; ++j) {
        const double ratio = GeneratedScenes::chance(batch[j].caption, batch[i].objects) /
                             GeneratedScenes::chance(batch[j].caption);
        rows[i] += ratio;
        columns[j] += ratio;
        if (i == j) own[i] = ratio;
      }
    }
    for (std::size_t i = 0; i < pairs; ++i) {
      sum += (std::log(rows[i] / own[i]) + std::log(columns[i] / own[i])) / 2;
    }
  }
  EXPECT_NEAR(GeneratedScenes::contrastive_floor(pairs), sum / static_cast<double>(pairs * batches),
              0.01);
}

TEST(GeneratedScenes, FloorGrowsWithTheNumberOfPairs) {
  EXPECT_EQ(GeneratedScenes::contrastive_floor(1), 0);
  double last = 0;
  for (std::uint64_t pairs : {2, 8, 64, 256, 4096}) {
    const double floor = GeneratedScenes::contrastive_floor(pairs);
    EXPECT_GT(floor, last) << pairs;
    EXPECT_LT(floor, std::log(static_cast<double>(pairs))) << pairs;
    last = floor;
  }
}

TEST(GeneratedScenes, EntropiesAndLengthsAreThoseOfSamples) {
  const GeneratedScenes source({}, 31);
  SampleBuffer sample(source.spec());
  double given = 0, alone = 0, tokens = 0;
  const int samples = 20000;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const GeneratedScenes::Scene scene = source.scene(Split::train, i);
    given -= std::log(GeneratedScenes::chance(scene.caption, scene.objects)) / samples;
    alone -= std::log(GeneratedScenes::chance(scene.caption)) / samples;
  }
  for (std::uint64_t i = 0; i < samples / 10; ++i) {
    sample.read(source, Split::train, i);
    tokens += static_cast<double>(std::find(sample.tokens.begin(), sample.tokens.end(), 31) -
                                  sample.tokens.begin()) /
              (samples / 10);
  }
  EXPECT_NEAR(GeneratedScenes::caption_entropy_given_scene(), given, 0.08);
  EXPECT_NEAR(GeneratedScenes::caption_entropy(), alone, 0.3);
  EXPECT_NEAR(GeneratedScenes::mean_caption_tokens(), tokens, 0.4);
}

/// Names the object of a cell by its pixels alone. It learns a template of every shape and size as
/// the mean of rendered objects, moved to where they fit the template of the round before, and then
/// takes the template, place and colour with the least squared difference to the pixels.
class PictureReader {
 public:
  PictureReader(const GeneratedScenes& source, std::uint64_t samples)
      : source_(source), side_(static_cast<int>(source.spec().height)), room_(side_ / 3) {
    for (int round = 0; round < 3; ++round) learn(samples);
  }

  /// Returns what stands in the cell; nothing (−1) where no template fits a third as well as its
  /// own shape would.
  SceneObject name(const std::vector<float>& pixels, int cell) const {
    SceneObject best;
    double best_score = 0;
    for (int t = 0; t < 24; ++t) {
      const Fit fit = best_fit(pixels, cell, templates_[static_cast<std::size_t>(t)]);
      if (fit.score <= std::max(best_score, fit.expected / 3)) continue;
      best_score = fit.score;
      best = {static_cast<std::int8_t>(cell), static_cast<std::int8_t>(t / 3),
              static_cast<std::int8_t>(fit.colour), static_cast<std::int8_t>(t % 3)};
    }
    return best;
  }

 private:
  using Template = std::vector<float>;  ///< room² values; the object is 1, what lies around it 0
  struct Fit {
    double score = -1e300, expected = 0;
    int dy = 0, dx = 0, colour = 0;
  };

  float at(const std::vector<float>& pixels, int channel, int y, int x) const {
    if (y < 0 || x < 0 || y >= side_ || x >= side_) return 0;
    return pixels[static_cast<std::size_t>((channel * side_ + y) * side_ + x)];
  }
  int top(int cell) const { return side_ * (cell / 3) / 3; }
  int left(int cell) const { return side_ * (cell % 3) / 3; }

  /// Finds the place of the template with the least squared difference, each channel with the sign
  /// that suits it.
  Fit best_fit(const std::vector<float>& pixels, int cell, const Template& wanted) const {
    const int reach = room_ / 8 + 1;
    float square = 0;
    for (float w : wanted) square += w * w;
    const double expected = static_cast<double>(1.5f * strength * strength * square);
    Fit best;
    for (int dy = -reach; dy <= reach; ++dy) {
      for (int dx = -reach; dx <= reach; ++dx) {
        Fit fit{-expected, expected, dy, dx, 0};
        for (int c = 0; c < 3; ++c) {
          float product = 0;
          for (int y = 0; y < room_; ++y) {
            for (int x = 0; x < room_; ++x) {
              product += wanted[static_cast<std::size_t>(y * room_ + x)] *
                         at(pixels, c, top(cell) + dy + y, left(cell) + dx + x);
            }
          }
          fit.score += static_cast<double>(strength * std::abs(product));
          if (product > 0) fit.colour |= 1 << c;
        }
        if (fit.score > best.score) best = fit;
      }
    }
    return best;
  }

  void learn(std::uint64_t samples) {
    std::vector<Template> sums(24, Template(static_cast<std::size_t>(room_ * room_), 0));
    std::vector<float> counts(24, 0);
    SampleBuffer sample(source_.spec());
    for (std::uint64_t i = 0; i < samples; ++i) {
      sample.read(source_, Split::train, i);
      for (const SceneObject& o : source_.scene(Split::train, i).objects) {
        const auto t = static_cast<std::size_t>(o.shape * 3 + o.size);
        const Fit fit = templates_.empty() ? Fit{} : best_fit(sample.pixels, o.cell, templates_[t]);
        ++counts[t];
        for (int k = 0; k < 3 * room_ * room_; ++k) {
          const int c = k / (room_ * room_), y = k / room_ % room_, x = k % room_;
          const float value =
              at(sample.pixels, c, top(o.cell) + fit.dy + y, left(o.cell) + fit.dx + x);
          sums[t][static_cast<std::size_t>(y * room_ + x)] +=
              (o.colour >> c & 1) != 0 ? value : -value;
        }
      }
    }
    for (std::size_t t = 0; t < sums.size(); ++t) {
      for (float& value : sums[t]) value /= 3 * strength * counts[t];
    }
    templates_ = sums;
  }

  static constexpr float strength = 2;  ///< the mean size of an object's pixels
  const GeneratedScenes& source_;
  int side_, room_;
  std::vector<Template> templates_;  ///< by shape and size
};

TEST(GeneratedScenes, PixelsTellTheScene) {
  for (const auto& [side, samples] : {std::pair<std::int64_t, std::uint64_t>{32, 200}, {64, 60}}) {
    const GeneratedScenes source(pair_spec(side), 13);
    const PictureReader reader(source, 300);
    SampleBuffer sample(source.spec());
    int objects = 0, named = 0, imagined = 0;
    for (std::uint64_t i = 0; i < samples; ++i) {
      sample.read(source, Split::validation, i);
      const Caption truth = source.scene(Split::validation, i).objects;
      for (std::int8_t cell = 0; cell < 9; ++cell) {
        const SceneObject seen = reader.name(sample.pixels, cell);
        const auto object = std::find_if(truth.begin(), truth.end(),
                                         [cell](const SceneObject& o) { return o.cell == cell; });
        if (object != truth.end()) {
          ++objects;
          named += seen == *object;
        } else {
          imagined += seen.shape >= 0;
        }
      }
    }
    EXPECT_GE(named, 0.99 * objects) << side;
    EXPECT_LE(imagined, 0.01 * objects) << side;
  }
}

TEST(GeneratedScenes, PixelsAreOfOneSizeAndAnyShapeFillsThemAll) {
  for (SampleSpec spec : {pair_spec(24), pair_spec(32), pair_spec(37), pair_spec(224)}) {
    if (spec.height == 37) spec.width = 70;
    const GeneratedScenes source(spec, 3);
    SampleBuffer sample(source.spec());
    double sum = 0, squares = 0, count = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      std::fill(sample.pixels.begin(), sample.pixels.end(), 1e9f);
      for (float x : sample.read(source, Split::train, i).pixels) {
        ASSERT_LT(std::abs(x), 8);
        sum += static_cast<double>(x);
        squares += static_cast<double>(x * x);
        ++count;
      }
    }
    EXPECT_NEAR(sum / count, 0, 0.15);
    EXPECT_NEAR(std::sqrt(squares / count), 0.65, 0.15);
  }
}

TEST(GeneratedScenes, SplitsSeedsAndIndicesGiveOtherSamples) {
  const GeneratedScenes one({}, 1), same({}, 1), two({}, 2);
  SampleBuffer sample(one.spec()), again(one.spec());
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 100; ++i) {
    for (Split split : {Split::train, Split::validation}) {
      seen.insert(sample.read(one, split, i).input_hash());
      seen.insert(again.read(two, split, i).input_hash());
      EXPECT_EQ(sample.input_hash(), again.read(same, split, i).input_hash());
    }
  }
  EXPECT_EQ(seen.size(), 400u);
  EXPECT_NE(one.fingerprint(), two.fingerprint());
  EXPECT_EQ(one.fingerprint(), same.fingerprint());
  EXPECT_NE(one.fingerprint(), GeneratedScenes(pair_spec(32, 17), 1).fingerprint());
}

// Records name the data by seed alone, so neither pictures nor texts nor floors may ever change.
TEST(GeneratedScenes, BitsAreFixed) {
  const GeneratedScenes source({}, 1);
  SampleBuffer sample(source.spec());
  EXPECT_EQ(sample.read(source, Split::train, 7).input_hash(), "d88262947f1b56a81269c1364d65dc9f");
  EXPECT_EQ(GeneratedScenes::contrastive_floor(64), 0.1244366503261112);
  EXPECT_EQ(GeneratedScenes::match_entropy(), 0.016407142556734155);
}

TEST(GeneratedScenes, DefaultsAndBadShapes) {
  EXPECT_EQ(GeneratedScenes({}, 1).spec(), pair_spec(32));
  try {
    GeneratedScenes({.channels = 1, .height = 23, .width = 4097, .length = 15, .classes = 31}, 1);
    FAIL() << "must throw";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 5u);
  }
}

}  // namespace
}  // namespace heteroperf
