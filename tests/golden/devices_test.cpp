// Devices and their operators as users meet them: what `ops` says of a device, what ranks on unlike
// devices train, and what a record says of them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const Words short_run{"run",
                      "llm",
                      "--size",
                      "nano",
                      "--steps",
                      "6",
                      "--micro-batch",
                      "2",
                      "--threads-per-rank",
                      "1",
                      "--set",
                      "measure.peak_s=0",
                      "--set",
                      "measure.evaluation_samples=4",
                      "-q"};

struct ShortRun {
  CommandResult result;
  Json record;
  std::vector<double> losses;
};

ShortRun run_on(const std::string& devices, const Words& more = {}) {
  const ScratchFolder folder;
  ShortRun run{heteroperf(joined(joined(short_run, {"--device", devices, "--out", "r"}), more),
                          folder.path()),
               {},
               {}};
  std::ifstream record(folder.path() + "/r/record.json"),
      journal(folder.path() + "/r/journal.jsonl");
  if (!record) return run;
  run.record = Json::parse(record);
  for (std::string line; std::getline(journal, line);) {
    const Json event = Json::parse(line);
    if (event.at("kind") == "step") run.losses.push_back(event.at("loss"));
  }
  const CommandResult verified = heteroperf({"verify", "r"}, folder.path());
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  return run;
}

std::set<std::string> broken_rules(const Json& record) {
  std::set<std::string> rules;
  for (const Json& reason : record.at("validity").at("reasons")) rules.insert(reason.at("rule"));
  return rules;
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double farthest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    farthest = std::max(farthest, std::fabs(a[i] - b[i]) / b[i]);
  }
  return farthest;
}

TEST(Devices, UnlikeNumericsTrainTogether) {
  const ShortRun host = run_on("cpu,cpu"), mix = run_on("cpu:exact,cpu");
  ASSERT_EQ(mix.result.exit_code, 0) << mix.result.err;
  EXPECT_LT(farthest(mix.losses, host.losses), 1e-4);
  const Json& devices = mix.record.at("devices");
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].at("rank"), 0);
  EXPECT_EQ(devices[0].at("device"), "cpu:exact");
  EXPECT_EQ(mix.record.at("scale").at("devices").size(), 2u);
  EXPECT_TRUE(broken_rules(mix.record).contains("kernels"));
  EXPECT_FALSE(mix.record.at("validity").at("rankable"));
  EXPECT_FALSE(host.record.contains("devices"));
  // Keys and values go between them in one type.
  const ShortRun shared = run_on("cpu:exact,cpu", {"--cp", "2", "--micro-batches", "2"});
  ASSERT_EQ(shared.result.exit_code, 0) << shared.result.err;
  EXPECT_LT(farthest(shared.losses, host.losses), 1e-4);
}

TEST(Devices, AnEmulatedChipIsMarkedAndNeverRanked) {
  const ShortRun host = run_on("cpu,cpu"), chip = run_on("emulated:bf16_products,cpu");
  ASSERT_EQ(chip.result.exit_code, 0) << chip.result.err;
  EXPECT_GT(farthest(chip.losses, host.losses), 0);
  EXPECT_LT(farthest(chip.losses, host.losses), 1e-2);
  EXPECT_EQ(chip.record.at("devices")[0].at("products"), "bf16");
  EXPECT_TRUE(chip.record.at("devices")[0].at("emulated"));
  EXPECT_TRUE(broken_rules(chip.record).contains("emulated_numerics"));
}

TEST(Devices, WhatAChipLacksIsCounted) {
  const ShortRun host = run_on("cpu"), chip = run_on("emulated:few_operators");
  ASSERT_EQ(chip.result.exit_code, 0) << chip.result.err;
  EXPECT_LT(farthest(chip.losses, host.losses), 1e-4);
  const Json& substitution = chip.record.at("substitution");
  EXPECT_GT(substitution.at("time_fraction"), 0.01);
  std::set<std::string> names;
  for (const Json& entry : substitution.at("operators")) {
    names.insert(entry.at("name"));
    EXPECT_GT(entry.at("calls"), 0);
    EXPECT_GT(entry.at("bytes"), 0);
  }
  EXPECT_TRUE(names.contains("layer_norm_backward"));
  EXPECT_TRUE(names.contains("cross_entropy"));
  EXPECT_TRUE(broken_rules(chip.record).contains("substitution"));
  EXPECT_NE(chip.result.err.find("has no layer_norm"), std::string::npos) << chip.result.err;
  const ShortRun silent = run_on("emulated:few_operators", {"--fallback", "allow"});
  EXPECT_EQ(silent.result.err.find("has no layer_norm"), std::string::npos) << silent.result.err;
}

TEST(Devices, AnInstructionSetIsAClassOfItsOwn) {
  const ShortRun host = run_on("cpu"), base = run_on("cpu:base");
  ASSERT_EQ(base.result.exit_code, 0) << base.result.err;
  EXPECT_LT(farthest(base.losses, host.losses), 1e-4);
  EXPECT_EQ(base.record.at("scale").at("devices")[0].at("class"), "cpu:base");
  const Json& variables = base.record.at("system").at("process").at("environment");
  EXPECT_EQ(variables.at("ATEN_CPU_CAPABILITY"), "default");
}

TEST(Devices, WrongOnesAreRefusedAllAtOnce) {
  const ScratchFolder folder;
  std::ofstream(folder.path() + "/chip.json")
      << R"({"_format":"heteroperf-chip","_version":1,"name":"x","precisions":["fp32"],
             "lacks":["copy"]})";
  std::ofstream(folder.path() + "/typo.json")
      << R"({"_format":"heteroperf-chip","_version":1,"name":"x","precisions":["fp32"],
             "lacks":["layer_nrom"]})";
  std::ofstream(folder.path() + "/lost.json")
      << R"({"_format":"heteroperf-chip","_version":1,"name":"x","precisions":["fp32"],
             "lost_after_calls":200})";
  int count = 0;
  const auto refusal = [&](const std::string& device, const Words& more, int code) {
    const Words words{"--device", device, "--out", "r" + std::to_string(++count)};
    const CommandResult result = heteroperf(joined(joined(short_run, words), more), folder.path());
    EXPECT_EQ(result.exit_code, code) << device << ": " << result.err;
    return result.err;
  };
  std::ofstream(folder.path() + "/wrong.json")
      << R"({"_format":"heteroperf-chip","_version":1,"name":5,"precisions":["int8"],"memory":3})";
  EXPECT_NE(refusal("cpu:mmx", {}, 2).find("cpu:avx2"), std::string::npos);
  const std::string wrong = refusal("emulated:./wrong.json,cpuu, cpu:avx2", {}, 2);
  for (const char* word : {"name is 5", "int8", "\"memory\"", "Did you mean 'cpu'",
                           "unknown device ' cpu:avx2'", "Did you mean 'cpu:avx2'"}) {
    EXPECT_NE(wrong.find(word), std::string::npos) << word << " in " << wrong;
  }
  EXPECT_EQ(wrong.find("is no word"), std::string::npos) << wrong;
  EXPECT_NE(refusal("emulated:bf16", {}, 2).find("bf16_products"), std::string::npos);
  EXPECT_NE(refusal("cpu:base,cpu", {}, 2).find("--transport mpi"), std::string::npos);
  EXPECT_NE(refusal("emulated:tf32_products", {"--precision", "fp64"}, 2).find("has no fp64"),
            std::string::npos);
  EXPECT_NE(refusal("cpu", {"--fallback", "perhaps"}, 2).find("deny, warn or allow"),
            std::string::npos);
  EXPECT_NE(refusal("emulated:./typo.json", {}, 2).find("layer_nrom"), std::string::npos);
  const std::string both = refusal("emulated:./chip.json,emulated:./none.json", {}, 2);
  EXPECT_NE(both.find("lacks copy"), std::string::npos) << both;
  EXPECT_NE(both.find("none.json"), std::string::npos) << both;
  EXPECT_NE(refusal("emulated:./lost.json", {}, 6).find("disappeared"), std::string::npos);
  EXPECT_NE(refusal("emulated:few_operators", {"--fallback", "deny"}, 2).find("--fallback denies"),
            std::string::npos);
  const std::string typos = refusal("cpu", {"--fallback", "warn,layernorm=deny,sofmax*=allow"}, 2);
  EXPECT_NE(typos.find("--fallback layernorm=deny"), std::string::npos) << typos;
  EXPECT_NE(typos.find("--fallback sofmax*=allow"), std::string::npos) << typos;
}

TEST(Devices, AChipsMemoryLimitsItsRanks) {
  const ScratchFolder folder;
  const auto chip = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder.path() + "/" + name + ".json")
        << R"({"_format":"heteroperf-chip","_version":1,"precisions":["fp32"],"name":")" << name
        << R"(","memory_bytes":)" << bytes << "}";
    return "emulated:./" + name + ".json";
  };
  const std::string small = chip("small", "4000000"), enough = chip("enough", "40000000");
  const auto run = [&](const std::string& devices, const std::string& out, const Words& more) {
    return heteroperf(joined(joined(short_run, {"--device", devices, "--out", out}), more),
                      folder.path());
  };
  const CommandResult refused = run("cpu," + small, "a", {});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_NE(refused.err.find("on the device of rank 1 (emulated:small"), std::string::npos);
  EXPECT_NE(refused.err.find("3.815 MiB available, "), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find(" too little"), std::string::npos) << refused.err;
  // With a described cluster the planner's own limit is the chip's.
  const CommandResult planned = run(small, "b", {"--cluster", HETEROPERF_CLUSTERS "/laptop.json"});
  EXPECT_EQ(planned.exit_code, 2) << planned.err;
  EXPECT_NE(planned.err.find("3.815 MiB available"), std::string::npos) << planned.err;

  const CommandResult fits = run(enough, "c", {});
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  const Json record = Json::parse(std::ifstream(folder.path() + "/c/record.json"));
  for (const Json& limit : record.at("metrics").at("peak_memory_bytes").at("limit_per_rank")) {
    EXPECT_EQ(limit, 40000000);
  }
  EXPECT_EQ(heteroperf({"verify", "c"}, folder.path()).exit_code, 0);
}

TEST(Ops, ChecksADeviceAndWritesJunit) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf({"ops", "llm", "--check", "--quick", "--device", "cpu,emulated:few_operators",
                  "--precision", "fp32", "--threads", "1", "--junit", "ops.xml", "--json", "-q"},
                 folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::set<std::string> statuses;
  const Json report = Json::parse(result.out);
  for (const Json& row : report.at("operators")) {
    statuses.insert(row.at("status"));
    EXPECT_LE(row.at("worst_error"), row.at("factor")) << row;
    EXPECT_LE(row.at("factor"), 8) << row;
    EXPECT_TRUE(row.at("repeatable")) << row;
    EXPECT_EQ(row.at("status") == "substituted", row.contains("substituted")) << row;
  }
  EXPECT_EQ(statuses, (std::set<std::string>{"native", "substituted"}));
  std::stringstream xml;
  xml << std::ifstream(folder.path() + "/ops.xml").rdbuf();
  EXPECT_NE(xml.str().find("heteroperf.ops.cpu.fp32"), std::string::npos);
  EXPECT_NE(xml.str().find("failures=\"0\""), std::string::npos);
}

#ifdef HETEROPERF_FAULTY_MACHINE
// Each number is off by less than a unit in its last place, and all to the same side.
TEST(Ops, AProcessorThatRoundsToZeroIsWrong) {
  for (const char* devices : {"cpu", "cpu:base,cpu"}) {
    const ScratchFolder folder;
    const CommandResult result =
        heteroperf({"ops", "llm", "--check", "--quick", "--device", devices, "--precision", "fp32",
                    "--threads", "1", "--junit", "ops.xml", "--json", "-q"},
                   folder.path(), {"LD_PRELOAD=" HETEROPERF_FAULTY_MACHINE, "ROUND_TO_ZERO=1"});
    ASSERT_EQ(result.exit_code, 9) << result.err;
    std::size_t wrong = 0;
    const Json report = Json::parse(result.out);
    for (const Json& row : report.at("operators")) {
      if (row.at("status") != "wrong") continue;
      ++wrong;
      EXPECT_FALSE(row.at("wrong").empty()) << row;
    }
    EXPECT_GT(wrong, 0u);
    std::stringstream xml;
    xml << std::ifstream(folder.path() + "/ops.xml").rdbuf();
    EXPECT_NE(xml.str().find("failures=\"" + std::to_string(wrong) + "\""), std::string::npos);
    EXPECT_NE(xml.str().find("<failure message=\""), std::string::npos);
    EXPECT_NE(xml.str().find("leans to one side"), std::string::npos);
  }
}
#endif

TEST(Ops, ScoresDevices) {
  const CommandResult result = heteroperf({"ops", "llm", "--size", "nano", "--score", "--device",
                                           "cpu:base,cpu", "--threads", "1", "--json", "-q"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report.at("devices").size(), 2u);
  double inverses = 0;
  for (const Json& device : report.at("devices")) {
    EXPECT_GT(device.at("efficiency"), 0);
    EXPECT_LE(device.at("efficiency"), 1);
    inverses += 1 / device.at("efficiency").get<double>();
  }
  EXPECT_NEAR(report.at("score"), 2 / inverses, 1e-12);
}

TEST(Ops, ItsTimesAreForPlans) {
  const ScratchFolder folder;
  const CommandResult measured = heteroperf({"ops", "llm", "--size", "nano", "--precision", "fp32",
                                             "--threads", "1", "--out", "ops.json", "-q"},
                                            folder.path());
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  // The laptop's cores by the name of the class that probe makes of this machine.
  const CommandResult probed = heteroperf(
      {"probe", "--ranks", "1", "--threads-per-rank", "1", "--links-only", "-o", "probed.json"},
      folder.path());
  ASSERT_EQ(probed.exit_code, 0) << probed.err;
  std::ifstream description(folder.path() + "/probed.json");
  const std::string name = Json::parse(description).at("classes")[0].at("name");
  std::stringstream text;
  text << std::ifstream(HETEROPERF_CLUSTERS "/laptop.json").rdbuf();
  folder.write("cluster.json",
               std::regex_replace(text.str(), std::regex("\"core\""), "\"" + name + "\""));
  const CommandResult planned = heteroperf({"plan", "llm", "--size", "nano", "--cluster",
                                            "cluster.json", "--profile", "ops.json", "--json"},
                                           folder.path());
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
}

TEST(Ops, AMissingPrecisionScoresNothing) {
  const CommandResult result = heteroperf(
      {"ops", "image", "--score", "--device", "emulated:bf16_products", "--precision", "fp64"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
}

// Pennycook's score says that a program does not run on all of the devices.
TEST(Ops, ADeviceThatLacksAnOperatorMakesTheScoreNothing) {
  const ScratchFolder folder;
  std::ofstream(folder.path() + "/bf16.json")
      << R"({"_format":"heteroperf-chip","_version":1,"name":"bf16_only","precisions":["bf16"]})";
  for (const char* other : {"emulated:few_operators", "emulated:./bf16.json"}) {
    const CommandResult result =
        heteroperf({"ops", "llm", "--size", "nano", "--score", "--device",
                    std::string("cpu,") + other, "--threads", "1", "-q", "--json"},
                   folder.path());
    ASSERT_EQ(result.exit_code, 0) << other << result.err;
    const Json report = Json::parse(result.out);
    EXPECT_EQ(report.at("score"), 0) << other;
    ASSERT_EQ(report.at("scores").size(), 1u) << other;
    EXPECT_EQ(report.at("scores")[0].at("workload"), "llm nano");
    const Json& devices = report.at("devices");
    ASSERT_EQ(devices.size(), 2u) << other;
    EXPECT_GT(devices[0].at("efficiency"), 0);
    EXPECT_GT(devices[0].at("compared"), 0.5);
    EXPECT_FALSE(devices[1].contains("efficiency")) << devices[1];
  }
}

TEST(Ops, AskedForTwiceOrInVain) {
  const CommandResult result =
      heteroperf({"ops", "llm", "--size", "giant", "--device", "cpu,cpu", "--precision",
                  "fp32,fp32", "--threads", "0", "--junit", "x.xml", "--out", "/nowhere/at/all",
                  "--model", "resnet50", "--json"});
  EXPECT_EQ(result.exit_code, 2);
  const Json error = Json::parse(result.out).at("error");
  std::string problems;
  for (const Json& detail : error.at("details")) {
    problems += detail.at("problem").get<std::string>() + "\n";
  }
  for (const char* word :
       {"giant", "--device cpu is named twice", "--precision fp32 is named twice",
        "--threads 0 is out of range", "--junit without --check", "/nowhere/at/all",
        "--model resnet50 means nothing for llm"}) {
    EXPECT_NE(problems.find(word), std::string::npos) << word << " in " << problems;
  }
}

TEST(Ops, RefusesWhatMeansNothing) {
  const CommandResult result =
      heteroperf({"ops", "automl-image", "--quick", "--device", "cpu:mmx,tpu", "--precision",
                  "int8", "--threads", "-1"});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* word : {"automl-image", "--quick", "cpu:mmx", "tpu", "int8", "--threads -1"}) {
    EXPECT_NE(result.err.find(word), std::string::npos) << word << " in " << result.err;
  }
}

}  // namespace
}  // namespace heteroperf::testing
