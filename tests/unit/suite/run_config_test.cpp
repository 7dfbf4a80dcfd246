#include <gtest/gtest.h>

#include <set>

#include "metrics/base/error.hpp"
#include "metrics/precision_goal.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/suite_record.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/catalog.hpp"

namespace heteroperf {
namespace {

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

/// Throws UserError with everything that is wrong with the settings.
RunConfig applied(const std::vector<Setting>& settings) {
  ProblemList problems;
  const RunConfig config = apply_settings({}, settings, problems);
  problems.throw_if_any();
  return config;
}

/// The same of the configuration's values.
void require_valid(const RunConfig& config) {
  ProblemList problems;
  validate(config, {}, problems);
  problems.throw_if_any();
}

TEST(Catalog, HasTheWorkloadsOfAWholeSuite) {
  std::vector<std::string> names = workload_names();
  std::erase_if(names, [](const std::string& name) { return !is_in_suite(name); });
  EXPECT_TRUE(is_whole_suite(names));
}

TEST(RunConfig, ASlowdownReadsBack) {
  for (const char* text : {"fast:40:1.5", "a:b:0:0.25"}) {
    const RunConfig config = applied({{"workload", "llm"}, {"pace.slow", text}});
    EXPECT_EQ(to_string(config.pace.slow), text);
    EXPECT_EQ(to_string(run_config_from_json_text(to_json_text(config)).pace.slow), text);
  }
  EXPECT_EQ(applied({{"pace.slow", "a:b:7:2"}}).pace.slow, (Slowdown{"a:b", 7, 2}));
  for (const char* text : {"fast", "fast:4", ":4:2", "fast:-1:2", "fast:4:0", "fast:4:-2",
                           "fast:4:1.5x", "fast::2", "fast:4:", "fast:4.5:2", "::"}) {
    EXPECT_NE(error_of([&] {
                applied({{"pace.slow", text}});
              }).find("CLASS:STEP:FACTOR"),
              std::string::npos)
        << text;
  }
}

TEST(RunConfig, AdaptingNeedsAPlanTimesAndSteps) {
  const auto problems_of = [](const std::vector<Setting>& settings) {
    return error_of([&] {
      ProblemList problems;
      validate(applied(settings), settings, problems);
      problems.throw_if_any();
    });
  };
  const Setting llm{"workload", "llm"}, adapt{"adapt.every_steps", "20"},
      cluster{"cluster.file", "fast2_slow6"};
  EXPECT_EQ(problems_of({llm, adapt, cluster}), "no error");
  EXPECT_EQ(problems_of({llm, adapt, {"plan.file", "p.json"}}), "no error");
  EXPECT_EQ(problems_of({llm, adapt, cluster, {"plan.file", "auto"}}), "no error");
  EXPECT_EQ(problems_of({llm, adapt, cluster, {"measure.steps", "23"}}), "no error");
  EXPECT_NE(problems_of({llm, adapt}).find("no cluster is named"), std::string::npos);
  EXPECT_NE(problems_of({llm, {"plan.file", "auto"}}).find("nothing to plan for"),
            std::string::npos);
  EXPECT_NE(problems_of({llm, adapt, cluster, {"measure.steps", "22"}}).find("no step is left"),
            std::string::npos);
  EXPECT_NE(problems_of({adapt, cluster}).find("Name a workload: image or llm"), std::string::npos);
  EXPECT_NE(problems_of({llm, {"adapt.replan_threshold", "0.1"}}).find("changes nothing"),
            std::string::npos);
  EXPECT_NE(problems_of({llm, adapt, cluster, {"trace", "t.json"}}).find("exclude each other"),
            std::string::npos);
  // A search has no plan, and is not asked for a cluster.
  const std::string search = problems_of({{"workload", "automl-image"}, adapt});
  EXPECT_NE(search.find("changes nothing in automl-image"), std::string::npos) << search;
  EXPECT_EQ(search.find("cluster"), std::string::npos) << search;
  // All at once.
  const std::string both =
      problems_of({llm, adapt, {"measure.steps", "10"}, {"pace.slow", "fast:12:2"}});
  for (const char* part : {"no cluster is named", "no step is left", "pace.slow"}) {
    EXPECT_NE(both.find(part), std::string::npos) << both;
  }
}

TEST(RunConfig, ABatchSaysTheSamplesOfASearchedPlan) {
  const auto problems_of = [](const std::vector<Setting>& settings) {
    return error_of([&] {
      ProblemList problems;
      validate(applied(settings), settings, problems);
      problems.throw_if_any();
    });
  };
  const std::vector<Setting> searched{{"workload", "llm"},
                                      {"cluster.file", "fast2_slow6"},
                                      {"plan.file", "auto"},
                                      {"batch.micro_batch", "1"}};
  EXPECT_EQ(problems_of(searched), "no error");
  std::vector<Setting> degrees = searched;
  degrees.push_back({"plan.pipeline", "2"});
  EXPECT_NE(problems_of(degrees).find("exclude each other"), std::string::npos);
}

TEST(RunConfig, RoundTripsThroughJson) {
  RunConfig config;
  config.workload = "llm";
  config.seed = 18446744073709551615ULL;
  config.measure.duration_s = 0.1;
  config.scale.ranks = 7;
  const std::string text = to_json_text(config);
  EXPECT_EQ(to_json_text(run_config_from_json_text(text)), text);
}

TEST(RunConfig, EverySettingReadsBack) {
  const RunConfig config = applied({{"scale.ranks", "3"},
                                    {"measure.duration_s", "2.5"},
                                    {"optimizer.clip_norm", "0"},
                                    {"model.size", "micro"}});
  EXPECT_EQ(config.scale.ranks, 3);
  EXPECT_EQ(config.measure.duration_s, 2.5);
  EXPECT_EQ(config.optimizer.clip_norm, 0.0);
  EXPECT_FALSE(config.optimizer.weight_decay);
  EXPECT_EQ(config.model.size, "micro");
}

TEST(RunConfig, OtherVerbsHaveTheKeysOfCommAlone) {
  ProblemList problems;
  const CommConfig config = comm_config_of({{"comm.timeout_s", "3", "--timeout"}},
                                           {"comm.check=true", "comm.timeout_s=4"}, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(config.check);
  EXPECT_EQ(config.timeout_s, 4);
  EXPECT_FALSE(comm_config_of({}, {}, problems).check);

  comm_config_of({{"comm.timeout_s", "0", "--timeout"}},
                 {"seed=1", "comm.chek=true", "comm.check", "comm.host_path=air"}, problems);
  const std::string text = error_of([&] { problems.throw_if_any(); });
  for (const char* part :
       {"--timeout 0 is out of range", "unknown configuration key 'seed'",
        "'comm.chek'. Did you mean 'comm.check'?", "--set comm.check is not usable",
        "comm.host_path = 'air' is not known"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(RunConfig, LaterSettingsWin) { EXPECT_EQ(applied({{"seed", "1"}, {"seed", "2"}}).seed, 2u); }

TEST(RunConfig, ReportsAllWrongSettingsAtOnce) {
  const std::string text = error_of([] {
    applied(
        {{"scale.rnaks", "3"}, {"seed", "-1"}, {"measure.duration_s", "nan"}, {"quick", "false"}});
  });
  EXPECT_NE(text.find("'scale.rnaks'. Did you mean 'scale.ranks'?"), std::string::npos) << text;
  EXPECT_NE(text.find("seed = '-1'"), std::string::npos) << text;
  EXPECT_NE(text.find("measure.duration_s = 'nan'"), std::string::npos) << text;
  EXPECT_NE(text.find("quick = 'false' is not usable"), std::string::npos) << text;
}

TEST(RunConfig, RefusesForeignAndMalformedDocuments) {
  EXPECT_NE(error_of([] { run_config_from_json_text("{"); }).find("not valid JSON"),
            std::string::npos);
  EXPECT_NE(error_of([] { run_config_from_json_text("{}"); }).find("_format"), std::string::npos);
  std::string text = to_json_text({});
  text.replace(text.find("\"ranks\": 0"), 10, "\"ranks\": \"two\"");
  EXPECT_NE(error_of([&] { run_config_from_json_text(text); }).find("scale.ranks"),
            std::string::npos);
}

TEST(RunConfig, ValidatesRangesAndNamesTogether) {
  RunConfig config;
  config.measure.duration_s = 0;
  config.plan.schedule = "zbh1";
  config.comm.heartbeat_s = 20;
  const std::string text = error_of([&] { require_valid(config); });
  EXPECT_NE(text.find("measure.duration_s = '0'"), std::string::npos) << text;
  EXPECT_NE(text.find("Did you mean 'zb-h1'?"), std::string::npos) << text;
  EXPECT_NE(text.find("comm.heartbeat_s"), std::string::npos) << text;
  EXPECT_EQ(error_of([] { require_valid({}); }), "no error");
}

std::string problems_of(const std::vector<Setting>& settings) {
  ProblemList problems;
  validate(apply_settings({}, settings, problems), settings, problems);
  return error_of([&] { problems.throw_if_any(); });
}

TEST(RunConfig, OptimizerValuesHaveRanges) {
  EXPECT_EQ(problems_of({{"optimizer.weight_decay", "0"},
                         {"optimizer.clip_norm", "0"},
                         {"optimizer.warmup_steps", "0"},
                         {"optimizer.learning_rate", "1e-9"}}),
            "no error");
  for (const char* path : {"optimizer.learning_rate", "optimizer.weight_decay",
                           "optimizer.clip_norm", "optimizer.warmup_steps"}) {
    const std::string text = problems_of({{path, "-1"}});
    EXPECT_NE(text.find(path + std::string(" = '-1' is out of range")), std::string::npos) << text;
  }
  EXPECT_NE(problems_of({{"optimizer.learning_rate", "0"}}).find("above 0"), std::string::npos);
}

TEST(RunConfig, MessagesNameTheFlagThatWasTyped) {
  EXPECT_NE(problems_of({{"scale.ranks", "1.5", "--ranks"}}).find("--ranks 1.5 is not usable"),
            std::string::npos);
  EXPECT_NE(problems_of({{"scale.ranks", "2000000", "--ranks"}}).find("--ranks 2000000 is out of"),
            std::string::npos);
  EXPECT_NE(problems_of({{"measure.duration_s", "5s", "--duration"}})
                .find("--duration 5s is not usable (expected a number of seconds, without a unit)"),
            std::string::npos);
}

TEST(RunConfig, AKeyThatTheWorkloadNeverReadsIsRefused) {
  const std::string text =
      problems_of({{"workload", "llm"}, {"model.name", "vgg16", "--model"}, {"automl.rungs", "2"}});
  EXPECT_NE(text.find("--model vgg16 changes nothing in llm (only image can use it)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("automl.rungs"), std::string::npos) << text;
  EXPECT_NE(problems_of({{"workload", "llm"}, {"model.name", "resnet18", "--model"}})
                .find("--model resnet18 changes nothing"),
            std::string::npos);
  EXPECT_EQ(problems_of({{"model.name", "vgg16"}, {"automl.rungs", "2"}}), "no error");
}

TEST(RunConfig, DegreesFitTheRanks) {
  EXPECT_EQ(problems_of({{"scale.ranks", "8"}, {"plan.pipeline", "2"}, {"plan.tensor", "2"}}),
            "no error");
  EXPECT_EQ(problems_of({{"scale.ranks", "8"}, {"plan.pipeline", "2"}, {"plan.data", "4"}}),
            "no error");
  EXPECT_NE(problems_of({{"scale.ranks", "6"}, {"plan.pipeline", "4", "--pp"}})
                .find("pp 4 x tp 1 does not fit 6 ranks (4 ranks make one replica)"),
            std::string::npos);
  EXPECT_NE(problems_of({{"scale.ranks", "1"}, {"plan.tensor", "2"}, {"plan.data", "3"}})
                .find("pp 1 x tp 2 x dp 3 does not fit 1 rank (6 ranks are asked for)"),
            std::string::npos);
}

TEST(RunConfig, PlanValuesAreTold) {
  const std::string text = problems_of({{"plan.schedule", "zbh1", "--schedule"},
                                        {"plan.recompute", "half"},
                                        {"plan.zero_stage", "3"},
                                        {"plan.pipeline", "0"}});
  EXPECT_NE(text.find("--schedule zbh1 is not known"), std::string::npos) << text;
  EXPECT_NE(text.find("Did you mean 'zb-h1'?"), std::string::npos) << text;
  for (const char* path : {"plan.recompute", "plan.zero_stage", "plan.pipeline"}) {
    EXPECT_NE(text.find(path), std::string::npos) << text;
  }
}

TEST(RunConfig, APlanExcludesWhatItSays) {
  const std::string text = problems_of({{"workload", "llm"},
                                        {"plan.file", "p.json", "--plan"},
                                        {"plan.pipeline", "1", "--pp"},
                                        {"plan.schedule", "1f1b", "--schedule"},
                                        {"batch.micro_batches", "4", "--micro-batches"}});
  for (const char* flag : {"--pp 1", "--schedule 1f1b", "--micro-batches 4"}) {
    EXPECT_NE(text.find("--plan p.json and " + std::string(flag) + " exclude each other"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(problems_of({{"workload", "llm"}, {"plan.file", "p.json"}, {"scale.ranks", "3"}}),
            "no error");
}

TEST(RunConfig, ASearchHasNoPlanAndNoCluster) {
  const std::string text = problems_of({{"workload", "automl-image"},
                                        {"plan.tensor", "2", "--tp"},
                                        {"cluster.file", "laptop", "--cluster"},
                                        {"trace", "t.json", "--trace"}});
  for (const char* flag : {"--tp 2", "--cluster laptop", "--trace t.json"}) {
    EXPECT_NE(text.find(flag + std::string(" changes nothing in automl-image")), std::string::npos)
        << text;
  }
}

TEST(RunConfig, WhatNeedsAClusterOrOneWorkloadSaysSo) {
  const std::string text = problems_of(
      {{"pace.dilation", "2"}, {"with_baselines", "true"}, {"trace", "t.json", "--trace"}});
  EXPECT_NE(text.find("pace.dilation = '2' changes nothing"), std::string::npos) << text;
  EXPECT_NE(text.find("with_baselines = 'true' changes nothing"), std::string::npos) << text;
  EXPECT_NE(text.find("--trace t.json is not usable (it is the trace of one run)"),
            std::string::npos)
      << text;
  EXPECT_EQ(problems_of({{"workload", "llm"},
                         {"cluster.file", "fast2_slow6"},
                         {"pace.dilation", "2"},
                         {"with_baselines", "true"},
                         {"trace", "t.json"}}),
            "no error");
}

TEST(RunConfig, ADocumentWithAPlanFileLeavesTheDegreesToIt) {
  RunConfig config;
  config.workload = "llm";
  EXPECT_NE(to_json_text(config).find("\"pipeline\": 1"), std::string::npos);
  config.plan.file = "p.json";
  const std::string text = to_json_text(config);
  for (const char* absent : {"pipeline", "micro_batches", "zero_stage"}) {
    EXPECT_EQ(text.find(absent), std::string::npos) << text;
  }
  EXPECT_EQ(run_config_from_json_text(text).plan.file, "p.json");
}

TEST(RunConfig, StepsAndDurationExcludeEachOther) {
  EXPECT_NE(problems_of({{"measure.steps", "4", "--steps"}, {"measure.duration_s", "3"}})
                .find("--steps 4 and measure.duration_s = '3' exclude each other"),
            std::string::npos);
}

TEST(RunConfig, APrecisionIsAPercentage) {
  for (const char* text : {"1.5%", "1.5"}) {
    const RunConfig config = applied({{"workload", "llm"}, {"measure.until_percent", text}});
    EXPECT_EQ(config.measure.until_percent.value, 1.5);
    EXPECT_EQ(run_config_from_json_text(to_json_text(config)).measure.until_percent.value, 1.5);
    EXPECT_EQ(precision_goal(config.measure)->fraction, 0.015);
    EXPECT_NE(reproduce_command(config, "").find(" --duration 60 --until 1.5"), std::string::npos);
  }
  EXPECT_FALSE(precision_goal(MeasureConfig{}));
  EXPECT_EQ(to_json_text(RunConfig{}).find("until"), std::string::npos);
}

TEST(RunConfig, APrecisionIsOfOneModelByTime) {
  const Setting until{"measure.until_percent", "1"};
  EXPECT_EQ(problems_of({{"workload", "image"}, until}), "no error");
  EXPECT_EQ(problems_of({{"workload", "image"}, {"measure.until_percent", "0"}}), "no error");
  EXPECT_NE(problems_of({{"workload", "image"}, until, {"measure.steps", "3"}})
                .find("measure.until_percent = '1' and measure.steps = '3' exclude each other"),
            std::string::npos);
  EXPECT_NE(problems_of({{"workload", "automl-image"}, until}).find("changes nothing in automl"),
            std::string::npos);
  EXPECT_NE(problems_of({until}).find("Name a workload: image or llm"), std::string::npos);
}

TEST(RunConfig, TheDocumentLeavesOutWhatDoesNotApply) {
  RunConfig config;
  config.workload = "image";
  config.measure.steps = 5;
  const std::string text = to_json_text(config);
  for (const char* absent : {"automl", "size", "sequence_length", "duration_s", "out"}) {
    EXPECT_EQ(text.find("\"" + std::string(absent) + "\""), std::string::npos) << text;
  }
  EXPECT_NE(text.find("\"steps\": 5"), std::string::npos) << text;
}

/// A key or a flag that two rows claim, or a row that says nothing, would mislead --help and --set.
TEST(RunConfig, EveryKeyIsOneRowThatSaysAll) {
  const std::vector<ConfigKey>& keys = config_keys();
  EXPECT_GT(keys.size(), 30u);
  std::set<std::string> names;
  for (const ConfigKey& key : keys) {
    EXPECT_TRUE(names.insert(key.path).second) << key.path << " has two rows";
    EXPECT_TRUE(key.flag.empty() || names.insert(key.flag).second) << key.flag << " has two keys";
    EXPECT_FALSE(key.default_text.empty() || key.default_text == "null") << key.path;
    EXPECT_FALSE(key.help.empty() || key.values.empty()) << key.path;
    // What a row says is what parsing takes.
    const std::string text = key.values.substr(0, key.values.find_first_of(", "));
    const bool names_values = key.values.find(", ") != std::string::npos;
    EXPECT_TRUE(!names_values ||
                problems_of({{key.path, text}}).find(" is not ") == std::string::npos)
        << key.path;
  }
}

TEST(RunConfig, NumbersOutsideTheirRowsRangeAreRefused) {
  for (const ConfigKey& key : config_keys()) {
    const std::size_t to = key.values.find(" to ");
    if (to == std::string::npos) continue;
    const std::string low = key.values.substr(0, to);
    EXPECT_EQ(problems_of({{key.path, low}}).find("out of range"), std::string::npos) << key.path;
    EXPECT_NE(problems_of({{key.path, "-1"}}).find(key.path), std::string::npos) << key.path;
  }
}

RunConfig settled_run(const std::string& workload) {
  RunConfig config;
  config.workload = workload;
  config.scale.ranks = 2;
  config.scale.threads_per_rank = 3;
  config.model.size = "nano";
  return config;
}

TEST(ReproduceCommand, SpellsOutScaleSizeAndLength) {
  RunConfig config = settled_run("llm");
  EXPECT_EQ(reproduce_command(config, ""),
            "heteroperf run llm --ranks 2 --threads-per-rank 3 --transport threads --size nano "
            "--duration 60");
  config.measure.steps = 7;
  config.quick = true;
  EXPECT_EQ(reproduce_command(config, "").find("heteroperf run llm --quick --ranks 2"), 0u);
  EXPECT_NE(reproduce_command(config, "").find("--size nano --steps 7 --set"), std::string::npos);
}

TEST(ReproduceCommand, NamesTheLauncherInsteadOfRanksAndTransport) {
  RunConfig config = settled_run("image");
  config.scale.transport = Transport::mpi;
  EXPECT_EQ(reproduce_command(config, "mpirun"),
            "mpirun -n 2 heteroperf run image --threads-per-rank 3 --model resnet18 --duration 60");
}

TEST(ReproduceCommand, KeepsPlanAndCluster) {
  RunConfig config = settled_run("llm");
  config.plan.pipeline = 2;
  config.plan.schedule = "zb-h1";
  config.plan.recompute = Recomputation::full;
  config.cluster.file = "fast2_slow6";
  config.with_baselines = true;
  config.trace = "trace.json";
  const std::string command = reproduce_command(config, "");
  for (const char* words : {" --pp 2", " --schedule zb-h1", " --set plan.recompute=full",
                            " --cluster fast2_slow6", " --with-baselines"}) {
    EXPECT_NE(command.find(words), std::string::npos) << command;
  }
  EXPECT_EQ(command.find("trace"), std::string::npos) << command;
}

TEST(ReproduceCommand, HasEveryChangedKeyButOut) {
  RunConfig config = settled_run("llm");
  config.out = "mine";
  config.seed = 9;
  config.data.source = "text:my file's.txt";
  config.optimizer.learning_rate = 1e-05;
  const std::string command = reproduce_command(config, "");
  EXPECT_EQ(command.find("mine"), std::string::npos) << command;
  EXPECT_NE(command.find(" --seed 9"), std::string::npos) << command;
  EXPECT_NE(command.find(" --data 'text:my file'\\''s.txt'"), std::string::npos) << command;
  EXPECT_NE(command.find(" --set optimizer.learning_rate=1e-05"), std::string::npos) << command;
}

}  // namespace
}  // namespace heteroperf
