#include "runners/cluster/rank_device.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

std::string problems_of(const auto& read) {
  try {
    read();
  } catch (const UserError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) {
      text += problem.problem + " (" + problem.why + ") " + problem.suggestion + "\n";
    }
    return text;
  }
  return "";
}

TEST(RankDevice, IsReadByItsName) {
  EXPECT_TRUE(read_device("cpu").is_plain());
  EXPECT_TRUE(read_device("cuda").on_gpu);
  EXPECT_EQ(read_device("cpu:avx2").kernels, KernelSet::avx2);
  EXPECT_TRUE(read_device("cpu:avx2").limits_libraries());
  EXPECT_FALSE(read_device("cpu:exact").limits_libraries());
  for (const char* name : {"", "gpu", "cpu:", "cpu:mmx", "emulated:", "CPU"}) {
    EXPECT_THROW(read_device(name), UserError) << name;
  }
}

TEST(RankDevice, TheShippedChipsCanBeRead) {
  for (const std::string& name : shipped_chip_names()) {
    const RankDevice device = read_device("emulated:" + name);
    EXPECT_EQ(device.name, "emulated:" + name);
    EXPECT_FALSE(device.is_plain());
    EXPECT_TRUE(device.has_precision("fp32"));
  }
  EXPECT_FALSE(read_device("emulated:bf16_products").has_precision("fp64"));
}

TEST(RankDevice, AChipMayLackEveryOperator) {
  const EmulatedChip chip = parse_chip(
      R"({"_format":"heteroperf-chip","_version":1,"name":"new","precisions":["fp32"],
          "lacks":["*"]})",
      "chip.json");
  EXPECT_EQ(chip.lacks, std::vector<std::string>{"*"});
}

TEST(RankDevice, AFileIsRefusedWithEverythingThatIsWrong) {
  const std::string told = problems_of([] {
    parse_chip(R"({"_format":"heteroperf-chip","_version":1,"name":"a,b","precisions":["int8"],
                   "lacks":["copy"],"warp":32})",
               "chip.json");
  });
  for (const char* word : {"chip.json", "a,b", "int8", "lacks copy", "warp"}) {
    EXPECT_NE(told.find(word), std::string::npos) << word << " is missing in\n" << told;
  }
  EXPECT_NE(problems_of([] { read_device("emulated:./nowhere.json"); }).find("nowhere"),
            std::string::npos);
  EXPECT_NE(problems_of([] { read_device("emulated:bf16_product"); }).find("bf16_products"),
            std::string::npos);
}

TEST(RankDevice, OneProcessHasOneInstructionSet) {
  EXPECT_THROW(limit_libraries({read_device("cpu:base"), read_device("cpu")}), UserError);
  limit_libraries({read_device("cpu"), read_device("cpu:exact"), read_device("cuda")});
  EXPECT_EQ(std::getenv("ATEN_CPU_CAPABILITY"), nullptr);
  limit_libraries({read_device("cpu:avx2"), read_device("cpu:exact"), read_device("cpu:avx2")});
  EXPECT_STREQ(std::getenv("ATEN_CPU_CAPABILITY"), "avx2");
  unsetenv("ATEN_CPU_CAPABILITY");
  unsetenv("ONEDNN_MAX_CPU_ISA");
  unsetenv("MKL_ENABLE_INSTRUCTIONS");
}

TEST(FallbackRules, TheLastThatFitsHolds) {
  const FallbackRules rules = FallbackRules::parse("allow,soft*=deny,softmax_sums=warn");
  EXPECT_EQ(rules.decision_for("layer_norm"), Fallback::allow);
  EXPECT_EQ(rules.decision_for("softmax"), Fallback::deny);
  EXPECT_EQ(rules.decision_for("softmax_sums"), Fallback::warn);
  EXPECT_EQ(FallbackRules().decision_for("layer_norm"), Fallback::warn);
  for (const char* text : {"perhaps", "=deny", "layer_norm", "warn,norm=never"}) {
    EXPECT_THROW(FallbackRules::parse(text), UserError) << text;
  }
}

}  // namespace
}  // namespace heteroperf
