// samples.h5 of strangers: what it names outside of itself is never opened, and nothing in it makes
// room for more than its journal's columns.
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "results/record/record.hpp"
#include "results/record/samples_h5.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

/// A genuine archive, of which a test changes some part.
class HostileSamples : public ::testing::Test {
 protected:
  HostileSamples() {
    write_samples_h5(path_, journal_, record_);
    // Whoever opens it for reading waits for a writer for ever.
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
  }

  /// What is said of the archive once `change` was made to the open file.
  std::string said_after(const std::function<void(hid_t file)>& change) const {
    const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT_GE(file, 0);
    change(file);
    EXPECT_GE(H5Fclose(file), 0);
    return said();
  }
  std::string said() const { return compare_samples_h5(path_, journal_, record_); }

  /// Puts a dataset of `properties` at /steps/loss.
  static hid_t replaced_loss(hid_t file, hid_t properties, std::vector<hsize_t> extent,
                             hid_t type = H5T_IEEE_F64LE) {
    EXPECT_GE(H5Ldelete(file, "steps/loss", H5P_DEFAULT), 0);
    const hid_t space = H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr);
    const hid_t dataset =
        H5Dcreate2(file, "steps/loss", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    EXPECT_GE(dataset, 0);
    H5Sclose(space);
    return dataset;
  }
  void replace_loss(hid_t file, hid_t properties, hid_t type = H5T_IEEE_F64LE) const {
    H5Dclose(replaced_loss(file, properties, {rows_}, type));
    H5Pclose(properties);
  }

  /// Dataset properties of chunks that are deflated.
  hid_t deflated() const {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    EXPECT_GE(H5Pset_chunk(properties, 1, &rows_), 0);
    EXPECT_GE(H5Pset_shuffle(properties), 0);
    EXPECT_GE(H5Pset_deflate(properties, 3), 0);
    return properties;
  }
  /// /steps/loss has one chunk, with these stored bytes.
  std::string said_of_chunk(const std::string& stored) const {
    return said_after([&](hid_t file) {
      const hid_t properties = deflated(), dataset = replaced_loss(file, properties, {rows_});
      const hsize_t first = 0;
      EXPECT_GE(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &first, stored.size(), stored.data()), 0);
      H5Dclose(dataset);
      H5Pclose(properties);
    });
  }

  const TemporaryFolder folder_;
  const std::string path_ = (folder_.path() / "samples.h5").string();
  const std::string pipe_ = (folder_.path() / "pipe").string();
  const Journal journal_ = fixed_run().journal();
  const std::string record_ = build_record(journal_);
  const hsize_t rows_ = journal_.all<StepEvent>().size();
};

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string deflated_zeros(std::size_t bytes) {
  const std::string zeros(bytes, '\0');
  uLongf size = compressBound(bytes);
  std::string stored(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(stored.data()), &size,
                     reinterpret_cast<const Bytef*>(zeros.data()), zeros.size()),
            Z_OK);
  stored.resize(size);
  return stored;
}

TEST_F(HostileSamples, UnchangedItAgrees) {
  ASSERT_GT(rows_, 1u);
  EXPECT_EQ(said(), "");
  EXPECT_EQ(said_after([](hid_t) {}), "");
}

TEST_F(HostileSamples, WhatIsNoRegularFileIsNotOpened) {
  EXPECT_TRUE(mentions(compare_samples_h5(pipe_, journal_, record_), "no regular file"));
  EXPECT_TRUE(
      mentions(compare_samples_h5(folder_.path().string(), journal_, record_), "no regular file"));
}

TEST_F(HostileSamples, AHugeFileIsNotOpened) {
  std::filesystem::resize_file(path_, std::uintmax_t{1} << 34);  // a sparse one
  EXPECT_TRUE(mentions(said(), "bytes, where its journal's columns have")) << said();
}

TEST_F(HostileSamples, LinksAreNotFollowed) {
  EXPECT_TRUE(mentions(said_after([&](hid_t file) {
                         H5Ldelete(file, "steps/loss", H5P_DEFAULT);
                         H5Lcreate_soft("/steps/t_end_ns", file, "steps/loss", H5P_DEFAULT,
                                        H5P_DEFAULT);
                       }),
                       "loss is not stored as this program stores it (it is a link"));
  EXPECT_TRUE(mentions(said_after([&](hid_t file) {
                         H5Ldelete(file, "steps", H5P_DEFAULT);
                         H5Lcreate_external(pipe_.c_str(), "/steps", file, "steps", H5P_DEFAULT,
                                            H5P_DEFAULT);
                       }),
                       "steps is not stored"));
  EXPECT_TRUE(mentions(said_after([&](hid_t file) {
                         H5Ldelete(file, "record", H5P_DEFAULT);
                         H5Lcreate_external(pipe_.c_str(), "/record", file, "record", H5P_DEFAULT,
                                            H5P_DEFAULT);
                       }),
                       "record is not stored"));
}

TEST_F(HostileSamples, DataOfOtherFilesAreNotRead) {
  for (const std::string& outside : {pipe_, std::string("/etc/hostname")}) {
    const std::string words = said_after([&](hid_t file) {
      const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
      EXPECT_GE(H5Pset_external(properties, outside.c_str(), 0, H5F_UNLIMITED), 0);
      replace_loss(file, properties);
    });
    EXPECT_TRUE(mentions(words, "loss is not stored")) << words;
  }
  // The record, which has the layout that external data need.
  const std::string words = said_after([&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE), type = H5Tcopy(H5T_C_S1);
    EXPECT_GE(H5Pset_external(properties, pipe_.c_str(), 0, H5F_UNLIMITED), 0);
    H5Tset_size(type, record_.size());
    const hid_t space = H5Screate(H5S_SCALAR);
    H5Ldelete(file, "record", H5P_DEFAULT);
    const hid_t dataset =
        H5Dcreate2(file, "record", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    EXPECT_GE(dataset, 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(type);
    H5Pclose(properties);
  });
  EXPECT_TRUE(mentions(words, "record is not stored as this program stores it (its data lie"))
      << words;
}

/// A virtual dataset without end takes its extent from the file of its source.
TEST_F(HostileSamples, VirtualDatasetsAreNotRead) {
  const std::string words = said_after([&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t most = H5S_UNLIMITED, start = 0, one = 1;
    const hid_t space = H5Screate_simple(1, &rows_, &most),
                source = H5Screate_simple(1, &rows_, &most);
    EXPECT_GE(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, nullptr, &most, &one), 0);
    EXPECT_GE(H5Sselect_hyperslab(source, H5S_SELECT_SET, &start, nullptr, &most, &one), 0);
    EXPECT_GE(H5Pset_virtual(properties, space, pipe_.c_str(), "/loss", source), 0);
    H5Ldelete(file, "steps/loss", H5P_DEFAULT);
    const hid_t dataset =
        H5Dcreate2(file, "steps/loss", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    EXPECT_GE(dataset, 0);
    H5Dclose(dataset);
    H5Sclose(source);
    H5Sclose(space);
    H5Pclose(properties);
  });
  EXPECT_TRUE(mentions(words, "loss is not stored as this program stores it (its layout")) << words;
}

TEST_F(HostileSamples, OtherFiltersAreNotApplied) {
  const std::string words = said_after([&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    EXPECT_GE(H5Pset_chunk(properties, 1, &rows_), 0);
    // Of a plug-in that is looked for where somebody says.
    EXPECT_GE(H5Pset_filter(properties, 32000, H5Z_FLAG_OPTIONAL, 0, nullptr), 0);
    replace_loss(file, properties);
  });
  EXPECT_FALSE(words.empty());
  const std::string sums = said_after([&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    EXPECT_GE(H5Pset_chunk(properties, 1, &rows_), 0);
    EXPECT_GE(H5Pset_fletcher32(properties), 0);
    const hid_t dataset = replaced_loss(file, properties, {rows_});
    const std::vector<double> losses(rows_, 1.0);
    EXPECT_GE(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, losses.data()),
              0);
    H5Dclose(dataset);
    H5Pclose(properties);
  });
  EXPECT_TRUE(mentions(sums, "its filters are other ones")) << sums;
}

TEST_F(HostileSamples, OtherShapesAndTypesAreNotRead) {
  const std::vector<std::function<void(hid_t)>> changes = {
      [&](hid_t file) {  // two dimensions
        const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
        const std::array<hsize_t, 2> chunk{1, 1};
        H5Pset_chunk(properties, 2, chunk.data());
        H5Dclose(replaced_loss(file, properties, {rows_, 1}));
        H5Pclose(properties);
      },
      [&](hid_t file) {  // texts of any length
        const hid_t type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, H5T_VARIABLE);
        replace_loss(file, deflated(), type);
        H5Tclose(type);
      },
      [&](hid_t file) { replace_loss(file, deflated(), H5T_IEEE_F32LE); },
      [&](hid_t file) {  // nothing was ever written
        replace_loss(file, deflated());
      },
      [&](hid_t file) {  // a chunk of 4 GB
        const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t chunk = (hsize_t{1} << 29) - 1, most = H5S_UNLIMITED;
        H5Pset_chunk(properties, 1, &chunk);
        H5Ldelete(file, "steps/loss", H5P_DEFAULT);
        const hid_t space = H5Screate_simple(1, &rows_, &most);
        const hid_t dataset = H5Dcreate2(file, "steps/loss", H5T_IEEE_F64LE, space, H5P_DEFAULT,
                                         properties, H5P_DEFAULT);
        EXPECT_GE(dataset, 0);
        H5Dclose(dataset);
        H5Sclose(space);
        H5Pclose(properties);
      },
      [&](hid_t file) {  // a group where a column should be
        H5Ldelete(file, "steps/loss", H5P_DEFAULT);
        H5Gclose(H5Gcreate2(file, "steps/loss", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      },
      [&](hid_t file) {  // a version of thousands of numbers
        H5Adelete(file, "format_version");
        const hsize_t count = 4096;
        const hid_t space = H5Screate_simple(1, &count, nullptr);
        const hid_t attribute =
            H5Acreate2(file, "format_version", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
        EXPECT_GE(attribute, 0);
        H5Aclose(attribute);
        H5Sclose(space);
      }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    EXPECT_FALSE(said_after(changes[i]).empty()) << "change " << i;
  }
}

TEST_F(HostileSamples, AChunkInflatesToItsRowsAtMost) {
  constexpr std::size_t mebibyte = 1 << 20;
  // Many zeros of a short text, and so many that the text itself is too long.
  EXPECT_TRUE(mentions(said_of_chunk(deflated_zeros(rows_ * 8 * 100)), "another length"));
  EXPECT_TRUE(mentions(said_of_chunk(deflated_zeros(64 * mebibyte)), "a chunk is too long"));
  EXPECT_TRUE(mentions(said_of_chunk(deflated_zeros(rows_ * 8 - 1)), "another length"));
  EXPECT_TRUE(mentions(said_of_chunk("no stream"), "another length"));
  EXPECT_EQ(said_of_chunk(deflated_zeros(rows_ * 8)),
            "the column steps/loss differs from the journal");
}

TEST(ChunkValues, UndoWhatWasDone) {
  EXPECT_EQ(chunk_values("abcd", {}, 2, 2), "abcd");
  EXPECT_EQ(chunk_values("acbd", {.shuffle = true}, 2, 2), "abcd");
  EXPECT_EQ(chunk_values("abcd", {}, 3, 2), std::nullopt);
  EXPECT_EQ(chunk_values("abcd", {.shuffle = true}, 1, 2), std::nullopt);
  EXPECT_EQ(chunk_values("", {.deflate = true}, 1, 2), std::nullopt);
  EXPECT_EQ(chunk_values(deflated_zeros(6), {.shuffle = true, .deflate = true}, 3, 2),
            std::string(6, '\0'));
}

}  // namespace
}  // namespace heteroperf
