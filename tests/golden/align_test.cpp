// `align --locate` on runs of the program: another chip's products are named, another order of sums
// is no fault, and what cannot be trained again is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class AlignLocate : public ::testing::Test {
 protected:
  void run(const std::string& name, const Words& more) const {
    const Words words{"run",     "llm",
                      "--size",  "nano",
                      "--steps", "3",
                      "--set",   "measure.evaluation_samples=4",
                      "--set",   "measure.peak_s=0",
                      "-q"};
    const CommandResult result =
        heteroperf(joined(joined(words, more), {"--out", name}), folder_.path());
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  Json align(const Words& words, int exit_code) const {
    const CommandResult result = heteroperf(joined({"align", "--json"}, words), folder_.path());
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    return Json::parse(result.out);
  }

  ScratchFolder folder_;
};

// A is a pipeline of two unlike chips, B one rank: both are repeated on one rank.
TEST_F(AlignLocate, TheChipsProductsAreNamed) {
  run("chip", {"--ranks", "2", "--pp", "2", "--micro-batch", "2", "--micro-batches", "2",
               "--device", "cpu,emulated:fp16_products"});
  run("exact",
      {"--ranks", "1", "--micro-batch", "4", "--micro-batches", "1", "--device", "cpu:exact"});
  const Json document = align({"chip", "exact", "--locate", "--steps", "2"}, 9);
  EXPECT_EQ(document.at("ok"), false);
  EXPECT_EQ(document.at("band").at("runs"), 6);
  EXPECT_EQ(document.at("band").at("limit"), 3 * document.at("band").at("relative").get<double>());
  EXPECT_GT(document.at("acceptance").at("value"), document.at("band").at("limit"));
  const Json& located = document.at("located");
  EXPECT_EQ(located.at("device"), "emulated:fp16_products");
  EXPECT_EQ(located.at("step"), 0);
  EXPECT_EQ(located.at("layer"), "block0.attn.qkv");
  EXPECT_EQ(located.at("pass"), "forward");
  EXPECT_EQ(located.at("operator"), "product");
  EXPECT_GT(located.at("difference"), 3 * located.at("band").get<double>());
  EXPECT_LE(located.at("after"), 3 * located.at("band").get<double>());
  // The limit decides where it is given, and nothing is trained for a band.
  const Json limited = align({"chip", "exact", "--locate", "--limit", "1"}, 0);
  EXPECT_FALSE(limited.contains("band"));
  EXPECT_FALSE(limited.contains("located"));
}

TEST_F(AlignLocate, AnotherOrderOfSumsIsNoFault) {
  const Words scale{"--ranks", "1", "--micro-batch", "4", "--micro-batches", "1"};
  run("order", joined(scale, {"--device", "emulated:other_order"}));
  run("exact", joined(scale, {"--device", "cpu:exact"}));
  const Json document = align({"order", "exact", "--locate"}, 0);
  EXPECT_EQ(document.at("ok"), true);
  EXPECT_FALSE(document.contains("located"));
}

TEST_F(AlignLocate, ADeviceThatIsGoneOrAnotherOneIsNamed) {
  folder_.write("chip.json", R"({"_format": "heteroperf-chip", "_version": 1, "name": "gone",)"
                             R"( "precisions": ["fp32"], "products": "fp16"})");
  const Words scale{"--ranks", "1", "--micro-batch", "4", "--micro-batches", "1"};
  run("chip", joined(scale, {"--device", "emulated:./chip.json"}));
  run("plain", scale);
  folder_.write("chip.json", R"({"_format": "heteroperf-chip", "_version": 1, "name": "gone",)"
                             R"( "precisions": ["fp32"], "products": "bf16"})");
  const CommandResult other = heteroperf({"align", "chip", "plain", "--locate"}, folder_.path());
  EXPECT_EQ(other.exit_code, 5) << other.err;
  EXPECT_NE(other.err.find("is not the chip that the run computed with"), std::string::npos)
      << other.err;
  std::filesystem::remove(folder_ / "chip.json");
  const CommandResult result = heteroperf({"align", "chip", "plain", "--locate"}, folder_.path());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("chip.json"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace heteroperf::testing
