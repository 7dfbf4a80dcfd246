#include "workloads/data/generated_tokens.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "metrics/base/error.hpp"
#include "tests/unit/workloads/data/sample_buffer.hpp"

namespace heteroperf {
namespace {

SampleSpec tokens_spec(std::int64_t length, std::int64_t classes) {
  return {.kind = SampleKind::tokens, .length = length, .classes = classes};
}

TEST(GeneratedTokens, FloorIsTheEntropyOfTheZipfLaw) {
  // Values of the closed form for 32 and 16 branches.
  EXPECT_NEAR(*GeneratedTokens(tokens_spec(8, 256), 1).loss_floor(), 2.8759, 5e-5);
  EXPECT_NEAR(*GeneratedTokens(tokens_spec(8, 64), 1).loss_floor(), 2.3589, 5e-5);
  EXPECT_EQ(GeneratedTokens(tokens_spec(8, 256), 1).error_floor(), std::nullopt);
}

TEST(GeneratedTokens, ProbabilitiesOfARowSumToOne) {
  const GeneratedTokens source(tokens_spec(8, 100), 3);
  for (std::int64_t context = 0; context < 100; ++context) {
    double sum = 0;
    int branches = 0;
    for (std::int64_t next = 0; next < 100; ++next) {
      const double p = source.probability(context, next);
      sum += p;
      branches += p > 0;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT_EQ(branches, 25);
  }
}

// The oracle's cross-entropy estimates the floor: 2 % is more than ten standard errors away here.
TEST(GeneratedTokens, OracleReachesTheFloorAndTheUniformModelDoesNot) {
  for (std::int64_t classes : {16, 256, 1000}) {
    const GeneratedTokens source(tokens_spec(128, classes), 17);
    SampleBuffer sample(source.spec());
    double sum = 0, squares = 0;
    const int samples = 400;
    for (int i = 0; i < samples; ++i) {
      sample.read(source, i % 2 == 0 ? Split::train : Split::validation,
                  static_cast<std::uint64_t>(i));
      for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
        const double p = source.probability(sample.tokens[t], sample.targets[t]);
        ASSERT_GT(p, 0);
        sum -= std::log(p);
        squares += std::log(p) * std::log(p);
      }
    }
    const double count = 128.0 * samples, mean = sum / count;
    const double error = std::sqrt((squares / count - mean * mean) / count);
    EXPECT_NEAR(mean, *source.loss_floor(), 4 * error) << classes;
    EXPECT_GT(std::log(static_cast<double>(classes)), *source.loss_floor() + 1);
  }
}

TEST(GeneratedTokens, TargetsAreTheNextTokens) {
  const GeneratedTokens source(tokens_spec(50, 512), 2);
  SampleBuffer sample(source.spec());
  sample.read(source, Split::train, 12345);
  for (std::size_t t = 0; t + 1 < sample.tokens.size(); ++t) {
    EXPECT_EQ(sample.targets[t], sample.tokens[t + 1]);
  }
}

// Without its context a token tells little: the best model of single tokens stays near ln V.
TEST(GeneratedTokens, UnigramModelStaysFarFromTheFloor) {
  const GeneratedTokens source(tokens_spec(128, 256), 5);
  SampleBuffer sample(source.spec());
  std::vector<double> counts(256, 0);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    for (std::int64_t token : sample.read(source, Split::train, i).targets) {
      ++counts[static_cast<std::size_t>(token)];
    }
  }
  double entropy = 0;
  for (double count : counts) {
    if (count > 0) entropy -= count / 128000 * std::log(count / 128000);
  }
  EXPECT_GT(entropy, 5.0);
}

TEST(GeneratedTokens, SplitsSeedsAndIndicesGiveOtherSamples) {
  const GeneratedTokens one(tokens_spec(32, 256), 1), two(tokens_spec(32, 256), 2);
  SampleBuffer sample(one.spec());
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    seen.insert(sample.read(one, Split::train, i).input_hash());
    seen.insert(sample.read(one, Split::validation, i).input_hash());
    seen.insert(sample.read(two, Split::train, i).input_hash());
  }
  EXPECT_EQ(seen.size(), 6000u);
  EXPECT_NE(one.fingerprint(), two.fingerprint());
  EXPECT_EQ(one.fingerprint(), GeneratedTokens(tokens_spec(32, 256), 1).fingerprint());
}

// Records name the data by seed alone, so the stream may never change.
TEST(GeneratedTokens, BitsAreFixed) {
  const GeneratedTokens source(tokens_spec(64, 256), 1);
  SampleBuffer sample(source.spec());
  EXPECT_EQ(sample.read(source, Split::train, 7).input_hash(), "2482086e5742161c5b499178e867fd2f");
}

TEST(GeneratedTokens, ReportsEveryValueOutOfRange) {
  try {
    GeneratedTokens(tokens_spec(0, 4), 1);
    FAIL() << "must throw";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 2u);
  }
  EXPECT_THROW(GeneratedTokens(tokens_spec(8, 1 << 21), 1), UserError);
}

}  // namespace
}  // namespace heteroperf
