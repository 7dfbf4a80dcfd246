#include <gtest/gtest.h>

#include "metrics/error.hpp"
#include "suite/run/run_config_json.hpp"
#include "suite/run/run_recorder.hpp"

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
  const RunConfig config = apply_settings({}, {{"scale.ranks", "3"},
                                               {"measure.duration_s", "2.5"},
                                               {"quick", "true"},
                                               {"model.size", "micro"}});
  EXPECT_EQ(config.scale.ranks, 3);
  EXPECT_EQ(config.measure.duration_s, 2.5);
  EXPECT_TRUE(config.quick);
  EXPECT_EQ(config.model.size, "micro");
}

TEST(RunConfig, LaterSettingsWin) {
  EXPECT_EQ(apply_settings({}, {{"seed", "1"}, {"seed", "2"}}).seed, 2u);
}

TEST(RunConfig, ReportsAllWrongSettingsAtOnce) {
  const std::string text = error_of([] {
    apply_settings(
        {},
        {{"scale.rnaks", "3"}, {"seed", "-1"}, {"measure.duration_s", "nan"}, {"quick", "maybe"}});
  });
  EXPECT_NE(text.find("'scale.rnaks'. Did you mean 'scale.ranks'?"), std::string::npos) << text;
  EXPECT_NE(text.find("seed = '-1'"), std::string::npos) << text;
  EXPECT_NE(text.find("measure.duration_s = 'nan'"), std::string::npos) << text;
  EXPECT_NE(text.find("quick = 'maybe'"), std::string::npos) << text;
}

TEST(RunConfig, RefusesForeignAndMalformedDocuments) {
  EXPECT_NE(error_of([] { run_config_from_json_text("{"); }).find("not JSON"), std::string::npos);
  EXPECT_NE(error_of([] { run_config_from_json_text("{}"); }).find("_format"), std::string::npos);
  std::string text = to_json_text({});
  text.replace(text.find("\"ranks\": 0"), 10, "\"ranks\": \"two\"");
  EXPECT_NE(error_of([&] { run_config_from_json_text(text); }).find("scale.ranks"),
            std::string::npos);
}

TEST(RunConfig, ValidatesRangesAndNamesTogether) {
  RunConfig config;
  config.measure.duration_s = 0;
  config.scale.transport = "thread";
  config.comm.heartbeat_s = 20;
  const std::string text = error_of([&] { validate(config); });
  EXPECT_NE(text.find("measure.duration_s = 0"), std::string::npos) << text;
  EXPECT_NE(text.find("Did you mean 'threads'?"), std::string::npos) << text;
  EXPECT_NE(text.find("comm.heartbeat_s"), std::string::npos) << text;
  EXPECT_EQ(error_of([] { validate(RunConfig{}); }), "no error");
}

TEST(ReproduceCommand, QuotesWhatAShellWouldSplit) {
  RunIdentity identity;
  identity.flags = {"--data", "text:my file.txt", "--set", "a=it's"};
  EXPECT_EQ(reproduce_command(identity, "llm"),
            "heteroperf run llm --data 'text:my file.txt' --set 'a=it'\\''s'");
}

}  // namespace
}  // namespace heteroperf
