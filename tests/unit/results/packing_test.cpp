#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/packing/run_archive.hpp"
#include "results/packing/unpacked_archive.hpp"
#include "results/record/verify.hpp"
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

  /// Adds entries to what `pack` would write, or writes them alone.
  struct OddEntry {
    std::string name, data;
    unsigned type = AE_IFREG;
    std::string target = {};
  };
  fs::path odd_archive(const std::vector<OddEntry>& entries, bool with_run = true) const {
    const fs::path path = folder_.path() / "odd.tar.gz";
    archive* out = archive_write_new();
    archive_write_add_filter_gzip(out);
    archive_write_set_format_gnutar(out);
    archive_write_open_filename(out, path.c_str());
    if (with_run) {
      for (const auto& file : fs::directory_iterator(unpacked_run())) {
        add(out, {run_.filename().string() + "/" + file.path().filename().string(),
                  read_text_file(file.path())});
      }
    }
    for (const OddEntry& entry : entries) add(out, entry);
    archive_write_free(out);
    return path;
  }
  /// One header of the ustar format (POSIX pax(1)) that promises 8 GiB, and no data.
  fs::path lying_archive() const {
    std::string header(512, '\0');
    header.replace(0, 10, "run/liar.x");
    header.replace(100, 7, "0000644");
    header.replace(124, 11, "77777777777");
    header[156] = '0';
    header.replace(257, 8,
                   std::string("ustar\0"
                               "00",
                               8));
    return compressed(header);
  }
  /// A file of GNU's old sparse format (tar.info, "Old GNU Format") of 1 KiB, whose one byte of
  /// data stands at 8 GiB.
  fs::path sparse_archive() const {
    std::string header(512, '\0');
    header.replace(0, 10, "run/gaps.x");
    header.replace(100, 7, "0000644");
    header.replace(124, 11, "00000000001");
    header[156] = 'S';
    header.replace(257, 8, "ustar  \0", 8);
    header.replace(386, 11, "77777777777");
    header.replace(398, 11, "00000000001");
    header.replace(483, 11, "00000002000");
    return compressed(header);
  }
  /// With its checksum, a block of data and the end of an archive.
  fs::path compressed(std::string header) const {
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const unsigned char c : header) sum += c;
    header.replace(148, 6, fmt::format("{:06o}", sum));
    header[154] = '\0';
    const fs::path tar = folder_.path() / "liar.tar";
    std::ofstream(tar, std::ios::binary) << header << std::string(3 * 512, '\0');
    EXPECT_EQ(std::system(("gzip -f '" + tar.string() + "'").c_str()), 0);
    return tar.string() + ".gz";
  }
  std::string damage_of(const fs::path& path, UnpackingLimits limits = {}) const {
    return UnpackedArchive(path, limits).damage();
  }

  TemporaryFolder folder_;
  fs::path run_;

 private:
  fs::path unpacked_run() const {
    if (!fs::exists(folder_.path() / "from-whole.tar.gz")) {
      pack("whole.tar.gz");
      return unpacked("whole.tar.gz");
    }
    return folder_.path() / "from-whole.tar.gz" / run_.filename();
  }
  static void add(archive* out, const OddEntry& odd) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, odd.name.c_str());
    archive_entry_set_filetype(entry, odd.type);
    archive_entry_set_perm(entry, 0644);
    if (odd.type == AE_IFLNK) archive_entry_set_symlink(entry, odd.target.c_str());
    if (odd.type == AE_IFREG && !odd.target.empty()) {
      archive_entry_set_hardlink(entry, odd.target.c_str());
    } else {
      archive_entry_set_size(entry, static_cast<la_int64_t>(odd.data.size()));
    }
    archive_write_header(out, entry);
    archive_write_data(out, odd.data.data(), odd.data.size());
    archive_entry_free(entry);
  }
};

/// The cache folder of a test, empty again after every archive.
class UnpackingTest : public PackingTest {
 protected:
  UnpackingTest() { setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1); }
  ~UnpackingTest() override {
    for (const auto& left : fs::directory_iterator(cache_.path() / "heteroperf")) {
      ADD_FAILURE() << left.path() << " is left";
    }
    unsetenv("XDG_CACHE_HOME");
  }
  TemporaryFolder cache_;
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
  EXPECT_EQ(manifest_contradictions(there), "config.json is missing");
  fs::copy_file(run_ / "config.json", there / "config.json");
  EXPECT_EQ(manifest_contradictions(there), "rank-0.log has another checksum");
  EXPECT_FALSE(verify(there).ok());
}

TEST_F(PackingTest, AManifestCannotPointOutOfTheFolder) {
  const std::string zeros(64, '0');
  for (const std::string& line :
       {zeros + "  /etc/passwd", zeros + "  ../x", zeros + "  a/../../x", std::string("short")}) {
    write(manifest_name, line + "\n");
    EXPECT_EQ(manifest_contradictions(run_), "'" + line + "' names no file of the folder");
  }
}

/// Each line would hash the file again.
TEST_F(PackingTest, AManifestListsAFileOnce) {
  fs::create_directory_symlink(".", run_ / "again");
  const std::string line = std::string(64, '0') + "  record.json\n";
  const std::string other_name = std::string(64, '0') + "  again/again/record.json\n";
  write(manifest_name, line + line);
  EXPECT_EQ(manifest_contradictions(run_), "record.json is listed twice");
  EXPECT_EQ(manifest_names(run_), std::set<std::string>{"record.json"});
  write(manifest_name, std::string(64, '0') + "  none/../record.json\n");
  EXPECT_EQ(manifest_contradictions(run_), "none/../record.json has another checksum");
  write(manifest_name, line + other_name);
  EXPECT_EQ(manifest_contradictions(run_), "again/again/record.json is listed twice");
}

TEST_F(PackingTest, LinesOfAManifestAreShort) {
  write(manifest_name, std::string(1 << 20, '0'));
  EXPECT_EQ(manifest_contradictions(run_), "a line of MANIFEST.sha256 is too long");
}

TEST_F(PackingTest, NamesThatCannotBeUnpackedAreRefused) {
  fs::path deep;
  for (int i = 0; i < 15; ++i) deep /= "d";
  write(deep, "x");  // and the run's folder
  EXPECT_NO_THROW(pack("a.tar.gz"));
  write(deep.parent_path() / "e" / "f", "x");
  EXPECT_THROW(pack("b.tar.gz"), UserError);
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

TEST_F(UnpackingTest, WhatWasPackedVerifies) {
  const PackedArchive packed = pack("a.tar.gz");
  EXPECT_TRUE(is_archive_file(packed.file));
  EXPECT_FALSE(is_archive_file(run_ / "record.json"));
  EXPECT_FALSE(is_archive_file(run_));
  const UnpackedArchive there(packed.file);
  EXPECT_EQ(there.damage(), "");
  EXPECT_EQ(there.folder().filename(), run_.filename());
  EXPECT_TRUE(verify(there.folder()).ok());
}

TEST_F(UnpackingTest, AFolderPackedAgainByTarIsTaken) {
  pack("a.tar.gz");
  const fs::path parent = unpacked("a.tar.gz").parent_path();
  const fs::path again = folder_.path() / "again.tar.gz";
  const std::string command =
      "tar -czf '" + again.string() + "' -C '" + parent.string() + "' " + run_.filename().string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(damage_of(again), "");
}

TEST_F(UnpackingTest, TruncatedAnywhereIsDamage) {
  const std::string whole = read_text_file(pack("a.tar.gz").file);
  const fs::path part = folder_.path() / "part.tar.gz";
  std::vector<std::size_t> lengths{2, 3, 9, 10, 11, 20};
  for (std::size_t bytes = 100; bytes + 64 < whole.size(); bytes += whole.size() / 100) {
    lengths.push_back(bytes);
  }
  for (const std::size_t bytes : lengths) {
    std::ofstream(part, std::ios::binary) << whole.substr(0, bytes);
    EXPECT_NE(damage_of(part), "") << bytes << " of " << whole.size();
  }
}

TEST_F(UnpackingTest, AChangedByteIsFound) {
  const std::string whole = read_text_file(pack("a.tar.gz").file);
  const std::string manifest = read_text_file(unpacked("a.tar.gz") / manifest_name);
  const fs::path changed = folder_.path() / "changed.tar.gz";
  std::size_t found = 0;
  for (std::size_t at = 0; at < whole.size(); at += whole.size() / 60) {
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ 0x10);
    std::ofstream(changed, std::ios::binary) << text;
    try {
      const UnpackedArchive there(changed);
      if (!there.damage().empty() || !verify(there.folder()).ok()) {
        ++found;
        continue;
      }
      // Some bits of gzip's headers, code tables and trailer are of no effect.
      EXPECT_EQ(read_text_file(there.folder() / manifest_name), manifest) << at;
    } catch (const UserError&) {
      ++found;
    }
  }
  EXPECT_GT(found, 50u);
}

TEST_F(UnpackingTest, NothingLeavesTheFolder) {
  const std::string run = run_.filename().string();
  const fs::path outside = folder_.path() / "outside";
  for (const std::string& name :
       {std::string("../outside"), run + "/../../outside", run + "/a/../../../outside",
        outside.string(), std::string("..")}) {
    EXPECT_NE(damage_of(odd_archive({{name, "x"}})).find("does not lie in"), std::string::npos)
        << name;
    EXPECT_FALSE(fs::exists(outside)) << name;
  }
  EXPECT_NE(damage_of(odd_archive({{"beside/x", "x"}})).find("lies beside"), std::string::npos);
}

TEST_F(UnpackingTest, LinksAndDevicesAreRefused) {
  const std::string run = run_.filename().string();
  const std::vector<std::vector<OddEntry>> archives{
      {{run + "/link", "", AE_IFLNK, "/etc/passwd"}},
      {{run + "/link", "", AE_IFLNK, ".."}, {run + "/link/x", "x"}},
      {{run + "/hard", "", AE_IFREG, "/etc/passwd"}},
      {{run + "/pipe", "", AE_IFIFO}},
      {{run + "/device", "", AE_IFCHR}},
  };
  for (const auto& entries : archives) {
    EXPECT_NE(damage_of(odd_archive(entries)).find("is a link or a device"), std::string::npos)
        << entries[0].name;
  }
}

TEST_F(UnpackingTest, TwiceTheSameNameIsRefused) {
  const std::string run = run_.filename().string();
  EXPECT_NE(damage_of(odd_archive({{run + "/record.json", "{}"}})).find("twice"),
            std::string::npos);
  EXPECT_NE(damage_of(odd_archive({{run + "/record.json/x", "{}"}})).find("twice"),
            std::string::npos);
}

TEST_F(UnpackingTest, WhatTheManifestDoesNotListIsDamage) {
  const std::string run = run_.filename().string();
  EXPECT_EQ(damage_of(odd_archive({{run + "/more.txt", "x"}})), "more.txt is not in the manifest");
  EXPECT_EQ(damage_of(odd_archive({})), "");
}

TEST_F(UnpackingTest, HugeSizesAndNumbersAreRefusedBeforeTheyAreWritten) {
  const std::string run = run_.filename().string();
  const std::string zeros(1 << 20, '\0');
  const fs::path bomb = odd_archive({{run + "/a", zeros}, {run + "/b", zeros}});
  EXPECT_EQ(damage_of(bomb), "a and 1 more are not in the manifest");
  const UnpackingLimits tight{.least_bytes = 3 << 19, .times_archive = 1};
  EXPECT_NE(damage_of(bomb, tight).find("goes beyond 1572864 bytes"), std::string::npos);
  EXPECT_EQ(damage_of(bomb, {.least_entries = 5, .bytes_per_entry = 1 << 20}),
            "it has too many files and folders");
  EXPECT_NE(damage_of(lying_archive()).find("goes beyond"), std::string::npos);
}

TEST_F(UnpackingTest, FoldersCountAsFilesDo) {
  const fs::path deep = odd_archive({{"run/1/2/3/4/5/6/7/8/9", "", AE_IFDIR}}, false);
  EXPECT_EQ(damage_of(deep, {.least_entries = 5, .bytes_per_entry = 1 << 20}),
            "it has too many files and folders");
  const fs::path parents = odd_archive({{"run/1/2/3/4/5/6/7/8/9/file", "x"}}, false);
  EXPECT_EQ(damage_of(parents, {.least_entries = 5, .bytes_per_entry = 1 << 20}),
            "it has too many files and folders");
}

TEST_F(UnpackingTest, NamesBeyondThoseOfPackAreRefused) {
  std::string deep = "run";
  for (int i = 0; i < 16; ++i) deep += "/d";
  const std::string long_name = "run/" + std::string(250, 'a') + "/" + std::string(250, 'b') + "/" +
                                std::string(250, 'c') + "/" + std::string(250, 'd') + "/" +
                                std::string(250, 'e');
  const std::string long_part = "run/" + std::string(256, 'a');
  for (const std::string& name : {deep, long_name, long_part}) {
    EXPECT_EQ(damage_of(odd_archive({{name, "x"}}, false)),
              "a name in it is longer than any that `pack` writes");
  }
}

TEST_F(UnpackingTest, GapsOfSparseFilesAreNotWrittenBehindTheirSize) {
  const UnpackedArchive unpacked(sparse_archive());
  EXPECT_NE(unpacked.damage(), "");
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache_.path())) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LE(bytes, 1u << 21);
}

TEST_F(UnpackingTest, ForeignFilesAreNoArchives) {
  const fs::path file = folder_.path() / "foreign.tar.gz";
  std::ofstream(file) << "\x1f\x8b and then words";
  EXPECT_THROW(UnpackedArchive{file}, UserError);
  const std::string command = "echo words | gzip > '" + file.string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_THROW(UnpackedArchive{file}, UserError);
  EXPECT_THROW(UnpackedArchive{odd_archive({{"some/thing.txt", "x"}}, false)}, UserError);
  EXPECT_THROW(UnpackedArchive{odd_archive({{"run/MANIFEST.sha256", ""}}, false)}, UserError);
  EXPECT_THROW(UnpackedArchive{odd_archive({}, false)}, UserError);
  EXPECT_THROW(UnpackedArchive{folder_.path() / "none.tar.gz"}, std::exception);
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
