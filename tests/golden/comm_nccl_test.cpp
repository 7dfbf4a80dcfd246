// `comm` and `probe` over NCCL: on a real device where there is one (else skipped), and what is
// said where there is none.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// Why NCCL cannot be used here; empty where it can.
std::string reason_against() {
  const CommandResult result = heteroperf({"doctor", "--json"});
  const Json nccl = Json::parse(result.out).at("backends").at("nccl");
  if (nccl.at("usable")) return {};
  return nccl.value("reason", nccl.dump());
}

Json comm_of_devices(Words words) {
  words.insert(words.begin(), "comm");
  for (const char* word : {"--transport", "nccl", "--check", "--json"}) words.emplace_back(word);
  const CommandResult result = heteroperf(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out);
}

void expect_right(const Json& document) {
  ASSERT_FALSE(document.at("results").empty());
  for (const Json& result : document.at("results")) EXPECT_EQ(result.at("wrong"), 0);
}

TEST(CommOverNccl, OneRank) {
  if (const std::string why = reason_against(); !why.empty()) GTEST_SKIP() << why;
  const Json json =
      comm_of_devices({"allreduce", "--ranks", "1", "-b", "8", "-e", "16M", "-f", "64"});
  expect_right(json);
  EXPECT_EQ(json.at("transport"), "nccl");
  EXPECT_EQ(json.at("topology").at("devices").size(), 1u);
}

/// Made to look like two hosts, which talk over the loopback network.
TEST(CommOverNccl, TwoRanksOfOneDevice) {
  if (const std::string why = reason_against(); !why.empty()) GTEST_SKIP() << why;
  for (const char* collective : {"allreduce", "allgather", "alltoall", "sendrecv"}) {
    expect_right(comm_of_devices(
        {collective, "--ranks", "2", "--clusters", "a,a", "-b", "1K", "-e", "1M", "-f", "32"}));
  }
}

TEST(CommOverNccl, TwoClustersStagedThroughTheHost) {
  if (const std::string why = reason_against(); !why.empty()) GTEST_SKIP() << why;
  for (const char* collective :
       {"allreduce", "reducescatter", "allgather", "broadcast", "reduce", "alltoall", "sendrecv"}) {
    const Json json = comm_of_devices(
        {collective, "--ranks", "2", "--clusters", "a,b", "-b", "4K", "-e", "16M", "-f", "64"});
    expect_right(json);
    EXPECT_EQ(json.at("clusters"), Json::parse("[[0],[1]]"));
  }
  for (const char* wire : {"bf16", "int8"}) {
    expect_right(comm_of_devices({"allreduce", "--ranks", "2", "--clusters", "a,b", "--wire", wire,
                                  "-b", "1M", "-e", "1M"}));
  }
}

TEST(CommOverNccl, WithoutADeviceBothVerbsSayWhy) {
  const std::string why = reason_against();
  if (why.empty()) GTEST_SKIP() << "there is a device";
  const std::vector<Words> commands = {
      {"comm", "allreduce", "--transport", "nccl", "--ranks", "2", "--clusters", "a,b", "-e", "64"},
      {"probe", "--transport", "nccl", "--ranks", "2"}};
  for (const Words& words : commands) {
    const CommandResult result = heteroperf(words);
    EXPECT_EQ(result.exit_code, 5) << words[0] << result.err;
    const bool is_named =
        result.err.find("NCCL") != std::string::npos || result.err.find("MPI") != std::string::npos;
    EXPECT_TRUE(is_named) << result.err;
  }
}

TEST(CommOverNccl, WhatItCannotDoIsNamed) {
  const CommandResult result =
      heteroperf({"comm", "allreduce", "--transport", "nccl", "--checksum"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--pace and --checksum do not go with nccl"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace heteroperf::testing
