// The command line without any training: help, listings, counts and every wrong way to call it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;
  int exit_code;
  const char* message;  ///< regular expression on stderr
};

class BadCommandLine : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadCommandLine, GivesOneClearMessage) {
  const BadInput& bad = GetParam();
  const ScratchFolder folder;
  const CommandResult plain = heteroperf(bad.arguments, folder.path());
  EXPECT_EQ(plain.exit_code, bad.exit_code) << plain.err;
  EXPECT_TRUE(std::regex_search(plain.err, std::regex(bad.message))) << plain.err;
  EXPECT_EQ(plain.out, "");

  std::vector<std::string> with_json = bad.arguments;
  with_json.emplace_back("--json");
  const CommandResult json = heteroperf(with_json, folder.path());
  EXPECT_EQ(json.exit_code, bad.exit_code);
  const Json report = Json::parse(json.out);
  EXPECT_TRUE(report.at("error").contains("kind"));
  EXPECT_TRUE(report.at("error").contains("hints"));
  EXPECT_FALSE(report.at("error").at("details").empty());
}

const BadInput bad_inputs[] = {
    {"UnknownVerb", {"rum"}, 2, "unknown verb 'rum' .*Did you mean 'run'"},
    {"UnknownWorkload", {"run", "lmm"}, 2, "'lmm' is not known .*llm.*Did you mean 'llm'"},
    {"UnknownFlag", {"run", "llm", "--stepz", "3"}, 2, "stepz"},
    {"ZeroRanks", {"run", "llm", "--ranks", "0"}, 2, "--ranks 0 is out of range .at least 1"},
    {"NegativeDuration", {"run", "llm", "--duration", "-1"}, 2, "--duration -1 is out of range"},
    {"WordForANumber",
     {"run", "llm", "--steps", "many"},
     2,
     "measure.steps = 'many' is not usable .expected a whole number"},
    {"UnknownKey",
     {"run", "llm", "--set", "scale.rank=2"},
     2,
     "unknown configuration key 'scale.rank'.*Did you mean 'scale.ranks'"},
    {"SetWithoutValue", {"run", "llm", "--set", "seed"}, 2, "expected path.to.key=value"},
    {"UnknownPrecision",
     {"run", "llm", "--precision", "fp31"},
     2,
     "model.precision = 'fp31' is not known.*Did you mean 'fp32'"},
    {"UnknownSize", {"run", "llm", "--size", "nanno"}, 2, "nano"},
    {"UnknownModel", {"run", "image", "--model", "resnet19"}, 2, "resnet18"},
    {"ModelOfTheWrongKind", {"run", "image", "--model", "gpt2"}, 2, "not an image classifier"},
    {"UnknownData", {"run", "llm", "--data", "txt:a"}, 2, "text"},
    {"MissingText", {"run", "llm", "--data", "text:nowhere.txt"}, 2, "nowhere.txt"},
    {"MissingIdx", {"run", "image", "--data", "idx:nowhere"}, 2, "nowhere"},
    {"MissingCifar", {"run", "image", "--data", "cifar10:nowhere"}, 2, "nowhere"},
    {"TextForImages", {"run", "image", "--data", "text:nowhere.txt"}, 2, "text"},
    {"GroupsThatDoNotDivide",
     {"run", "automl-image", "--ranks", "3", "--set", "automl.group_ranks=2"},
     2,
     "3 ranks do not divide into groups of 2"},
    {"SeveralProblems",
     {"run", "llm", "--set", "measure.warmup_steps=0", "--set", "comm.timeout_s=0"},
     2,
     "measure.warmup_steps = 0[^]*comm.timeout_s = 0"},
    {"MissingRun", {"verify", "nowhere"}, 2, "nowhere"},
    {"ShowMissingRun", {"show", "nowhere"}, 2, "nowhere"},
    {"RecoverMissingRun", {"recover", "nowhere"}, 2, "nowhere"},
    {"UnknownListing", {"list", "modles"}, 2, "Did you mean 'models'"},
    {"CountUnknownModel", {"count", "resnet-50"}, 2, "resnet50"},
    {"CountMissingFile", {"count", "nowhere.json"}, 2, "nowhere.json"},
    {"CountBadImage", {"count", "resnet18", "--image", "224"}, 2, "HEIGHTxWIDTH"},
    {"CountBadConvention", {"count", "resnet18", "--convention", "strickt"}, 2, "strict"},
    {"CountSequenceOfImages", {"count", "resnet18", "--seq", "12"}, 2, "length|sequence"},
};

INSTANTIATE_TEST_SUITE_P(Cli, BadCommandLine, ::testing::ValuesIn(bad_inputs),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Cli, EveryVerbHasHelpWithTwoExamples) {
  for (const char* verb : {"doctor", "list", "count", "run", "verify", "show", "recover"}) {
    const CommandResult help = heteroperf({verb, "--help"});
    EXPECT_EQ(help.exit_code, 0) << verb;
    const std::regex example(std::string("\n  heteroperf ") + verb);
    const auto begin = std::sregex_iterator(help.out.begin(), help.out.end(), example);
    EXPECT_EQ(std::distance(begin, std::sregex_iterator()), 2) << help.out;
    EXPECT_NE(help.out.find("--json"), std::string::npos);
  }
}

TEST(Cli, HelpNamesEveryExitCode) {
  const std::string help = heteroperf({"--help"}).out;
  for (const char* code : {"0 ok", "2 usage", "6 run failed", "7 timeout", "8 result invalid",
                           "9 verification", "10 not comparable", "130 interrupted"}) {
    EXPECT_NE(help.find(code), std::string::npos) << code;
  }
}

TEST(Cli, CountsThePublishedModelExactly) {
  const CommandResult result =
      heteroperf({"count", "resnet50-v1", "--convention", "all", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json count = Json::parse(result.out);
  EXPECT_EQ(count.at("forward").at("aiperf"), "7806583495");
  EXPECT_EQ(count.at("backward").at("aiperf"), "15246874820");
  EXPECT_EQ(count.at("train").at("aiperf"), "23053458315");
  EXPECT_EQ(count.at("conventions").at("strict").at("train"), "22911811584");
  EXPECT_TRUE(count.at("conventions").contains("megatron-causal"));
  EXPECT_TRUE(count.at("memory").contains("activations_bytes"));
}

TEST(Cli, CountsAGraphFile) {
  const ScratchFolder folder;
  const CommandResult whole = heteroperf({"count", "nano", "--json", "--per-layer"});
  const Json count = Json::parse(whole.out);
  EXPECT_EQ(count.at("parameters"), 478720);
  EXPECT_FALSE(count.at("layers").empty());
  const std::string broken = folder.write("graph.json", "{\"_format\":\"heteroperf-graph\"");
  const CommandResult result = heteroperf({"count", broken});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("graph.json"), std::string::npos) << result.err;
}

TEST(Cli, ListsWhatTheScalingRuleChooses) {
  const Json items = Json::parse(heteroperf({"list", "workloads", "--json"}).out).at("items");
  ASSERT_EQ(items.size(), 3u);
  for (const Json& item : items) {
    EXPECT_TRUE(item.contains("name") && item.contains("summary") && item.contains("size")) << item;
  }
  for (const char* what : {"models", "devices", "datasets"}) {
    EXPECT_FALSE(Json::parse(heteroperf({"list", what, "--json"}).out).at("items").empty()) << what;
  }
}

TEST(Cli, DoctorReportsBackends) {
  const CommandResult result = heteroperf({"doctor", "--json"});
  const Json report = Json::parse(result.out);
  EXPECT_TRUE(report.at("backends").contains("mpi"));
  EXPECT_TRUE(report.at("backends").contains("hdf5"));
  bool failed = false;
  for (const Json& check : report.at("checks")) failed = failed || check.at("status") == "fail";
  EXPECT_EQ(result.exit_code, failed ? 5 : 0) << result.out;
}

}  // namespace
}  // namespace heteroperf::testing
