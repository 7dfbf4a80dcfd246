#include "workloads/data/generated_images.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/base/error.hpp"
#include "tests/unit/workloads/data/sample_buffer.hpp"

namespace heteroperf {
namespace {

SampleSpec image_spec(std::int64_t channels, std::int64_t side, std::int64_t classes) {
  return {.kind = SampleKind::images,
          .channels = channels,
          .height = side,
          .width = side,
          .classes = classes};
}

/// Classifies from the pixels with knowledge of waves and grammar: energy of each wave in each
/// cell, then the most likely production upwards, level by level.
class Oracle {
 public:
  explicit Oracle(const GeneratedImages& source) : source_(source) {}

  int classify(const std::vector<float>& pixels) const {
    int side = source_.grammar().side();
    std::vector<std::vector<double>> scores;  // [place][symbol]
    for (int i = 0; i < side * side; ++i) {
      scores.push_back(cell_scores(pixels, source_.renderer().cell(i / side, i % side)));
    }
    for (int level = source_.grammar().shape().levels - 1; level >= 0; --level, side /= 2) {
      scores = parents(scores, side, level);
    }
    return static_cast<int>(std::max_element(scores[0].begin(), scores[0].end()) -
                            scores[0].begin());
  }

 private:
  std::vector<double> cell_scores(const std::vector<float>& pixels,
                                  const PatchRenderer::Cell& cell) const {
    std::vector<double> scores;
    for (int s = 0; s < source_.grammar().shape().symbols; ++s) {
      double energy = 0;
      for (std::int64_t c = 0; c < source_.spec().channels; ++c) {
        energy += wave_energy(pixels, cell, c, source_.renderer().wave(s));
      }
      scores.push_back(energy);
    }
    return scores;
  }

  double wave_energy(const std::vector<float>& pixels, const PatchRenderer::Cell& cell,
                     std::int64_t channel, const PatchRenderer::Wave& wave) const {
    double mean = 0, even = 0, odd = 0;
    const auto at = [&](int y, int x) {
      const SampleSpec& spec = source_.spec();
      return static_cast<double>(pixels[static_cast<std::size_t>(
          (channel * spec.height + cell.row + y) * spec.width + cell.column + x)]);
    };
    for (int y = 0; y < cell.height; ++y) {
      for (int x = 0; x < cell.width; ++x) mean += at(y, x) / (cell.height * cell.width);
    }
    for (int y = 0; y < cell.height; ++y) {
      for (int x = 0; x < cell.width; ++x) {
        const double angle = 2 * M_PI / 65536 * (x * wave.per_column + y * wave.per_row);
        const double u = (2.0 * x + 1) / cell.width - 1, v = (2.0 * y + 1) / cell.height - 1;
        const double window = (1 - u * u / 1.7) * (1 - v * v / 1.7);
        even += (at(y, x) - mean) * window * std::cos(angle);
        odd += (at(y, x) - mean) * window * std::sin(angle);
      }
    }
    return std::sqrt(even * even + odd * odd);
  }

  std::vector<std::vector<double>> parents(const std::vector<std::vector<double>>& children,
                                           int side, int level) const {
    const GrammarShape& shape = source_.grammar().shape();
    const int parent_symbols = level == 0 ? shape.classes : shape.symbols;
    std::vector<std::vector<double>> scores;
    for (int i = 0; i < side * side / 4; ++i) {
      const int row = i / (side / 2) * 2, column = i % (side / 2) * 2;
      std::vector<double>& best = scores.emplace_back(parent_symbols, -1e300);
      for (int p = 0; p < parent_symbols; ++p) {
        for (int m = 0; m < shape.synonyms; ++m) {
          const auto& production = source_.grammar().production(level, p, m);
          double sum = 0;
          for (int k = 0; k < 4; ++k) {
            const auto place = static_cast<std::size_t>((row + k / 2) * side + column + k % 2);
            sum += children[place][production[static_cast<std::size_t>(k)]];
          }
          best[static_cast<std::size_t>(p)] = std::max(best[static_cast<std::size_t>(p)], sum);
        }
      }
    }
    return scores;
  }

  const GeneratedImages& source_;
};

TEST(HierarchicalGrammar, NoTwoParentsShareAProduction) {
  const GrammarShape shape{.classes = 40, .symbols = 8, .synonyms = 8, .levels = 3};
  const HierarchicalGrammar grammar(shape, 5);
  for (int level = 0; level < 3; ++level) {
    const int parents = level == 0 ? shape.classes : shape.symbols;
    std::set<HierarchicalGrammar::Production> seen;
    for (int p = 0; p < parents; ++p) {
      for (int m = 0; m < shape.synonyms; ++m) seen.insert(grammar.production(level, p, m));
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(parents * shape.synonyms));
  }
}

TEST(HierarchicalGrammar, StringsParseBackToTheirClass) {
  const HierarchicalGrammar grammar({.classes = 10, .symbols = 8, .synonyms = 4, .levels = 2}, 9);
  const auto parent_of = [&](int level, const HierarchicalGrammar::Production& children) {
    for (int p = 0; p < (level == 0 ? 10 : 8); ++p) {
      for (int m = 0; m < 4; ++m) {
        if (grammar.production(level, p, m) == children) return p;
      }
    }
    return -1;
  };
  RandomStream random(1);
  std::vector<std::uint8_t> symbols(16);
  for (int round = 0; round < 500; ++round) {
    const int label = round % 10;
    grammar.expand(label, random, symbols);
    HierarchicalGrammar::Production middle{};
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t corner = i / 2 * 8 + i % 2 * 2;
      middle[i] = static_cast<std::uint8_t>(parent_of(
          1, {symbols[corner], symbols[corner + 1], symbols[corner + 4], symbols[corner + 5]}));
    }
    EXPECT_EQ(parent_of(0, middle), label);
  }
}

TEST(GeneratedImages, OracleAttainsTheBayesError) {
  for (const SampleSpec& spec :
       {image_spec(3, 32, 10), image_spec(1, 28, 10), image_spec(3, 64, 20)}) {
    const GeneratedImages source(spec, 11);
    const Oracle oracle(source);
    SampleBuffer sample(source.spec());
    const int samples = 1000;
    int wrong = 0, wrong_before_noise = 0;
    for (std::uint64_t i = 0; i < samples; ++i) {
      const int seen = oracle.classify(sample.read(source, Split::validation, i).pixels);
      wrong += seen != sample.targets[0];
      wrong_before_noise += seen != source.latent(Split::validation, i).clean_label;
    }
    const double floor = *source.error_floor(), rate = wrong / static_cast<double>(samples);
    EXPECT_LE(wrong_before_noise, samples / 100) << source.description();
    EXPECT_NEAR(rate, floor, 3 * std::sqrt(floor * (1 - floor) / samples) + 0.01)
        << source.description();
  }
}

TEST(GeneratedImages, LabelNoiseIsTheBayesErrorAndLabelsAreBalanced) {
  const GeneratedImages source(image_spec(3, 32, 10), 4);
  EXPECT_DOUBLE_EQ(*source.error_floor(), 0.045);
  std::vector<int> counts(10, 0);
  int flipped = 0;
  const int samples = 20000;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const GeneratedImages::Latent latent = source.latent(Split::train, i);
    ++counts[static_cast<std::size_t>(latent.label)];
    flipped += latent.label != latent.clean_label;
  }
  EXPECT_NEAR(flipped, 900, 4 * std::sqrt(900 * 0.955));
  double chi_square = 0;
  for (int count : counts) chi_square += (count - 2000.0) * (count - 2000.0) / 2000.0;
  EXPECT_LT(chi_square, 27.88);  // 99.9 % with 9 degrees of freedom
}

/// Error of the class whose mean training image is nearest: a linear classifier.
double nearest_centroid_error(const GeneratedImages& source, std::uint64_t train,
                              std::uint64_t test) {
  SampleBuffer sample(source.spec());
  const auto classes = static_cast<std::size_t>(source.spec().classes);
  std::vector<std::vector<double>> centroids(classes, std::vector<double>(sample.pixels.size(), 0));
  std::vector<double> counts(classes, 0);
  for (std::uint64_t i = 0; i < train; ++i) {
    sample.read(source, Split::train, i);
    const auto label = static_cast<std::size_t>(sample.targets[0]);
    ++counts[label];
    for (std::size_t k = 0; k < sample.pixels.size(); ++k) {
      centroids[label][k] += static_cast<double>(sample.pixels[k]);
    }
  }
  int wrong = 0;
  for (std::uint64_t i = 0; i < test; ++i) {
    sample.read(source, Split::validation, i);
    std::vector<double> scores(classes, 0);
    for (std::size_t c = 0; c < classes; ++c) {
      for (std::size_t k = 0; k < sample.pixels.size(); ++k) {
        const double mean = centroids[c][k] / counts[c];
        scores[c] += mean * (static_cast<double>(sample.pixels[k]) - mean / 2);
      }
    }
    wrong += std::max_element(scores.begin(), scores.end()) - scores.begin() != sample.targets[0];
  }
  return wrong / static_cast<double>(test);
}

TEST(GeneratedImages, LinearClassifierStaysFarFromTheFloor) {
  const GeneratedImages source(image_spec(3, 32, 10), 6);
  EXPECT_GT(nearest_centroid_error(source, 5000, 1000), *source.error_floor() + 0.6);
}

TEST(GeneratedImages, SamplesAreDistinctAndFiniteAndOfUnitSize) {
  const GeneratedImages source(image_spec(3, 32, 10), 8);
  SampleBuffer sample(source.spec());
  std::set<std::string> seen;
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    for (Split split : {Split::train, Split::validation}) {
      seen.insert(sample.read(source, split, i).input_hash());
      for (float x : sample.pixels) {
        sum += static_cast<double>(x);
        squares += static_cast<double>(x) * static_cast<double>(x);
        ASSERT_LT(std::abs(x), 8);
      }
    }
  }
  EXPECT_EQ(seen.size(), 2000u);
  const double count = 2000.0 * 3072;
  EXPECT_NEAR(sum / count, 0, 0.05);
  EXPECT_NEAR(std::sqrt(squares / count), 0.75, 0.25);
}

// Records name the data by seed alone, so the images may never change.
TEST(GeneratedImages, BitsAreFixed) {
  const GeneratedImages source(image_spec(3, 32, 10), 1);
  SampleBuffer sample(source.spec());
  EXPECT_EQ(sample.read(source, Split::train, 7).input_hash(), "dbe122a1faa5edb52f7da8d13028b591");
}

TEST(GeneratedImages, AnyShapeWorksAndOddOnesFillEveryPixel) {
  for (const SampleSpec& spec :
       {image_spec(1, 8, 2), image_spec(4, 15, 3), image_spec(3, 37, 65), image_spec(1, 224, 1000),
        SampleSpec{.channels = 2, .height = 33, .width = 70, .classes = 5}}) {
    const GeneratedImages source(spec, 3);
    SampleBuffer sample(source.spec());
    std::fill(sample.pixels.begin(), sample.pixels.end(), 1e9f);
    sample.read(source, Split::train, 5);
    EXPECT_LT(*std::max_element(sample.pixels.begin(), sample.pixels.end()), 8);
    EXPECT_GE(sample.targets[0], 0);
    EXPECT_LT(sample.targets[0], spec.classes);
  }
}

TEST(GeneratedImages, DefaultsAndBadShapes) {
  EXPECT_EQ(GeneratedImages({}, 1).spec(), image_spec(3, 32, 10));
  try {
    GeneratedImages(SampleSpec{.channels = -1, .height = 4, .width = 1 << 20, .classes = 1}, 1);
    FAIL() << "must throw";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 4u);
  }
}

}  // namespace
}  // namespace heteroperf
