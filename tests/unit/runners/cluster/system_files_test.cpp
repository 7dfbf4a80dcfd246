#include "runners/cluster/system_files.hpp"

#include <unistd.h>

#include "tests/unit/runners/cluster/fake_root.hpp"

namespace heteroperf {
namespace {

using test::FakeRoot;

TEST(SystemFiles, TextIsTrimmedAndNamesItsSource) {
  FakeRoot root;
  root.write("proc/thing", "  some text \n");
  const auto text = root.files().text("proc/thing");
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "some text");
  EXPECT_EQ(text.source, "/proc/thing");
  EXPECT_EQ(text.status, Availability::ok);
}

TEST(SystemFiles, MissingAndEmptyFilesAreUnavailableWithAReason) {
  FakeRoot root;
  root.write("empty", " \n");
  const auto missing = root.files().text("nowhere"), empty = root.files().text("empty");
  EXPECT_FALSE(missing);
  EXPECT_EQ(missing.reason, "No such file or directory");
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.reason, "the file is empty");
  EXPECT_EQ(empty.status, Availability::unavailable);
}

TEST(SystemFiles, AnUnreadableFileIsDenied) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  FakeRoot root;
  root.write("secret", "text");
  std::filesystem::permissions(root.path() / "secret", std::filesystem::perms::none);
  EXPECT_EQ(root.files().text("secret").status, Availability::denied);
}

TEST(SystemFiles, IntegersAreCheckedWhole) {
  FakeRoot root;
  root.write("good", "42 of them\n").write("bad", "4x2\n").write("huge", "99999999999999999999\n");
  EXPECT_EQ(*root.files().integer("good"), 42);
  EXPECT_FALSE(root.files().integer("bad"));
  EXPECT_EQ(root.files().integer("bad").reason, "\"4x2\" is not a number");
  EXPECT_FALSE(root.files().integer("huge"));
}

TEST(SystemFiles, FieldsComeFromTheFirstMatchingLine) {
  FakeRoot root;
  root.write("f",
             "model\t\t: 7\nmodel name\t: Chip: fast\nmodel name\t: Other\nNAME=\"An OS\"\nE=\n");
  EXPECT_EQ(*root.files().field("f", "model name", ':'), "Chip: fast");
  EXPECT_EQ(*root.files().field("f", "NAME", '='), "An OS");
  EXPECT_FALSE(root.files().field("f", "E", '='));
  EXPECT_EQ(root.files().field("f", "absent", ':').reason, "no field \"absent\"");
}

}  // namespace
}  // namespace heteroperf
