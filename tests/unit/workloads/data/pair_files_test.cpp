#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/workloads/data/scratch_folder.hpp"
#include "workloads/data/data_source.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t vocabulary = 40, end_token = 39, image_mark = 38, places = 4;

void append_number(ByteVector& bytes, std::uint32_t value, int width) {
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(value >> shift));
  }
}

/// An IDX file of elements of `width` bytes.
ByteVector idx_of(std::uint8_t type, const std::vector<std::uint32_t>& shape,
                  const std::vector<std::uint32_t>& values, int width) {
  ByteVector bytes{0, 0, type, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t extent : shape) append_number(bytes, extent, 4);
  for (const std::uint32_t value : values) append_number(bytes, value, width);
  return bytes;
}

class PairFolder : public ScratchFolder {
 protected:
  /// Image i is all i, of 3x2x2 pixels.
  void write_images(std::uint32_t count, const std::string& prefix = "") const {
    std::vector<std::uint32_t> pixels;
    for (std::uint32_t i = 0; i < 12 * count; ++i) pixels.push_back(i / 12);
    write(prefix + "images-idx4-ubyte", idx_of(8, {count, 3, 2, 2}, pixels, 1));
  }
  /// Texts of six tokens.
  void write_texts(const std::vector<std::vector<std::uint32_t>>& texts,
                   const std::string& prefix = "") const {
    std::vector<std::uint32_t> tokens;
    for (std::vector<std::uint32_t> text : texts) {
      text.resize(6, end_token);
      tokens.insert(tokens.end(), text.begin(), text.end());
    }
    const auto count = static_cast<std::uint32_t>(texts.size());
    write(prefix + "texts-idx2-short", idx_of(0x0b, {count, 6}, tokens, 2));
  }
  void write_counts(const std::vector<std::uint32_t>& counts) const {
    write("counts-idx1-ubyte", idx_of(8, {static_cast<std::uint32_t>(counts.size())}, counts, 1));
  }

  DataRequest request(SampleKind kind, std::int64_t images = 0) const {
    DataRequest request;
    request.source = "pairs:" + folder_.string();
    request.wanted = {.kind = kind,
                      .channels = 3,
                      .height = 2,
                      .width = 2,
                      .length = 16,
                      .classes = vocabulary,
                      .image_places = kind == SampleKind::captions ? places : 0,
                      .images = images};
    return request;
  }
};

struct ReadSample {
  std::vector<float> pixels;
  std::vector<std::int64_t> tokens, targets;
};

/// All samples of both splits, by their first token of a text.
std::map<std::int64_t, ReadSample> read_all(const DataSource& source) {
  std::map<std::int64_t, ReadSample> all;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t i = 0; i < source.size(split); ++i) {
      ReadSample sample;
      sample.pixels.resize(source.images(split, i) * source.spec().pixels());
      sample.tokens.resize(source.spec().length);
      sample.targets.resize(source.spec().targets());
      source.read(split, i, {sample.pixels, sample.tokens, sample.targets, {}});
      const auto first = std::ranges::find_if(sample.tokens, [](auto t) { return t < image_mark; });
      EXPECT_TRUE(all.emplace(*first, sample).second);
    }
  }
  return all;
}

std::vector<std::vector<std::uint32_t>> short_texts(std::uint32_t count) {
  std::vector<std::vector<std::uint32_t>> texts;
  for (std::uint32_t i = 0; i < count; ++i) texts.push_back({i, 30, i + 1});
  return texts;
}

TEST_F(PairFolder, APairHasItsImageAndItsText) {
  write_images(12);
  write_texts(short_texts(12));
  const auto source = open_data(request(SampleKind::pairs));
  EXPECT_EQ(source->spec(), (SampleSpec{SampleKind::pairs, 3, 2, 2, 6, vocabulary}));
  EXPECT_EQ(source->size(Split::validation), 2u);
  EXPECT_EQ(source->size(Split::train), 10u);
  EXPECT_FALSE(source->loss_floor());
  const auto all = read_all(*source);
  ASSERT_EQ(all.size(), 12u);
  for (const auto& [first, sample] : all) {
    EXPECT_EQ(sample.tokens,
              (std::vector<std::int64_t>{first, 30, first + 1, end_token, end_token, end_token}));
    // Later images are brighter, whatever the mean.
    EXPECT_EQ(std::ranges::count(sample.pixels, sample.pixels[0]), 12);
    if (first == 0) continue;
    EXPECT_GT(sample.pixels[0], all.at(first - 1).pixels[0]);
  }
  EXPECT_NE(source->fingerprint(), open_data(request(SampleKind::captions))->fingerprint());
}

// Each image_mark becomes the places of an image; a text without marks has them in front.
TEST_F(PairFolder, ImagesStandWhereTheirTextSays) {
  write_images(13);
  auto texts = short_texts(12);
  texts[0] = {0, image_mark, 5, image_mark};
  texts[1] = {1, 2};
  texts[2] = {image_mark, 2};
  write_texts(texts);
  std::vector<std::uint32_t> counts(12, 1);
  counts[0] = 2;
  write_counts(counts);
  const auto source = open_data(request(SampleKind::captions));
  EXPECT_EQ(source->spec().images, 2);
  EXPECT_EQ(source->spec().fewest_images, 1);
  const auto all = read_all(*source);
  const std::vector<std::int64_t> here(places, image_mark), none(places, -1);
  const auto joined = [&](std::vector<std::vector<std::int64_t>> parts, std::int64_t rest) {
    std::vector<std::int64_t> result;
    for (const auto& part : parts) result.insert(result.end(), part.begin(), part.end());
    result.resize(16, rest);
    return result;
  };
  EXPECT_EQ(all.at(0).tokens, joined({{0}, here, {5}, here}, end_token));
  EXPECT_EQ(all.at(0).targets, joined({}, -1));
  EXPECT_EQ(all.at(0).pixels.size(), 24u);
  EXPECT_EQ(all.at(1).tokens, joined({here, {1, 2}}, end_token));
  EXPECT_EQ(all.at(1).targets, joined({none, {2, end_token}}, -1));
  EXPECT_EQ(all.at(2).tokens, joined({here, {2}}, end_token));
  EXPECT_EQ(all.at(2).targets, joined({none, {end_token}}, -1));
  EXPECT_GT(all.at(1).pixels[0], all.at(0).pixels[12]);
}

TEST_F(PairFolder, SplitsAreThoseOfTheNames) {
  write_images(4, "train-");
  write_texts(short_texts(4), "train-");
  write_images(2, "t10k-");
  write_texts({{20}, {21}}, "t10k-");
  const auto source = open_data(request(SampleKind::pairs));
  EXPECT_EQ(source->size(Split::train), 4u);
  EXPECT_EQ(source->size(Split::validation), 2u);
  EXPECT_EQ(read_all(*source).size(), 6u);
}

TEST_F(PairFolder, EverythingThatDoesNotFitIsTold) {
  const auto expect = [&](const DataRequest& asked, std::vector<const char*> words) {
    const std::string problems = open_error(asked);
    for (const char* word : words) {
      EXPECT_NE(problems.find(word), std::string::npos) << word << " in " << problems;
    }
  };
  expect(request(SampleKind::pairs), {"holds no pairs"});
  write_texts(short_texts(12));
  expect(request(SampleKind::pairs), {"has no images", "looked for images-idx4-ubyte"});
  write_images(11);
  expect(request(SampleKind::pairs), {"has 11 images", "12 belong to the 12 texts"});
  write_images(12);
  auto texts = short_texts(12);
  texts[3] = {3, 99};
  texts[5] = {5, image_mark, image_mark};
  texts[6] = {6, 7, 8, 9, 10, 11};
  write_texts(texts);
  DataRequest captions = request(SampleKind::captions);
  captions.wanted.height = 5;
  captions.wanted.length = 9;
  expect(captions,
         {"token 1 of text 3", "is 99", "images of", "are 3x2x2", "for 3x5x2", "text 5 of",
          "has places for 2 images", "has 11 tokens with the places", "model.sequence_length=11"});
  texts = short_texts(12);
  write_texts(texts);
  std::vector<std::uint32_t> counts(12, 1);
  counts[0] = 0;
  counts[1] = 2;
  write_counts(counts);
  expect(request(SampleKind::pairs), {"have 0 to 2 images", "a pair has one"});
  expect(request(SampleKind::captions, 1), {"has 2 images", "takes 1 at most"});
  write_counts({1, 1});
  expect(request(SampleKind::captions), {"counts the images of 2 samples", "has 12 texts"});
  write("texts-idx2-short", idx_of(0x0b, {12, 6}, {1, 2, 3}, 2));
  expect(request(SampleKind::pairs), {"texts"});
}

}  // namespace
}  // namespace heteroperf
