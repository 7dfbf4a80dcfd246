#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "metrics/base/random.hpp"
#include "tests/unit/workloads/data/sample_buffer.hpp"
#include "tests/unit/workloads/data/scratch_folder.hpp"
#include "tests/unit/workloads/data/shared_data.hpp"

namespace heteroperf {
namespace {

DataRequest images_from(const std::string& source) {
  DataRequest request;
  request.source = source;
  return request;
}

void append_word(ByteVector& bytes, std::uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  }
}

/// Image i has pixels that tell i; its label is i % classes.
ByteVector idx_images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns,
                      std::uint32_t first = 0) {
  ByteVector bytes;
  for (std::uint32_t word : {0x803u, count, rows, columns}) append_word(bytes, word);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t k = 0; k < rows * columns; ++k) {
      bytes.push_back(static_cast<std::uint8_t>(random_bits(first + i, k)));
    }
  }
  return bytes;
}

ByteVector idx_labels(std::uint32_t count, std::uint32_t classes) {
  ByteVector bytes;
  for (std::uint32_t word : {0x801u, count}) append_word(bytes, word);
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i % classes));
  return bytes;
}

ByteVector cifar_batch(std::uint64_t count, std::uint64_t first) {
  ByteVector bytes;
  for (std::uint64_t i = first; i < first + count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i % 10));
    for (int k = 0; k < 3072; ++k) {
      bytes.push_back(static_cast<std::uint8_t>(random_bits(i, k)));
    }
  }
  return bytes;
}

class IdxFolder : public ScratchFolder {
 protected:
  void write_pair(const std::string& prefix, std::uint32_t count, std::uint32_t first = 0) const {
    write(prefix + "images-idx3-ubyte", idx_images(count, 5, 4, first));
    write(prefix + "labels-idx1-ubyte", idx_labels(count, 3));
  }
  std::shared_ptr<const DataSource> open() const {
    return open_data(images_from("idx:" + folder_.string()));
  }
  std::string error() const { return open_error(images_from("idx:" + folder_.string())); }
};

using CifarFolder = ScratchFolder;

/// Hashes of all inputs of both splits; the test fails where one stands in both.
std::size_t count_distinct(const DataSource& source) {
  SampleBuffer sample(source.spec());
  std::map<Split, std::set<std::string>> seen;
  std::set<std::string> all;
  for (Split split : {Split::train, Split::validation}) {
    for (std::uint64_t i = 0; i < source.size(split); ++i) {
      seen[split].insert(sample.read(source, split, i).input_hash());
    }
    all.insert(seen[split].begin(), seen[split].end());
  }
  EXPECT_EQ(all.size(), seen[Split::train].size() + seen[Split::validation].size());
  return all.size();
}

TEST_F(IdxFolder, PrefixedPairsAreTheSplits) {
  write_pair("train-", 12);
  write_pair("t10k-", 6, 100);
  const auto source = open();
  EXPECT_EQ(source->spec(), (SampleSpec{.channels = 1, .height = 5, .width = 4, .classes = 3}));
  EXPECT_EQ(source->size(Split::train), 12u);
  EXPECT_EQ(source->size(Split::validation), 6u);
  SampleBuffer sample(source->spec());
  EXPECT_EQ(sample.read(*source, Split::validation, 4).targets[0], 1);
  EXPECT_EQ(count_distinct(*source), 18u);
}

TEST_F(IdxFolder, OnePairHoldsASixthOut) {
  write_pair("", 60);
  const auto source = open();
  EXPECT_EQ(source->size(Split::train), 50u);
  EXPECT_EQ(source->size(Split::validation), 10u);
  EXPECT_EQ(count_distinct(*source), 60u);
  EXPECT_EQ(open()->fingerprint(), source->fingerprint());
}

TEST_F(IdxFolder, RepeatedImagesStayOnOneSide) {
  ByteVector twice = idx_images(30, 5, 4);
  twice[7] = 60;
  twice.insert(twice.end(), twice.begin() + 16, twice.end());
  write("images-idx3-ubyte", twice);
  write("labels-idx1-ubyte", idx_labels(60, 3));
  EXPECT_EQ(count_distinct(*open()), 30u);
}

TEST_F(IdxFolder, GzipAndPlainAndDottedNamesAreEqual) {
  write_pair("train-", 20);
  const auto plain = open();
  std::filesystem::remove(path("train-images-idx3-ubyte"));
  std::filesystem::remove(path("train-labels-idx1-ubyte"));
  write_gzip("train-images.idx3-ubyte.gz", idx_images(20, 5, 4));
  write_gzip("train-labels-idx1-ubyte.gz", idx_labels(20, 3));
  EXPECT_EQ(open()->fingerprint(), plain->fingerprint());
  write_gzip("train-labels-idx1-ubyte.gz", idx_labels(20, 4));
  EXPECT_NE(open()->fingerprint(), plain->fingerprint());
}

TEST_F(IdxFolder, TrainingPixelsHaveZeroMeanAndUnitDeviation) {
  write_pair("", 60);
  const auto source = open();
  SampleBuffer sample(source->spec());
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    for (float x : sample.read(*source, Split::train, i).pixels) {
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  EXPECT_NEAR(sum / 1000, 0, 1e-5);
  EXPECT_NEAR(squares / 1000, 1, 1e-5);
}

TEST_F(IdxFolder, MissingFiles) {
  EXPECT_TEXT(error(), "holds no IDX files");
  write("images-idx3-ubyte", idx_images(6, 5, 4));
  EXPECT_TEXT(error(), "labels-idx1-ubyte");
  EXPECT_TEXT(open_error(images_from("idx:" + path("nowhere"))), "is not a folder");
  EXPECT_TEXT(open_error(images_from("idx:" + path("images-idx3-ubyte"))), "is not a folder");
}

TEST_F(IdxFolder, TruncatedHeader) {
  write_pair("", 6);
  write("images-idx3-ubyte", {0, 0, 8});
  EXPECT_TEXT(error(), "3 of 4 bytes of the magic number");
  write("images-idx3-ubyte", {0, 0, 8, 3, 0, 0});
  EXPECT_TEXT(error(), "2 of 4 bytes of the dimensions");
  write("images-idx3-ubyte", {});
  EXPECT_TEXT(error(), "0 of 4 bytes");
}

TEST_F(IdxFolder, TruncatedBodyAndTrailingBytes) {
  write_pair("", 6);
  truncate("images-idx3-ubyte", 1);
  EXPECT_TEXT(error(), "119 of 120 bytes of images");
  EXPECT_TEXT(error(), "offset 135");
  write_pair("", 6);
  truncate("labels-idx1-ubyte", 2);
  EXPECT_TEXT(error(), "4 of 6 bytes of labels");
  ByteVector longer = idx_images(6, 5, 4);
  longer.push_back(0);
  write("images-idx3-ubyte", longer);
  EXPECT_TEXT(error(), "more bytes follow");
}

TEST_F(IdxFolder, WrongMagicNamesBoth) {
  write_pair("", 6);
  write("images-idx3-ubyte", idx_labels(6, 3));
  EXPECT_TEXT(error(), "0x00000801");
  EXPECT_TEXT(error(), "0x00000803");
}

TEST_F(IdxFolder, CountMismatch) {
  write("images-idx3-ubyte", idx_images(6, 5, 4));
  write("labels-idx1-ubyte", idx_labels(7, 3));
  EXPECT_TEXT(error(), "6 images");
  EXPECT_TEXT(error(), "7 labels");
}

// A header that promises 2^32 images of 32768² pixels must not be believed before they are there.
TEST_F(IdxFolder, HugeCountsInTheHeaderReserveNothing) {
  ByteVector bytes, labels;
  for (std::uint32_t word : {0x803u, 0xffffffffu, 32768u, 32768u}) append_word(bytes, word);
  for (std::uint32_t word : {0x801u, 0xffffffffu}) append_word(labels, word);
  write("images-idx3-ubyte", bytes);
  write("labels-idx1-ubyte", labels);
  EXPECT_TEXT(error(), "the file ends after 0 of");
  bytes[8] = 255;
  write("images-idx3-ubyte", bytes);
  EXPECT_TEXT(error(), "have an extent of");
}

TEST_F(IdxFolder, TestLabelOutOfRangeAndOtherSize) {
  write_pair("train-", 6);
  write("t10k-images-idx3-ubyte", idx_images(5, 4, 4));
  write("t10k-labels-idx1-ubyte", idx_labels(5, 5));
  EXPECT_TEXT(error(), "test label 4");
  EXPECT_TEXT(error(), "training labels are 0 to 2");
  EXPECT_TEXT(error(), "5×4 images and tests on 4×4");
}

TEST_F(IdxFolder, TooFewImages) {
  write_pair("", 0);
  EXPECT_TEXT(error(), "holds no images");
  write("images-idx3-ubyte", idx_images(3, 5, 4));
  write("labels-idx1-ubyte", idx_labels(3, 1));
  EXPECT_TEXT(error(), "two classes");
}

TEST_F(IdxFolder, ADamagedLabelMakesNoClasses) {
  write("images-idx3-ubyte", idx_images(30, 5, 4));
  ByteVector labels = idx_labels(30, 3);
  labels[8 + 7] = 200;
  write("labels-idx1-ubyte", labels);
  EXPECT_TEXT(error(), "labels-idx1-ubyte' is 3");
  EXPECT_TEXT(error(), "label 7 is 200");
  labels[8 + 7] = 3;  // the next class: nothing tells it from a small one
  write("labels-idx1-ubyte", labels);
  EXPECT_EQ(open()->spec().classes, 4);
}

TEST_F(IdxFolder, ClassesMayCountFromOne) {
  write("images-idx3-ubyte", idx_images(30, 5, 4));
  ByteVector labels = idx_labels(30, 3);
  for (std::size_t i = 8; i < labels.size(); ++i) ++labels[i];
  write("labels-idx1-ubyte", labels);
  EXPECT_EQ(open()->spec().classes, 4);
}

TEST_F(IdxFolder, TruncatedOrDamagedGzip) {
  write("labels-idx1-ubyte", idx_labels(60, 3));
  const std::string name = "images-idx3-ubyte.gz";
  write_gzip(name, idx_images(60, 5, 4));
  truncate(name, 200);
  EXPECT_TEXT(error(), "is damaged at offset");
  write_gzip(name, idx_images(60, 5, 4));
  truncate(name, 4);  // all data are there, the length at the end is not
  EXPECT_TEXT(error(), "is damaged at offset");
  write_gzip(name, idx_images(60, 5, 4));
  std::fstream file(path(name), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-6, std::ios::end);  // within the check sum
  file.put(static_cast<char>(0x5a));
  file.close();
  EXPECT_TEXT(error(), "is damaged at offset");
}

TEST_F(CifarFolder, BatchesTrainAndTestBatchValidates) {
  for (int b = 1; b <= 5; ++b) {
    write("data_batch_" + std::to_string(b) + ".bin",
          cifar_batch(4, static_cast<std::uint64_t>(4 * b)));
  }
  write("test_batch.bin", cifar_batch(3, 100));
  const auto source = open_data(images_from("cifar10:" + folder_.string()));
  EXPECT_EQ(source->spec(), (SampleSpec{.channels = 3, .height = 32, .width = 32, .classes = 10}));
  EXPECT_EQ(source->size(Split::train), 20u);
  EXPECT_EQ(source->size(Split::validation), 3u);
  EXPECT_EQ(count_distinct(*source), 23u);
  SampleBuffer sample(source->spec());
  EXPECT_EQ(sample.read(*source, Split::train, 9).targets[0], 3);  // batch 3, record 1: number 13
}

TEST_F(CifarFolder, WithoutTestBatchASixthIsHeldOut) {
  write("data_batch_1.bin", cifar_batch(18, 0));
  const auto source = open_data(images_from("cifar10:" + folder_.string()));
  EXPECT_EQ(source->size(Split::train), 15u);
  EXPECT_EQ(source->size(Split::validation), 3u);
  EXPECT_EQ(count_distinct(*source), 18u);
}

TEST_F(CifarFolder, BadFiles) {
  const DataRequest request = images_from("cifar10:" + folder_.string());
  EXPECT_TEXT(open_error(request), "data_batch_1.bin' is missing");
  EXPECT_TEXT(open_error(images_from("cifar10:" + path("nowhere"))), "is not a folder");

  ByteVector bytes = cifar_batch(4, 0);
  bytes.pop_back();
  write("data_batch_1.bin", bytes);
  EXPECT_TEXT(open_error(request), "has 12291 bytes");
  EXPECT_TEXT(open_error(request), "multiple of 3073");
  write("data_batch_1.bin", {});
  EXPECT_TEXT(open_error(request), "has 0 bytes");

  bytes = cifar_batch(4, 0);
  bytes[2 * 3073] = 10;
  write("data_batch_1.bin", bytes);
  EXPECT_TEXT(open_error(request), "label 10");
  EXPECT_TEXT(open_error(request), "offset 6146");

  write("data_batch_1.bin", cifar_batch(4, 0));
  write("data_batch_3.bin", cifar_batch(4, 4));
  EXPECT_TEXT(open_error(request), "data_batch_2.bin' is missing");
}

TEST(SharedMnist, OpensAndSplits) {
  const auto folder = shared_data("mnist10k");
  if (!folder) GTEST_SKIP() << "no mnist10k among the shared data (HETEROPERF_SHARED)";
  const auto source = open_data(images_from("idx:" + *folder));
  EXPECT_EQ(source->spec(), (SampleSpec{.channels = 1, .height = 28, .width = 28, .classes = 10}));
  EXPECT_EQ(source->size(Split::train) + source->size(Split::validation), 10000u);
  EXPECT_EQ(source->size(Split::validation), 1666u);
  EXPECT_GE(count_distinct(*source), 9990u);
}

}  // namespace
}  // namespace heteroperf
