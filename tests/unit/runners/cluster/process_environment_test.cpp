#include "runners/cluster/machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace heteroperf {
namespace {

TEST(SteeringVariables, KeepsTheAllowListAndRedactsSecrets) {
  const std::array<const char*, 12> environment = {
      "HOME=/root",       "OMP_NUM_THREADS=2",    "NCCL_DEBUG=",      "SLURM_JWT_TOKEN=abc",
      "HETEROPERF_KEY=k", "OMPI_password=hidden", "PATH=/bin",        "LD_LIBRARY_PATH=/a:/b=c",
      "MY_OMP_NUM=3",     "no-equals-sign",       "UCX_SecretWord=1", nullptr};
  const auto kept = steering_variables(environment.data());
  const std::map<std::string, std::string> expected = {
      {"OMP_NUM_THREADS", "2"},        {"NCCL_DEBUG", ""},
      {"SLURM_JWT_TOKEN", "redacted"}, {"HETEROPERF_KEY", "redacted"},
      {"OMPI_password", "redacted"},   {"LD_LIBRARY_PATH", "/a:/b=c"},
      {"UCX_SecretWord", "redacted"}};
  EXPECT_EQ(kept, expected);
}

TEST(SteeringVariables, AnEmptyEnvironmentIsEmpty) {
  EXPECT_TRUE(steering_variables(nullptr).empty());
}

TEST(LoadedLibraries, NamesTheCLibraryWithItsBuildId) {
  const auto libraries = loaded_libraries();
  const auto libc = std::ranges::find_if(libraries, [](const LoadedLibrary& l) {
    return l.path.find("libc.so") != std::string::npos;
  });
  ASSERT_NE(libc, libraries.end());
  ASSERT_GE(libc->build_id.size(), 32U);
  EXPECT_TRUE(std::ranges::all_of(libc->build_id, [](unsigned char c) {
    return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
  })) << libc->build_id;
}

}  // namespace
}  // namespace heteroperf
