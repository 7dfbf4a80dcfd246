#include "suite/verbs/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  TemporaryFolder folder_;
};

TEST_F(OutputFileTest, NothingIsThereBeforeItIsWritten) {
  const OutputFile file(path("a"));
  EXPECT_FALSE(fs::exists(path("a")));
  ASSERT_TRUE(file.write("one"));
  ASSERT_TRUE(file.write("two"));
  EXPECT_EQ(read_text_file(path("a")), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
}

/// Whoever has the old file open reads it to its end: it is replaced, not changed.
TEST_F(OutputFileTest, TheOldFileIsReplacedAsAWhole) {
  std::ofstream(path("a")) << "old";
  std::ifstream open(path("a"));
  ASSERT_TRUE(OutputFile(path("a")).write("new"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(open), {}), "old");
  EXPECT_EQ(read_text_file(path("a")), "new");
}

TEST_F(OutputFileTest, ALinkStaysALink) {
  std::ofstream(path("a")) << "old";
  fs::create_symlink("a", path("link"));
  ASSERT_TRUE(OutputFile(path("link")).write("new"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text_file(path("a")), "new");
}

TEST_F(OutputFileTest, APipeIsWrittenTo) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] {
    std::ifstream pipe(path("pipe"));
    std::getline(pipe, read);
  });
  EXPECT_TRUE(OutputFile(path("pipe")).write("words\n"));
  reader.join();
  EXPECT_EQ(read, "words");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsRefusedAtOnce) {
  EXPECT_THROW(OutputFile(path("no/such/folder")), UserError);
  EXPECT_THROW(OutputFile{folder_.path().string()}, UserError);
  std::ofstream(path("file")) << "x";
  EXPECT_THROW(OutputFile(path("file/below")), UserError);
  EXPECT_THROW(OutputFile(path(std::string(300, 'n'))), UserError);
  EXPECT_FALSE(OutputFile("/dev/full").write("x"));
  EXPECT_TRUE(OutputFile("/dev/null").write("x"));
  EXPECT_TRUE(OutputFile().write("x"));
}

}  // namespace
}  // namespace heteroperf
