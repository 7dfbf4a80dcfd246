#include "metrics/cache_folder.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class CacheFolders : public ::testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", home_.c_str(), 1); }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(home_);
  }
  const fs::path home_ =
      fs::temp_directory_path() / ("heteroperf-cache-test-" + std::to_string(getpid()));
};

TEST_F(CacheFolders, ANewOneIsPrivate) {
  const fs::path made = make_cache_folder("x-");
  EXPECT_EQ(made.parent_path(), home_ / "heteroperf");
  EXPECT_EQ(fs::status(made).permissions() & fs::perms::others_all, fs::perms::none);
  EXPECT_NE(make_cache_folder("x-"), made);
}

TEST_F(CacheFolders, OneThatEverybodyMayWriteToIsRefused) {
  fs::create_directories(home_ / "heteroperf");
  fs::permissions(home_ / "heteroperf", fs::perms::all);
  EXPECT_THROW(make_cache_folder("x-"), SystemError);
}

TEST_F(CacheFolders, WithoutAHomeItIsThisUsersOwn) {
  unsetenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", "", 1);
  EXPECT_EQ(cache_folder(), "/tmp/heteroperf-" + std::to_string(geteuid()));
  if (home != nullptr) setenv("HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace heteroperf
