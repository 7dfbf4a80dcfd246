#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "metrics/error.hpp"
#include "results/packing/run_archive.hpp"
#include "results/verify.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class PackingTest : public ::testing::Test {
 protected:
  PackingTest() : run_(store_run(folder_.path(), {.number = 1})) {}
  PackedArchive pack(const std::string& name,
                     PackedCheckpoints checkpoints = PackedCheckpoints::none) const {
    return pack_folder(run_, folder_.path() / name, checkpoints);
  }
  /// Unpacks with the system's tar; returns the run's new folder.
  fs::path unpacked(const std::string& name) const {
    const fs::path there = folder_.path() / ("from-" + name);
    fs::create_directories(there);
    const std::string command = "tar -xzf '" + (folder_.path() / name).string() + "' -C '" +
                                there.string() + "' >'" + (there / "said").string() + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(read_text_file(there / "said"), "");
    return there / run_.filename();
  }
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((run_ / name).parent_path());
    std::ofstream(run_ / name, std::ios::binary) << text;
  }

  TemporaryFolder folder_;
  fs::path run_;
};

TEST_F(PackingTest, VerifiesAfterUnpackingAndSaysTheSame) {
  const PackedArchive packed = pack("a.tar.gz");
  EXPECT_GE(packed.files, 5u);
  const fs::path there = unpacked("a.tar.gz");
  EXPECT_EQ(read_text_file(there / "record.json"), read_text_file(run_ / "record.json"));
  const Verification before = verify(run_), after = verify(there);
  EXPECT_TRUE(after.ok()) << after.to_json();
  ASSERT_EQ(after.checks.size(), before.checks.size() + 1);
  EXPECT_EQ(after.checks[0].name, "manifest");
  for (std::size_t i = 0; i < before.checks.size(); ++i) {
    EXPECT_EQ(after.checks[i + 1].name, before.checks[i].name);
    EXPECT_EQ(after.checks[i + 1].actual, before.checks[i].actual);
  }
}

TEST_F(PackingTest, TheManifestIsWhatSha256sumReads) {
  write("a\nb\\c", "odd");
  pack("a.tar.gz");
  const std::string command = "cd '" + unpacked("a.tar.gz").string() +
                              "' && sha256sum --check --strict --quiet " + manifest_name;
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(PackingTest, EqualFilesGiveEqualBytes) {
  pack("a.tar.gz");
  for (const auto& entry : fs::directory_iterator(run_)) {
    fs::last_write_time(entry.path(), fs::file_time_type{} + std::chrono::hours(1));
    ASSERT_EQ(chmod(entry.path().c_str(), 0600), 0);
  }
  const fs::path copy = folder_.path() / "other" / run_.filename();
  fs::create_directories(copy.parent_path());
  fs::copy(run_, copy, fs::copy_options::recursive);
  const PackedArchive again =
      pack_folder(copy, folder_.path() / "b.tar.gz", PackedCheckpoints::none);
  EXPECT_EQ(read_text_file(folder_.path() / "a.tar.gz"),
            read_text_file(folder_.path() / "b.tar.gz"));
  write("rank-0.log", "x");
  EXPECT_NE(pack("c.tar.gz").sha256, again.sha256);
}

TEST_F(PackingTest, WhatChangedAfterUnpackingIsFound) {
  write("rank-0.log", "all is well\n");  // verified by the manifest alone
  pack("a.tar.gz");
  const fs::path there = unpacked("a.tar.gz");
  edit_file(there / "rank-0.log", "all", "All");
  fs::remove(there / "config.json");
  const std::string wrong = manifest_contradictions(there);
  EXPECT_NE(wrong.find("rank-0.log has another checksum"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("config.json is missing"), std::string::npos) << wrong;
  EXPECT_FALSE(verify(there).ok());
}

TEST_F(PackingTest, AManifestCannotPointOutOfTheFolder) {
  const std::string zeros(64, '0');
  write(manifest_name,
        zeros + "  /etc/passwd\n" + zeros + "  ../x\n" + zeros + "  a/../../x\nshort\n");
  const std::string wrong = manifest_contradictions(run_);
  EXPECT_EQ(std::count(wrong.begin(), wrong.end(), '\n'), 4) << wrong;
  EXPECT_EQ(wrong.find("checksum"), std::string::npos) << wrong;
}

TEST_F(PackingTest, CheckpointsOnlyWhenAskedFor) {
  write("checkpoints/step-1/weights.safetensors", "bytes");
  write(".record.json.tmp-17", "half");
  fs::create_symlink("/etc/passwd", run_ / "link");
  const PackedArchive without = pack("a.tar.gz");
  const PackedArchive with = pack("b.tar.gz", PackedCheckpoints::all);
  EXPECT_EQ(with.files, without.files + 1);
  EXPECT_TRUE(fs::exists(unpacked("b.tar.gz") / "checkpoints/step-1/weights.safetensors"));
  EXPECT_FALSE(fs::exists(unpacked("a.tar.gz") / "link"));
  EXPECT_FALSE(fs::exists(unpacked("a.tar.gz") / ".record.json.tmp-17"));
}

TEST_F(PackingTest, NamesOfAnyBytesSurvive) {
  const std::string longest(200, 'n');
  for (const std::string& name : {std::string("\xff\xfe name"), std::string("a\nb"), longest,
                                  std::string("d\xc3\xa9j\xc3\xa0 'vu'")}) {
    write(name, name);
  }
  pack("a.tar.gz");
  const fs::path there = unpacked("a.tar.gz");
  EXPECT_EQ(read_text_file(there / "\xff\xfe name"), "\xff\xfe name");
  EXPECT_EQ(read_text_file(there / longest), longest);
  EXPECT_EQ(manifest_contradictions(there), "");
}

TEST_F(PackingTest, ArchivesInOddPlacesAreRefused) {
  EXPECT_THROW(pack_folder(run_, run_ / "a.tar.gz", PackedCheckpoints::none), UserError);
  EXPECT_THROW(
      pack_folder(run_, run_ / ".." / run_.filename() / "a.tar.gz", PackedCheckpoints::none),
      UserError);
  EXPECT_THROW(pack("no/such/folder.tar.gz"), SystemError);
  EXPECT_THROW(pack_folder(run_, "/dev/full/a.tar.gz", PackedCheckpoints::none), SystemError);
}

TEST_F(PackingTest, NothingHalfWrittenIsLeft) {
  const fs::path taken = folder_.path() / "taken.tar.gz";
  fs::create_directories(taken / "full");
  EXPECT_THROW(pack("taken.tar.gz"), SystemError);
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace heteroperf
