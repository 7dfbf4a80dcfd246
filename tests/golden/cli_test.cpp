// The command line without any training: help, listings, counts and every wrong way to call it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

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
    {"UnknownWorkload", {"run", "lmm"}, 2, "workload lmm is not known .*llm.*Did you mean 'llm'"},
    {"UnknownFlag", {"run", "llm", "--stepz", "3"}, 2, "stepz"},
    {"ZeroRanks", {"run", "llm", "--ranks", "0"}, 2, "--ranks 0 is out of range .at least 1"},
    {"NegativeDuration", {"run", "llm", "--duration", "-1"}, 2, "--duration -1 is out of range"},
    {"WordForANumber",
     {"run", "llm", "--steps", "many"},
     2,
     "--steps many is not usable .expected a whole number"},
    {"UnknownKey",
     {"run", "llm", "--set", "scale.rank=2"},
     2,
     "unknown configuration key 'scale.rank'.*Did you mean 'scale.ranks'"},
    {"SetWithoutValue", {"run", "llm", "--set", "seed"}, 2, "expected path.to.key=value"},
    {"UnknownPrecision",
     {"run", "llm", "--precision", "fp31"},
     2,
     "--precision fp31 is not known.*Did you mean 'fp32'"},
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
    {"EmptyWorkload", {"run", ""}, 2, "the workload is empty text .one of image"},
    {"EmptyStep", {"resume", "results/latest", "--from-step", ""}, 2, "--from-step is empty text"},
    {"EmptyBatch", {"plan", "llm", "--batch", ""}, 2, "--batch is empty text .it takes a number"},
    {"FractionOfARank", {"run", "llm", "--ranks", "1.5"}, 2, "--ranks 1.5 is not usable"},
    {"DurationWithAUnit",
     {"run", "llm", "--duration", "5s"},
     2,
     "--duration 5s is not usable .expected a number of seconds, without a unit"},
    {"QuickByKey", {"run", "llm", "--quick", "--set", "quick=false"}, 2, "Give --quick, or leave"},
    {"ModelOfLlm",
     {"run", "llm", "--model", "resnet18"},
     2,
     "--model resnet18 changes nothing in llm .only image can use it"},
    {"SizeOfImage",
     {"run", "image", "--size", "mini"},
     2,
     "--size mini changes nothing in image .only automl-image and llm and two-tower and vlm and "
     "co-attention can use it"},
    {"LayoutOfAnotherModel",
     {"run", "two-tower", "--size", "nano", "--layout", "vison=dp2", "--layout", "text=dp2"},
     2,
     "no component 'vison'.*Did you mean 'vision'.*\n.*'vision' has no layout"},
    {"LayoutOfNoForm",
     {"run", "two-tower", "--layout", "vision=zz2@3-1", "--layout", "text"},
     2,
     "the axis 'zz2'.*\n.*the ranks '3-1'.*\n.*--layout text is no layout"},
    {"LayoutAndDegrees",
     {"run", "two-tower", "--layout", "vision=dp2", "--pp", "2"},
     2,
     "--layout vision=dp2 and --pp 2 exclude each other"},
    {"LayoutOfOtherRanks",
     {"run", "two-tower", "--layout", "vision=dp2", "--layout", "text=dp2", "--ranks", "3"},
     2,
     "--ranks 3 does not fit --layout vision=dp2 text=dp2 .3 and 2 ranks"},
    {"FreezeOfAnotherModel",
     {"run", "vlm", "--size", "nano", "--freeze", "vison,txt"},
     2,
     "no component 'vison' to freeze.*Did you mean 'vision'.*\n.*no component 'txt' to freeze"},
    {"FreezeOfAll",
     {"run", "vlm", "--size", "nano", "--freeze", "vision,text"},
     2,
     "all of the model 'vlm-nano' is frozen .nothing is left to train"},
    {"PixelsForCaptions",
     {"run", "vlm", "--data", "generated:64"},
     2,
     "its texts have places for images of one size.*Use generated"},
    {"TextWithoutRoomForItsImage",
     {"run", "vlm", "--size", "nano", "--set", "model.sequence_length=20"},
     2,
     "cannot have 20 tokens in a text .from 25 to"},
    {"TextWithoutRoomForItsImages",
     {"run", "vlm", "--size", "nano", "--images", "3", "--set", "model.sequence_length=40"},
     2,
     "cannot have 40 tokens in a text .from 75 to"},
    {"ImagesOfNoText",
     {"plan", "llm", "--size", "nano", "--images", "2", "--cluster", "fast2_slow6"},
     2,
     "2 images in a sample of 'nano' .only a vision-language model puts"},
    {"ImagesThatNobodyReads",
     {"run", "two-tower", "--images", "2"},
     2,
     "--images 2 changes nothing in two-tower .only vlm can use it"},
    {"TextTooShortForItsCaption",
     {"run", "co-attention", "--size", "nano", "--set", "model.sequence_length=12"},
     2,
     "cannot have 12 tokens in a text .from 16 to"},
    {"ImageBelowAPatch",
     {"run", "co-attention", "--size", "small", "--data", "generated:8"},
     2,
     "cannot have 8 rows of pixels .from 24 to.*\n.*8 columns"},
    {"HeadsOfStreams",
     {"run", "co-attention", "--size", "nano", "--layout", "vision=tp3", "--layout", "txt=dp1@3"},
     2,
     "no component 'txt'.*Did you mean 'text'"},
    {"RowsForParts",
     {"run", "two-tower", "--size", "nano", "--layout", "vision=cp11", "--layout", "text=dp1"},
     2,
     "11 context-parallel ranks for the 10 rows of 'vision.positions' .each takes at least one"},
    {"TextForPairs",
     {"run", "two-tower", "--data", "text:a"},
     2,
     "the model takes pairs, the source has tokens.*Use generated"},
    {"PartOfASetOfPairs",
     {"run", "two-tower", "--set", "measure.evaluation_samples=100"},
     2,
     "evaluation_samples = 100 with two-tower .64 pairs at a time.*multiple of 64"},
    {"ScheduleWithoutInteractions",
     {"run", "two-tower", "--size", "nano", "--ranks", "2", "--pp", "2", "--schedule", "chimera"},
     2,
     "chimera with the loss 'loss' over a step.*Use 1f1b, gpipe or auto"},
    {"OnePairAStep",
     {"run", "two-tower", "--size", "nano", "--ranks", "1", "--micro-batch", "1"},
     2,
     "the loss 'loss' over 1 sample .*against one another"},
    {"ModelOfSearch",
     {"run", "automl-image", "--model", "vgg16"},
     2,
     "--model vgg16 changes nothing in automl-image"},
    {"StepsAndDuration",
     {"run", "llm", "--steps", "3", "--duration", "4"},
     2,
     "--steps 3 and --duration 4 exclude each other"},
    {"UntilAndSteps",
     {"run", "llm", "--until", "1%", "--steps", "3"},
     2,
     "^heteroperf: --until 1% and --steps 3 exclude each other [^\n]*\n$"},
    {"UntilTooNarrow",
     {"run", "llm", "--until", "0.05%"},
     2,
     "^heteroperf: --until 0.05% is out of range [^\n]*0.1 to 50 %[^\n]*\n$"},
    {"UntilNothing", {"run", "llm", "--until", "0"}, 2, "--until 0 is out of range"},
    {"UntilNegative", {"run", "llm", "--until", "-1%"}, 2, "--until -1% is out of range"},
    {"UntilTooWide", {"run", "image", "--until", "51"}, 2, "--until 51 is out of range"},
    {"UntilAWord",
     {"run", "llm", "--until", "precise"},
     2,
     "^heteroperf: --until precise is not usable .expected a percentage, such as 1% or 0.5.\\n$"},
    {"UntilOfASearch",
     {"run", "automl-image", "--until", "1%"},
     2,
     "^heteroperf: --until 1% changes nothing in automl-image .only image and llm[^\n]*\n$"},
    {"UntilOfASuite",
     {"run", "--until", "1%"},
     2,
     "^heteroperf: --until 1% is not usable .*Name a workload: image or llm or two-tower or "
     "vlm or co-attention\n$"},
    {"DecayByTime",
     {"run", "llm", "--set", "optimizer.schedule=cosine"},
     2,
     "optimizer.schedule = cosine changes nothing in llm .*no last step"},
    {"NegativeLearningRate",
     {"run", "llm", "--set", "optimizer.learning_rate=-1"},
     2,
     "optimizer.learning_rate = '-1' is out of range .above 0"},
    {"UnknownSchedule",
     {"run", "llm", "--set", "optimizer.schedule=cosin"},
     2,
     ".one of constant linear cosine.. Did you mean 'cosine'"},
    {"MissingHistory",
     {"run", "automl-image", "--set", "automl.history=nowhere"},
     2,
     "automl.history = 'nowhere' is not usable .no such run"},
    {"HistoryOfLlm",
     {"run", "llm", "--set", "automl.history=nowhere"},
     2,
     "automl.history = 'nowhere' changes nothing in llm"},
    {"TextForASuite",
     {"run", "--data", "text:nowhere.txt"},
     2,
     "image: 'text' cannot feed[^]*automl-image: 'text' cannot[^]*llm: cannot read 'nowhere.txt'"},
    {"ModelThatNoMemoryHolds",
     {"run", "llm", "--size", "gpt3-175b", "--ranks", "1"},
     2,
     "needs [0-9.]+ TiB per rank .[0-9.]+ [MG]iB available, [0-9.]+ TiB too little"},
    {"ProblemsOfEveryStage",
     {"run", "llm", "--ranks", "0", "--seed", "x", "--set", "seed", "--set", "comm.timeout_s=0"},
     2,
     "--ranks 0 is out[^]*--set seed is not usable[^]*--seed x is not[^]*comm.timeout_s = '0'"},
    {"SeveralProblems",
     {"run", "llm", "--set", "measure.warmup_steps=0", "--set", "comm.timeout_s=0"},
     2,
     "measure.warmup_steps = '0'[^]*comm.timeout_s = '0'"},
    {"MissingRun", {"verify", "nowhere"}, 2, "nowhere"},
    {"ShowMissingRun", {"show", "nowhere"}, 2, "nowhere"},
    {"RecoverMissingRun", {"recover", "nowhere"}, 2, "nowhere"},
    {"ResumeMissingRun", {"resume", "nowhere"}, 2, "nowhere"},
    {"AlignMissingRun", {"align", "nowhere", "elsewhere"}, 2, "nowhere"},
    {"AlignNegativeLimit", {"align", "a", "b", "--limit", "-1"}, 2, "--limit -1 is out of range"},
    {"AlignTooFewBands",
     {"align", "a", "b", "--bands", "4", "--limit", "0"},
     2,
     "--bands 4 is out of range[^]*--bands and --limit"},
    {"AlignStepsOfNothing",
     {"align", "a", "b", "--steps", "3"},
     2,
     "--steps without --locate or --bands"},
    {"ExportMissingPlan", {"export", "nowhere", "--to", "megatron"}, 2, "nowhere"},
    {"ExportUnknownFormat",
     {"export", "plan.json", "--to", "megatorn"},
     2,
     "no export format 'megatorn'[^]*Did you mean 'megatron'"},
    {"SetWithoutConfiguration",
     {"count", "micro", "--set", "seed=2"},
     2,
     "count has no configuration"},
    {"UnknownListing", {"list", "modles"}, 2, "Did you mean 'models'"},
    {"CountFolder", {"count", "/"}, 2, "'/' is a folder .expected a graph file"},
    {"CountFraction",
     {"count", "micro", "--batch", "3.5"},
     2,
     "--batch 3.5 is out of range .a whole number from 1 to 1099511627776"},
    {"CountMoreThanCanBeCounted",
     {"count", "llama3-405b", "--batch", "1099511627776", "--seq", "1073741824"},
     2,
     "batch of 1099511627776 samples of 1073741824 tokens"},
    {"MissingArgument",
     {"count"},
     2,
     "the argument 'model' is missing. See `heteroperf count --help`"},
    {"SetWithNothing", {"run", "--set"}, 2, "--set has no value .expected KEY=VALUE"},
    {"GivenTwice",
     {"count", "micro", "--batch", "2", "--batch", "3"},
     2,
     "--batch is given 2 times .one value is taken"},
    {"NameThatIsTooLong",
     {"verify", std::string(300, 'x')},
     2,
     "cannot use x+ .File name too long.[.] Check its name"},
    {"OneWordTooMany", {"list", "models", "b"}, 2, "'b' is one argument too many"},
    {"UnknownFlags",
     {"count", "micro", "--sequ", "3", "--bath", "2"},
     2,
     "no option --sequ. Did you mean --seq[^]*no option --bath. Did you mean --batch"},
    {"NoNearKey",
     {"run", "llm", "--set", "a=1"},
     2,
     "unknown configuration key 'a'(?![^]*Did you)"},
    {"CountUnknownModel", {"count", "resnet-50"}, 2, "resnet50"},
    {"CountMissingFile", {"count", "nowhere.json"}, 2, "nowhere.json"},
    {"CountBadImage", {"count", "resnet18", "--image", "224"}, 2, "HEIGHTxWIDTH"},
    {"CountBadConvention", {"count", "resnet18", "--convention", "strickt"}, 2, "strict"},
    {"CountSequenceOfImages",
     {"count", "resnet18", "--seq", "12"},
     2,
     "--seq 12 changes nothing in resnet18 .it reads images.. Leave it out, or give --image"},
    {"CountImageOfTokens",
     {"count", "gpt2", "--image", "32x32"},
     2,
     "--image 32x32 changes nothing in gpt2 .it reads sequences of tokens"},
    {"MisspeltVersion", {"--versoin"}, 2, "no option --versoin. Did you mean --version"},
    {"ShortVersion", {"-V"}, 2, "no option -V. Did you mean --version"},
    {"OptionBeforeTheVerb", {"--quick", "run"}, 2, "--quick stands before the verb"},
    {"UnknownTopic", {"help", "validty"}, 2, "unknown topic 'validty'.*Did you mean 'validity'"},
    {"ForeignPrecision",
     {"run", "llm", "--precision", "fp16"},
     2,
     "--precision fp16 is not known .one of fp32 bf16 fp64.(?![^]*Did you)"},
    {"UnknownFormatBesideJson", {"rank", ".", "--format", "xml"}, 2, "unknown format 'xml'"},
    {"RankOfNothing", {"rank", "."}, 2, "[.] holds no record"},
    {"HistoryOfNothing", {"history", "."}, 2, "[.] holds no record"},
};

INSTANTIATE_TEST_SUITE_P(Cli, BadCommandLine, ::testing::ValuesIn(bad_inputs),
                         [](const auto& test) { return std::string(test.param.name); });

const char* const verbs[] = {"doctor",   "list",    "count",  "plan",   "schedule", "simulate",
                             "comm",     "probe",   "run",    "resume", "verify",   "show",
                             "recover",  "align",   "export", "pack",   "compare",  "gate",
                             "baseline", "history", "rank",   "report", "help",     "version"};

TEST(Cli, EveryVerbHasHelpWithTwoExamples) {
  for (const char* verb : verbs) {
    const CommandResult help = heteroperf({verb, "--help"});
    EXPECT_EQ(help.exit_code, 0) << verb;
    const std::regex example(std::string("\n  heteroperf ") + verb);
    const auto begin = std::sregex_iterator(help.out.begin(), help.out.end(), example);
    EXPECT_GE(std::distance(begin, std::sregex_iterator()), 2) << help.out;
    EXPECT_NE(help.out.find("--json"), std::string::npos);
  }
}

/// An option without words, or a line that a terminal breaks, is found here and not by a user. What
/// all verbs share comes last.
TEST(Cli, HelpPagesFitATerminalAndDescribeEveryOption) {
  for (const char* verb : verbs) {
    SCOPED_TRACE(verb);
    std::istringstream page(heteroperf({verb, "--help"}).out);
    std::vector<std::string> groups;
    std::string before;
    for (std::string line; std::getline(page, line); before = line) {
      EXPECT_LE(line.size(), 100u) << line;
      if (line == "Options:" || line == "Common options:") groups.push_back(line);
      const bool wraps = line.starts_with(std::string(28, ' '));
      const bool bare = before.starts_with("  -") && before.find("  ", 3) == std::string::npos;
      EXPECT_TRUE(!bare || wraps) << before << " has no description";
    }
    ASSERT_FALSE(groups.empty());
    EXPECT_EQ(groups.back(), "Common options:");
  }
}

TEST(Cli, RunHelpHasEveryKeyWithItsDefault) {
  const std::string help = heteroperf({"run", "--help"}).out;
  for (const char* row : {"scale.bind\\s+.auto.", "optimizer.clip_norm\\s+.the workload's.",
                          "measure.warmup_steps\\s+.2.", "comm.timeout_s\\s+.30"}) {
    EXPECT_TRUE(std::regex_search(help, std::regex(row))) << row;
  }
}

TEST(Cli, FormerNamesOfOptionsWorkUnseen) {
  EXPECT_EQ(heteroperf({"report", "--help"}).out.find("--output"), std::string::npos);
  for (const Words& words : {Words{"report", "nowhere", "--output", "page.html"},
                             Words{"plan", "llm", "--sequence-length", "16"}}) {
    const CommandResult result = heteroperf(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err.find("there is no option"), std::string::npos) << result.err;
  }
}

TEST(Cli, TheReadmesTableOfKeysIsThatOfTheProgram) {
  std::ifstream file(HETEROPERF_CHECKOUT "/suite/README.md");
  const std::string readme(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(readme.find("\n\n" + heteroperf({"help", "keys"}).out + "\n"), std::string::npos)
      << "put what `heteroperf help keys` prints in place of the table in suite/README.md";
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
  EXPECT_FALSE(count.at("conventions").contains("megatron-causal"));
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
  ASSERT_EQ(items.size(), 6u);
  for (const Json& item : items) {
    EXPECT_TRUE(item.contains("name") && item.contains("summary") && item.contains("size")) << item;
  }
  for (const char* what : {"models", "devices", "datasets"}) {
    EXPECT_FALSE(Json::parse(heteroperf({"list", what, "--json"}).out).at("items").empty()) << what;
  }
}

TEST(Cli, ListsNumbersAsNumbers) {
  for (const char* what : {"workloads", "models", "devices"}) {
    const Json listing = Json::parse(heteroperf({"list", what, "--json"}).out);
    for (const Json& item : listing.at("items")) {
      for (const char* key : {"ranks", "threads_per_rank", "memory_bytes", "expected_step_s",
                              "micro_batch", "count", "threads"}) {
        EXPECT_TRUE(!item.contains(key) || item.at(key).is_number()) << item;
      }
    }
  }
  EXPECT_EQ(heteroperf({"list", "-v"}).out, heteroperf({"list"}).out);
  EXPECT_NE(heteroperf({"list", "--details"}).out.find("expected step"), std::string::npos);
}

TEST(Cli, SaysOnWhatTheScalingRuleRests) {
  const Json listing = Json::parse(heteroperf({"list", "--json"}).out);
  for (const Json& item : listing.at("items")) {
    const std::string reason = item.at("reason");
    EXPECT_NE(reason.find("nominal"), std::string::npos) << reason;
    EXPECT_NE(reason.find("40 per core"), std::string::npos) << reason;
    EXPECT_EQ(reason.find("one size") == 0, item.at("name") == "image") << reason;
  }
}

TEST(Cli, CountsBeyondExactDoublesAreText) {
  const Words words{"count", "micro", "--batch", "1099511627776", "--json"};
  const Json count = Json::parse(heteroperf(words).out);
  EXPECT_TRUE(count.at("memory").at("activations_bytes").is_string()) << count;
  EXPECT_TRUE(count.at("memory").at("weights_bytes").is_number()) << count;
  EXPECT_EQ(count.at("input").at("samples"), 1099511627776);
}

TEST(Cli, LeavesOutConventionsThatDoNotCountAModel) {
  const Words words{"count", "resnet18", "--convention", "all", "--json"};
  const Json conventions = Json::parse(heteroperf(words).out).at("conventions");
  EXPECT_FALSE(conventions.contains("palm"));
  EXPECT_TRUE(conventions.contains("aiperf"));
  const Json of_gpt =
      Json::parse(heteroperf({"count", "nano", "--convention", "all", "--json"}).out);
  EXPECT_TRUE(of_gpt.at("conventions").contains("palm"));
  const CommandResult table = heteroperf({"count", "resnet18", "--convention", "all"});
  EXPECT_EQ(table.out.find("palm"), std::string::npos) << table.out;
}

TEST(Cli, TellsAProblemOnce) {
  const std::string text = heteroperf({"count", "vgg16", "--image", "8x8"}).err;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(Cli, TheEnvironmentMirrorsLongOptions) {
  EXPECT_TRUE(
      Json::accept(heteroperf({"list", "models"}, ".", {"HETEROPERF_JSON=1", "NO_COLOR=1"}).out));
  EXPECT_FALSE(Json::accept(heteroperf({"list", "models"}, ".", {"HETEROPERF_JSON=0"}).out));
  EXPECT_TRUE(Json::accept(heteroperf({"count", "lmm"}, ".", {"HETEROPERF_JSON=1"}).out));
  const std::string batch = "HETEROPERF_COUNT_BATCH=3";
  const auto samples = [&](const Words& more) {
    Words words{"count", "nano", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Json::parse(heteroperf(words, ".", {batch}).out).at("input").at("samples");
  };
  EXPECT_EQ(samples({}), 3);
  EXPECT_EQ(samples({"--batch", "2"}), 2) << "the command line wins";
  // A variable of another verb is none of this one's business, good or bad.
  const CommandResult other = heteroperf({"list", "models"}, ".", {"HETEROPERF_COUNT_BATCH=many"});
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_EQ(other.err, "");
  EXPECT_EQ(heteroperf({"count", "nano"}, ".", {"HETEROPERF_COUNT_BATCH=many"}).exit_code, 2);
  EXPECT_EQ(heteroperf({"count", "nano"}, ".", {"HETEROPERF_PLAN_BATCH=many"}).exit_code, 0);
  EXPECT_EQ(heteroperf({"count", "nano"}, ".", {"HETEROPERF_MODEL=other"}).exit_code, 0);
  EXPECT_NE(heteroperf({"count", "nano", "-v"}, ".", {batch}).err.find(batch), std::string::npos);
}

TEST(Cli, WarnsOfUnknownVariables) {
  const CommandResult result = heteroperf({"list", "models", "--json"}, ".",
                                          {"HETEROPERF_RANK=2", "HETEROPERF_MODULE_PATH="});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(Json::accept(result.out));
  EXPECT_NE(result.err.find("HETEROPERF_RANK in the environment"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("Did you mean 'HETEROPERF_RANKS'"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("HETEROPERF_MODULE_PATH"), std::string::npos) << result.err;
}

TEST(Cli, OnlyTheFirstLaunchedRankSpeaks) {
  const auto as_rank = [](const char* rank, const Words& words) {
    return heteroperf(words, ".",
                      {std::string("OMPI_COMM_WORLD_RANK=") + rank, "OMPI_COMM_WORLD_SIZE=2"});
  };
  const Words cases[] = {{"list", "--json"},
                         {"count", "nano"},
                         {"rum"},
                         {"run", "--ranx=3"},
                         {"run", "--help"},
                         {"verify", "nowhere"},
                         {"run", "llm", "--json", "--set", "sed=1"}};
  for (const Words& words : cases) {
    const CommandResult first = as_rank("0", words), second = as_rank("1", words);
    EXPECT_NE(first.out + first.err, "") << words.front();
    EXPECT_EQ(second.out + second.err, "") << words.front();
    EXPECT_EQ(first.exit_code, second.exit_code) << words.front();
  }
}

TEST(Cli, ABrokenLauncherEnvironmentIsAnError) {
  const CommandResult result = heteroperf({"list"}, ".", {"PMI_RANK=first", "PMI_SIZE=2"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_NE(result.err.find("PMI_RANK=first"), std::string::npos) << result.err;
}

TEST(Cli, HelpNamesColourFlagsPlainly) {
  const std::string help = heteroperf({"show", "--help"}).out;
  EXPECT_NE(help.find("--no-color"), std::string::npos);
  EXPECT_EQ(help.find("{false}"), std::string::npos) << help;
}

TEST(Cli, DoctorReportsBackends) {
  const CommandResult result = heteroperf({"doctor", "--json"});
  const Json report = Json::parse(result.out);
  EXPECT_TRUE(report.at("backends").contains("mpi"));
  EXPECT_TRUE(report.at("backends").contains("hdf5"));
  bool failed = false;
  for (const Json& check : report.at("checks")) {
    failed = failed || check.at("status") == "fail";
    EXPECT_EQ(check.at("hint") == "", check.at("status") == "ok") << check;
  }
  EXPECT_EQ(result.exit_code, failed ? 5 : 0) << result.out;
}

}  // namespace
}  // namespace heteroperf::testing
