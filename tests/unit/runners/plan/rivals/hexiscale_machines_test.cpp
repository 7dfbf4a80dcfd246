#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"

namespace heteroperf {
namespace {

constexpr const char* machine_list =
    R"({"machine_specs":{"A100":[312,40,300],"3090":[71,24,31.5]},
        "machine_amounts":{"3090":{"4":2,"8":0},"A100":{"2":1}},"baseline_machines":{}})";
const HexiScaleLinks given_links{BytesPerSecond(5e8), Seconds(2e-5), Seconds(5e-6)};

std::string list_problem_of(const std::string& text, const HexiScaleLinks& with = given_links) {
  try {
    parse_hexiscale(text, "machines.json", with);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(HexiScaleImport, ReadsMachines) {
  const Cluster cluster = parse_hexiscale(machine_list, "machines.json", given_links);
  ASSERT_EQ(cluster.ranks.size(), 10u);
  ASSERT_EQ(cluster.classes.size(), 2u);
  EXPECT_EQ(cluster.classes[0].name, "3090");
  EXPECT_EQ(cluster.classes[0].count, 8);
  EXPECT_EQ(cluster.classes[0].memory, Bytes(24'000'000'000));
  EXPECT_EQ(cluster.classes[1].rates.at("bf16"), OpsPerSecond(312e12));
  EXPECT_EQ(cluster.ranks[9].device_class, "A100");
  EXPECT_EQ(cluster.ranks[3].cluster, "machine0");
  EXPECT_EQ(cluster.ranks[4].cluster, "machine1");
  EXPECT_DOUBLE_EQ(cluster.link(RankId(0), RankId(3)).bandwidth().value(), 31.5e9);
  EXPECT_EQ(cluster.link(RankId(3), RankId(4)).latency(), Seconds(2e-5));
  EXPECT_DOUBLE_EQ(cluster.link(RankId(0), RankId(9)).bandwidth().value(), 5e8);
}

TEST(HexiScaleImport, BadListsAreNamed) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = machine_list;
    return list_problem_of(text.replace(text.find(from), from.size(), to));
  };
  const std::pair<std::string, std::string> cases[] = {
      {with("\"3090\":[71", "\"3080\":[71"), "machine_amounts.3090 has no specs"},
      {with("[312,40,300]", "[312,40]"), "[teraflops, GB, GB/s within a machine]"},
      {with("[312,40,300]", "[312,-40,300]"), "machine_specs.A100[1] is -40"},
      {with("[312,40,300]", "[312,1e999,300]"), "machines.json"},
      {with("\"4\":2", "\"0\":2"), "machine_amounts.3090.0 is named"},
      {with("\"4\":2", "\"four\":2"), "machine_amounts.3090.four is named"},
      {with("\"4\":2", "\"4\":-2"), "machine_amounts.3090.4"},
      {with("\"4\":2", "\"4\":100000"), "machine_amounts.3090.4"},
      {with("machine_specs", "specs"), "machine_specs"},
      {list_problem_of(R"({"machine_specs":{},"machine_amounts":{}})"), "there are no devices"},
      {list_problem_of(machine_list, HexiScaleLinks{}), "the bandwidth between machines is 0"},
      {list_problem_of("{"), "machines.json"},
  };
  for (const auto& [message, words] : cases) {
    EXPECT_NE(message.find(words), std::string::npos) << words << "\nnot in: " << message;
  }
}

TEST(HexiScaleImport, ASourceSaysHowMachinesAreLinked) {
  const std::filesystem::path folder = testing::TempDir() + "hexiscale@home";
  std::filesystem::create_directories(folder);
  const std::string file = folder / "machines.json";
  std::ofstream(file) << machine_list;
  const Cluster cluster = find_machine("hexiscale:" + file + "@0.5,20,5");
  EXPECT_EQ(cluster.ranks.size(), 10u);
  EXPECT_DOUBLE_EQ(cluster.link(RankId(3), RankId(4)).bandwidth().value(), 5e8);
  EXPECT_DOUBLE_EQ(cluster.link(RankId(3), RankId(4)).latency().value(), 2e-5);
  EXPECT_DOUBLE_EQ(cluster.link(RankId(0), RankId(3)).latency().value(), 5e-6);
  EXPECT_EQ(find_machine("hexiscale:" + file + "@0.5").link(RankId(3), RankId(4)).latency(),
            Seconds(0));
  for (const char* given :
       {"", "@", "@fast", "@0.5,", "@0.5,-1", "@0.5,1,2,3", "@inf", "@0.5 ", "@nan", "@1e400"}) {
    EXPECT_THROW(find_machine("hexiscale:" + file + given), UserError) << given;
  }
  EXPECT_THROW(find_machine("hexiscale:" + file + "@0"), UserError);
  EXPECT_THROW(find_machine("hexiscale:/nowhere.json@1"), UserError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heteroperf
