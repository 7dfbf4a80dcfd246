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

TEST_F(CacheFolders, ANewOneIsPrivateAndGoesWithItsOwner) {
  fs::path gone;
  {
    const PrivateFolder made("x-"), another("x-");
    gone = made.path();
    EXPECT_EQ(gone.parent_path(), home_ / "heteroperf");
    EXPECT_EQ(fs::status(gone).permissions() & (fs::perms::group_all | fs::perms::others_all),
              fs::perms::none);
    EXPECT_NE(another.path(), gone);
    fs::create_directories(gone / "with/something");
  }
  EXPECT_FALSE(fs::exists(gone));
}

TEST_F(CacheFolders, OneThatEverybodyMayWriteToIsRefused) {
  fs::create_directories(home_ / "heteroperf");
  fs::permissions(home_ / "heteroperf", fs::perms::all);
  EXPECT_THROW(PrivateFolder("x-"), SystemError);
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
