#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/random.hpp"
#include "tests/unit/workloads/data/sample_buffer.hpp"
#include "tests/unit/workloads/data/scratch_folder.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"
#include "workloads/data/token_windows.hpp"

namespace heteroperf {
namespace {

DataRequest tokens_from(const std::string& source, std::int64_t length, std::int64_t classes) {
  DataRequest request;
  request.source = source;
  request.wanted = {.kind = SampleKind::tokens, .length = length, .classes = classes};
  return request;
}

ByteVector random_bytes(std::size_t count, std::uint64_t seed) {
  ByteVector bytes(count);
  RandomStream random(seed);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
  return bytes;
}

ByteVector encode(const std::vector<std::uint32_t>& ids, int width) {
  ByteVector bytes;
  for (std::uint32_t id : ids) {
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<std::uint8_t>(id >> (8 * i)));
  }
  return bytes;
}

class TokenFiles : public ScratchFolder {};

/// Every window equals the file where it stands; no position of the file feeds both splits; returns
/// the share of positions that are used.
double check_windows(const TokenWindows& source, const ByteVector& bytes) {
  SampleBuffer sample(source.spec());
  std::vector<int> used(bytes.size(), 0);
  const auto length = static_cast<std::uint64_t>(source.spec().length);
  for (Split split : {Split::train, Split::validation}) {
    const int mark = split == Split::train ? 1 : 2;
    for (std::uint64_t i = 0; i < source.size(split); ++i) {
      const std::uint64_t start = source.start_of(split, i);
      sample.read(source, split, i);
      for (std::uint64_t t = 0; t < length; ++t) {
        EXPECT_EQ(sample.tokens[t], bytes.at(start + t));
        EXPECT_EQ(sample.targets[t], bytes.at(start + t + 1));
      }
      for (std::uint64_t t = 0; t <= length; ++t) used[start + t] |= mark;
    }
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), 3), 0);
  EXPECT_GT(std::count(used.begin(), used.end(), 2), 0);
  return 1 - static_cast<double>(std::count(used.begin(), used.end(), 0)) /
                 static_cast<double>(used.size());
}

TEST_F(TokenFiles, WindowsMatchTheFileAndSplitsNeverOverlap) {
  RandomStream random(1);
  for (int round = 0; round < 40; ++round) {
    const auto length = static_cast<std::int64_t>(1 + random.below(40));
    const std::size_t count = 2 * (length + 1) + random.below(4000);
    const ByteVector bytes = random_bytes(count, random.bits());
    const TokenWindows source("text", write("t", bytes), TokenWindows::Width::one_byte,
                              {.kind = SampleKind::tokens, .length = length});
    EXPECT_GT(check_windows(source, bytes), 0.5) << length << " " << count;
    EXPECT_GT(source.size(Split::train), 0u);
  }
}

TEST_F(TokenFiles, ATenthIsHeldOutAndNearlyEverythingIsUsed) {
  const ByteVector bytes = random_bytes(100000, 3);
  const TokenWindows source("text", write("t", bytes), TokenWindows::Width::one_byte,
                            {.kind = SampleKind::tokens, .length = 32});
  EXPECT_GT(check_windows(source, bytes), 0.99);
  const double held_out = static_cast<double>(source.size(Split::validation)) * 32 / 100000;
  EXPECT_NEAR(held_out, 0.1, 0.01);
  // Training starts at almost every position, not at multiples of the context.
  EXPECT_GT(source.size(Split::train), 80000u);
}

TEST_F(TokenFiles, TextTakesAnyVocabularyFrom256) {
  write("t", random_bytes(1000, 1));
  EXPECT_EQ(open_data(tokens_from("text:" + path("t"), 8, 0))->spec().classes, 256);
  EXPECT_EQ(open_data(tokens_from("text:" + path("t"), 8, 512))->spec().classes, 512);
  EXPECT_TEXT(open_error(tokens_from("text:" + path("t"), 8, 128)), "at least 256");
}

TEST_F(TokenFiles, WidthsReadTheSameIds) {
  RandomStream random(5);
  std::vector<std::uint32_t> ids(2000);
  for (auto& id : ids) id = static_cast<std::uint32_t>(random.below(50000));
  ids[0] = 49999;
  write("t.u16", encode(ids, 2));
  write("t.bin", encode(ids, 2));
  write("t.u32", encode(ids, 4));
  std::vector<std::vector<std::int64_t>> targets;
  for (const char* name : {"t.u16", "t.bin", "t.u32"}) {
    const auto source = open_data(tokens_from("tokens:" + path(name), 16, 0));
    EXPECT_EQ(source->spec().classes, 50000);
    SampleBuffer sample(source->spec());
    targets.push_back(sample.read(*source, Split::train, 33).targets);
  }
  EXPECT_EQ(targets[0], targets[1]);
  EXPECT_EQ(targets[0], targets[2]);
}

TEST_F(TokenFiles, IdAboveTheVocabularyIsNamedWithItsPosition) {
  std::vector<std::uint32_t> ids(1000, 5);
  ids[700] = 300;
  write("t.u16", encode(ids, 2));
  const std::string text = open_error(tokens_from("tokens:" + path("t.u16"), 16, 256));
  EXPECT_TEXT(text, "token 700");
  EXPECT_TEXT(text, "is 300");
  EXPECT_TEXT(text, "byte offset 1400");
  EXPECT_NO_THROW(open_data(tokens_from("tokens:" + path("t.u16"), 16, 301)));
  ids[3] = 0xfffffff0;
  write("t.u32", encode(ids, 4));
  EXPECT_TEXT(open_error(tokens_from("tokens:" + path("t.u32"), 16, 256)), "is 4294967280");
}

TEST_F(TokenFiles, BadFiles) {
  EXPECT_TEXT(open_error(tokens_from("text:" + path("none"), 8, 256)), "No such file");
  EXPECT_TEXT(open_error(tokens_from("text:" + folder_.string(), 8, 256)), "not a regular file");
  write("short", random_bytes(8, 1));
  EXPECT_TEXT(open_error(tokens_from("text:" + path("short"), 8, 256)), "holds 8 tokens");
  EXPECT_TEXT(open_error(tokens_from("text:" + path("short"), 8, 256)), "context of 8 needs 18");
  write("empty.u16", {});
  EXPECT_TEXT(open_error(tokens_from("tokens:" + path("empty.u16"), 8, 256)), "holds 0 tokens");
  write("odd.u16", random_bytes(101, 1));
  EXPECT_TEXT(open_error(tokens_from("tokens:" + path("odd.u16"), 8, 65536)), "has 101 bytes");
  write("odd.u32", random_bytes(102, 1));
  EXPECT_TEXT(open_error(tokens_from("tokens:" + path("odd.u32"), 8, 65536)), "multiple of 4");
  write("ids.txt", random_bytes(100, 1));
  EXPECT_TEXT(open_error(tokens_from("tokens:" + path("ids.txt"), 8, 256)), "'.txt'");
  EXPECT_TEXT(open_error(tokens_from("text:" + path("short"), 0, 256)), "samples of 0 tokens");
}

TEST_F(TokenFiles, ContextBeyondTheFileOverflowsNothing) {
  write("t", random_bytes(100, 1));
  EXPECT_TEXT(open_error(tokens_from("text:" + path("t"), INT64_MAX, 256)), "holds 100 tokens");
}

TEST_F(TokenFiles, FingerprintFollowsContentAndShapeButNotThePath) {
  const ByteVector bytes = random_bytes(1000, 1);
  write("a", bytes);
  write("b", bytes);
  ByteVector changed = bytes;
  changed[999] ^= 1;
  write("c", changed);
  const auto fingerprint = [&](const char* name, std::int64_t length) {
    return open_data(tokens_from("text:" + path(name), length, 256))->fingerprint();
  };
  EXPECT_EQ(fingerprint("a", 8), fingerprint("b", 8));
  EXPECT_NE(fingerprint("a", 8), fingerprint("c", 8));
  EXPECT_NE(fingerprint("a", 8), fingerprint("a", 9));
}

TEST(OpenData, UnknownKindNamesTheNearest) {
  EXPECT_TEXT(open_error(tokens_from("tokns:x", 8, 256)), "Did you mean 'tokens'?");
  EXPECT_TEXT(open_error(tokens_from("", 8, 256)),
              "known are generated, idx, cifar10, pairs, text, tokens");
}

TEST(OpenData, ArgumentsAndKindsMustFit) {
  EXPECT_TEXT(open_error(tokens_from("text", 8, 256)), "expected text:FILE");
  EXPECT_TEXT(open_error(tokens_from("text:", 8, 256)), "expected text:FILE");
  EXPECT_TEXT(open_error(tokens_from("generated:64", 8, 256)), "it takes tokens");
  EXPECT_TEXT(open_error(tokens_from("idx:/tmp", 8, 256)), "the model takes tokens");
  DataRequest images;
  images.source = "text:x";
  EXPECT_TEXT(open_error(images), "the model takes images");
  for (const char* bad : {"generated:", "generated:x", "generated:64x64", "generated:-8"}) {
    images.source = bad;
    EXPECT_TEXT(open_error(images), "expected generated:PIXELS");
  }
  images.source = "generated:4";
  EXPECT_TEXT(open_error(images), "from 8 to 4096 are possible");
}

TEST(OpenData, GeneratedImagesHaveTheAskedExtent) {
  DataRequest images;
  images.wanted = {.channels = 3, .height = 32, .width = 32, .classes = 10};
  images.source = "generated:64";
  const SampleSpec spec = open_data(images)->spec();
  EXPECT_EQ(spec.height, 64);
  EXPECT_EQ(spec.width, 64);
  EXPECT_EQ(spec.channels, 3);
}

TEST(OpenData, GeneratedServesBothKinds) {
  EXPECT_TRUE(open_data(tokens_from("generated", 8, 256))->loss_floor());
  EXPECT_TRUE(open_data({})->error_floor());
}

TEST(DataKinds, AreListedOnceEach) {
  std::vector<std::string> prefixes;
  for (const DataKind& kind : data_kinds()) {
    prefixes.push_back(kind.prefix);
    EXPECT_FALSE(kind.summary.empty());
    EXPECT_FALSE(kind.serves.empty());
  }
  EXPECT_EQ(prefixes,
            (std::vector<std::string>{"generated", "idx", "cifar10", "pairs", "text", "tokens"}));
}

TEST(SharedShakespeare, OpensAndSplits) {
  const auto file = shared_data("shakespeare/input.txt");
  if (!file) GTEST_SKIP() << "no shakespeare/input.txt among the shared data (HETEROPERF_SHARED)";
  const auto source = open_data(tokens_from("text:" + *file, 128, 512));
  EXPECT_GT(source->size(Split::train), 800000u);
  const double held_out = static_cast<double>(source->size(Split::validation)) * 128;
  EXPECT_NEAR(held_out / 1115394, 0.1, 0.01);
}

}  // namespace
}  // namespace heteroperf
