#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/schedule/formats/csv.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/ir/placement.hpp"

namespace heteroperf {
namespace {

using nlohmann::json;

template <class Call>
std::string complaint(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

std::string complaint_of(const std::string& text) {
  return complaint([&] { schedule_from_text(text); });
}

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

Schedule csv_sample(const std::string& name) {
  const std::string text = read_text_file(HETEROPERF_TEST_DATA "/schedules/" + name, "sample");
  return read_csv(text, {}, {}).schedule;
}

PipelineGraph skewed_towers() {
  PipelineGraph graph;
  graph.ranks = 2;
  graph.micro_batches = 4;
  graph.parts = 2;
  graph.latency = 0.1;
  graph.fused_cost_factor = 0.9;
  for (const int rank : {0, 1, 1, 0}) {
    Segment segment;
    segment.name = "layer \"" + std::to_string(graph.segments.size()) + "\" ü";
    segment.branch = graph.segments.size() < 2 ? "image" : "text";
    segment.rank = rank;
    segment.forward = 1.0 / 3;
    segment.input_gradient = 1e-300;
    segment.weight_gradient = 12345678.9;
    segment.activation = 0.5;
    graph.segments.push_back(segment);
  }
  graph.edges = {{0, 1, 1e6, true}, {2, 3, 7, false}};
  graph.interactions = {{"join", {1, 3}, 2, 0.25}};
  graph.tied = {{0, 2}, {1, 3}};
  graph.micro_batch_scale = {1, 2, 0.5, 0.5};
  normalise(graph);
  return graph;
}

/// Every operation with every field, lowered or not.
Schedule everything() {
  Schedule schedule;
  schedule.name = "every \\ \"thing\"";
  schedule.chunks = 2;
  schedule.level = ScheduleLevel::lowered;
  schedule.graph = skewed_towers();
  schedule.programs.resize(2);
  for (int op = 0; op < op_count; ++op) {
    Instruction i = compute(static_cast<Op>(op), 1, 3, 1);
    i.edge = 0;
    i.peer = 1;
    i.group = 11;
    i.buffer = 12;
    i.sequence = 13;
    i.fused_with_next = op % 3 == 0;
    schedule.programs[0].push_back(i);
  }
  schedule.programs[0].push_back(compute(Op::forward, 0, 0));
  Instruction step;
  step.op = Op::opt_step;
  Instruction interact;
  interact.op = Op::interact;
  interact.edge = 0;
  interact.micro_batch = 2;
  Instruction idle;
  Instruction largest = compute(Op::forward, 3, 3, 1);
  largest.group = static_cast<int>(most_tasks - 1);
  schedule.programs[1] = {idle, step, interact, largest};
  return schedule;
}

TEST(ScheduleJson, GivesAnEqualScheduleBack) {
  Schedule bidirectional;
  bidirectional.name = "two ways";
  bidirectional.graph = bidirectional_graph(4, 8, uniform_costs(4, 1, 2, 3, 0.1));
  bidirectional.programs.resize(4);
  for (const Schedule& schedule :
       {everything(), bidirectional, csv_sample("pytorch_dualpipev_4rank_10mb.csv"),
        csv_sample("pytorch_zb1p_2rank_2stage_compute.csv"),
        csv_sample("pytorch_zb1p_2rank_2stage_comms.csv")}) {
    const std::string text = schedule_to_text(schedule);
    EXPECT_EQ(schedule_from_text(text), schedule) << text;
    EXPECT_EQ(schedule_to_text(schedule_from_text(text)), text);
  }
}

TEST(ScheduleJson, RandomSchedulesComeBack) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    Schedule schedule;
    const int ranks = 1 + static_cast<int>(random() % 5),
              chunks = 1 + static_cast<int>(random() % 3);
    const int micro_batches = 1 + static_cast<int>(random() % 9);
    schedule.chunks = chunks;
    schedule.graph = chain_graph(ranks, micro_batches, chunks, ChainPlacement::zig_zag,
                                 uniform_costs(ranks, 0.1 * (random() % 100), 1.0 / 7, 2, 0.3));
    schedule.programs.resize(static_cast<std::size_t>(ranks));
    for (auto& program : schedule.programs) {
      for (unsigned k = random() % 20; k > 0; --k) {
        program.push_back(compute(static_cast<Op>(2 + random() % 5),
                                  SegmentId(random() % (ranks * chunks)),
                                  MicroBatchId(random() % micro_batches)));
      }
    }
    EXPECT_EQ(schedule_from_text(schedule_to_text(schedule)), schedule);
  }
}

TEST(ScheduleJson, HasFormatVersionAndHash) {
  const Schedule schedule = everything();
  const json document = json::parse(schedule_to_text(schedule));
  EXPECT_EQ(document["_format"], "heteroperf-schedule");
  EXPECT_EQ(document["_version"], 1);
  EXPECT_EQ(document["hash"], schedule_hash(schedule).hex());
  EXPECT_EQ(document["programs"].size(), 2u);
  EXPECT_EQ(document["graph"]["segments"][0]["backward"], 1e-300);
}

TEST(ScheduleJson, MayBeEditedByHand) {
  json document = json::parse(schedule_to_text(everything()));
  document["graph"]["latency"] = 5;  // costs are not part of the identity
  EXPECT_EQ(schedule_from_text(document.dump()).graph.latency, 5);
  document["programs"][1][0] = "F 0.1";
  EXPECT_SAYS(complaint_of(document.dump()), "the file was changed");
  document.erase("hash");
  EXPECT_EQ(to_text(schedule_from_text(document.dump()).programs[1][0]), "F 0.1");
}

TEST(ScheduleJson, SegmentsAreNamedOrNumbered) {
  json document = json::parse(schedule_to_text(everything()));
  document["graph"]["edges"][0]["to"] = "layer \"1\" ü";
  EXPECT_EQ(schedule_from_text(document.dump()), everything());
}

TEST(ScheduleJson, NamesEveryProblemWithItsKey) {
  json document = json::parse(schedule_to_text(everything()));
  document.erase("hash");
  document["chunks"] = 0;
  document["levl"] = "compute";
  document["graph"]["latency"] = "fast";
  document["graph"]["segments"][2]["rank"] = 2;
  document["graph"]["segments"][3]["forwards"] = 1;
  document["graph"]["edges"][1]["to"] = "layer \"3\" u";
  document["graph"]["interactions"][0]["members"][1] = 9;
  const std::string text = complaint_of(document.dump());
  EXPECT_SAYS(text, "chunks is 0 (must be a whole number from 1 to 134217728)");
  EXPECT_SAYS(text, "unknown key \"levl\". Did you mean \"level\"?");
  EXPECT_SAYS(text, "graph.latency is \"fast\" (must be a number)");
  EXPECT_SAYS(text, "graph.segments[2].rank is 2 (must be a whole number from 0 to 1)");
  EXPECT_SAYS(text, "unknown key \"forwards\" in graph.segments[3]. Did you mean \"forward\"?");
  EXPECT_SAYS(text,
              "graph.edges[1].to is \"layer \"3\" u\" (no segment bears this name). Did you mean");
  EXPECT_SAYS(text, "graph.interactions[0].members[1] is 9 (must be a whole number from 0 to 3)");
}

TEST(ScheduleJson, ChecksEveryInstruction) {
  const json whole = json::parse(schedule_to_text(everything()));
  const auto with = [&](const json& instruction) {
    json document = whole;
    document.erase("hash");
    document["programs"][1][0] = instruction;
    return complaint_of(document.dump());
  };
  EXPECT_EQ(with("F 3.3/1"), "");
  const std::string path = "programs[1][0] is ";
  EXPECT_SAYS(with("F 4.3/1"), path + "\"F 4.3/1\" (segments are 0 to 3)");
  EXPECT_SAYS(with("F 3.4/1"), "micro-batches are 0 to 3");
  EXPECT_SAYS(with("F 3.3/2"), "there are 2 parts");
  EXPECT_SAYS(with("F 3"), "a segment and micro-batch is needed");
  EXPECT_SAYS(with("SEND_ACT 1.0>2 e0"), "ranks are 0 to 1");
  EXPECT_SAYS(with("SEND_ACT 1.0>1 e2"), "there are 2 edges");
  EXPECT_SAYS(with("INTERACT.0 e1"), "there are 1 edges");
  EXPECT_SAYS(with("SEND_ACT 1.0>1"), "a message needs");
  EXPECT_SAYS(with("F 3.3 b134217728"), "numbers end at");
  for (const json& bad :
       {json("Q 3.3"), json(""), json("F 3.3 "), json("F 3.3 q1"), json("F 3.3 e"),
        json("F 3.3 + +"), json("F 3.3 e1 e1"), json("F 99999999999.0"), json("F 3.3/70000"),
        json("f 3.3"), json(7), json(nullptr), json("F -1.0"), json::array(),
        json("SEND_ACT 1.0<1 e0"), json("F 3.-3")}) {
    EXPECT_SAYS(with(bad), path);
  }
  json document = whole;
  document["programs"][1].push_back("F 0.0 +");
  EXPECT_SAYS(complaint_of(document.dump()), "programs[1] ends with an instruction fused");
  document["programs"].push_back(json::array());
  EXPECT_SAYS(complaint_of(document.dump()), "programs is a list of 3 (the graph has 2 ranks)");
}

TEST(ScheduleJson, RefusesWhatIsNoSchedule) {
  EXPECT_SAYS(complaint_of(""), "is empty");
  EXPECT_SAYS(complaint_of("{"), "is not valid JSON");
  EXPECT_SAYS(complaint_of("\xff\xfe"), "is not valid JSON");
  EXPECT_SAYS(complaint_of("{\"latency\":1e999}"), "is not valid JSON");
  EXPECT_SAYS(complaint_of("[]"), "the document is a list of 0 (must be an object)");
  EXPECT_SAYS(complaint_of("7"), "the document is 7");
  EXPECT_SAYS(complaint_of("{}"), "is not a schedule (it has no _format");
  const std::string head = "{\"_format\":\"heteroperf-schedule\",\"_version\":1";
  EXPECT_SAYS(complaint_of(head + "}"), "the key programs is missing");
  EXPECT_SAYS(complaint_of(head + ",\"level\":\"raised\"}"),
              "level is \"raised\" (must be one of compute, lowered)");
  EXPECT_SAYS(complaint_of("{\"name\":\"a\",\"name\":\"b\"}"), "the key \"name\" is there twice");
  EXPECT_SAYS(complaint_of(std::string(1'000'000, '[')), "nest more than");
  EXPECT_SAYS(complaint_of("{\"_format\":\"heteroperf-record\",\"_version\":2}"),
              "is a run's record, a schedule is wanted (its _format is \"heteroperf-record\"");
  EXPECT_SAYS(complaint_of("{\"_format\":\"heteroperf-schedule\",\"_version\":2}"), "version 1");
}

TEST(ScheduleJson, AbsurdSizesAreRefused) {
  json document = json::parse(schedule_to_text(everything()));
  document["graph"]["micro_batches"] = 1'000'000'000;
  EXPECT_SAYS(complaint_of(document.dump()), "graph.micro_batches is 1000000000");
  document["graph"]["micro_batches"] = 100'000'000;
  document["graph"].erase("micro_batch_scale");
  EXPECT_SAYS(complaint_of(document.dump()), "tasks");
  document = json::parse(schedule_to_text(everything()));
  document["graph"]["ranks"] = 100'000'000;
  EXPECT_NE(complaint_of(document.dump()), "");
  document["graph"]["ranks"] = 18446744073709551615ULL;
  EXPECT_SAYS(complaint_of(document.dump()), "graph.ranks is 18446744073709551615");
}

TEST(ScheduleJson, OnlyTheFirstOfManyProblemsAreSaid) {
  json document = json::parse(schedule_to_text(everything()));
  document["programs"][0] = std::vector<std::string>(100'000, "nonsense");
  EXPECT_LT(complaint_of(document.dump()).size(), 6000u);
}

TEST(ScheduleJson, DamagedDocumentsAreRefusedOrValid) {
  const std::string whole = schedule_to_text(everything());
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = whole;
    if (i % 4 == 0) text.resize(random() % text.size());
    for (int k = 0; k < 3 && !text.empty(); ++k) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    refused += !complaint_of(text).empty();
  }
  EXPECT_GT(refused, 1900);
}

TEST(InstructionText, BeginsWithWhatPeopleRead) {
  const Schedule schedule = everything();
  for (const Instruction& instruction : schedule.programs[0]) {
    std::string text;
    append_instruction(text, instruction);
    EXPECT_TRUE(text.starts_with(to_text(instruction))) << text;
    Instruction again;
    ASSERT_TRUE(parse_instruction(text, again)) << text;
    EXPECT_EQ(again, instruction) << text;
  }
  std::string text;
  Instruction send = compute(Op::send_act, 3, 7);
  send.peer = 1;
  send.edge = 3;
  send.group = 0;
  send.buffer = 2;
  send.sequence = 5;
  append_instruction(text, send);
  EXPECT_EQ(text, "SEND_ACT 3.7>1 e3 g0 b2 s5");
}

TEST(QuotedText, ShowsForeignBytesSafely) {
  EXPECT_EQ(in_quotes("a\n\x1b[1m\xff"), "\"a\\x0a\\x1b[1m\\xff\"");
  EXPECT_EQ(in_quotes(std::string(100, 'x')), "\"" + std::string(40, 'x') + "...\"");
  EXPECT_EQ(drawable("ü€𝄞"), "ü€𝄞");
  EXPECT_EQ(drawable("a\x1b\n\xff\xc0\xaf\xed\xa0\x80\xc2\x9b"),
            "a????????"
            "?");
}

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() /
        ("heteroperf_formats_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
         "_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& text) {
    const auto path = folder_ / "file.json";
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  std::filesystem::path folder_;
};

TEST_F(FileTest, ReadsAScheduleFile) {
  EXPECT_EQ(read_schedule_file(file(schedule_to_text(everything()))), everything());
}

TEST_F(FileTest, SaysWhyAFileCannotBeRead) {
  const std::string absent = (folder_ / "absent").string();
  EXPECT_SAYS(complaint([&] { read_schedule_file(absent); }), "No such file");
  EXPECT_SAYS(complaint([&] { read_costs_file(folder_.string()); }), "it is a folder");
  EXPECT_SAYS(complaint([&] { read_network_file(absent); }),
              "cannot read the network file " + absent);
  EXPECT_SAYS(complaint([&] { read_pipeline_graph_file(absent); }), "No such file");
}

TEST_F(FileTest, ReadsACostsFile) {
  const StageCosts costs =
      read_costs_file(file(R"({"forward":[1,2],"backward":[3,4.5],"weight":[0,6],"comm":0.5})"));
  EXPECT_EQ(costs.forward, (std::vector<double>{1, 2}));
  EXPECT_EQ(costs.input_gradient, (std::vector<double>{3, 4.5}));
  EXPECT_EQ(costs.weight_gradient, (std::vector<double>{0, 6}));
  EXPECT_EQ(costs.latency, 0.5);
}

TEST_F(FileTest, RefusesWrongCosts) {
  const auto says = [&](const std::string& text) {
    return complaint([&] { read_costs_file(file(text)); });
  };
  EXPECT_SAYS(says(R"({"forward":[1],"backward":[1]})"), "the key weight is missing");
  EXPECT_SAYS(says(R"({"forward":[1,2],"backward":[1],"weight":[1]})"), "list 2, 1 and 1 ranks");
  EXPECT_SAYS(says(R"({"forward":[],"backward":[],"weight":[]})"), "list 0, 0 and 0 ranks");
  EXPECT_SAYS(says(R"({"forward":[1,-2],"backward":[1,1],"weight":[1,1]})"), "forward[1] is -2");
  EXPECT_SAYS(says(R"({"forward":["1"],"backward":[1],"weight":[1]})"), "forward[0] is \"1\"");
  EXPECT_SAYS(says(R"({"forward":7,"backward":[1],"weight":[1]})"),
              "forward is 7 (must be a list)");
  EXPECT_SAYS(says(R"({"forward":[1],"backward":[1],"weight":[1],"comm":-1})"), "comm is -1");
  EXPECT_SAYS(says(R"({"forward":[1],"backward":[1],"weights":[1]})"), "Did you mean \"weight\"?");
  EXPECT_SAYS(says(R"({"forward":[1],"backward":[1],"weight":[null]})"), "weight[0] is null");
}

TEST_F(FileTest, ReadsAGraph) {
  const PipelineGraph graph = read_pipeline_graph_file(file(R"({
    "ranks":2,"micro_batches":4,"latency":0.5,
    "segments":[{"name":"v0","branch":"vision","rank":0,"forward":20,"backward":40,"weight":0,
                 "weights":"shared"},
                {"name":"v1","branch":"vision","rank":1,"activation":0.5},
                {"name":"t0","branch":"text","rank":1,"weights":"shared"}],
    "edges":[{"from":"v0","to":"v1","bytes":1000},{"from":2,"to":"v1","gradient":false}],
    "interactions":[{"name":"join","members":["v1","t0"],"every":2,"cost":3}],
    "tied":[["v1",2]]})"));
  EXPECT_EQ(graph.ranks, 2);
  EXPECT_EQ(graph.latency, 0.5);
  ASSERT_EQ(graph.segments.size(), 3u);
  EXPECT_EQ(graph.segments[0].input_gradient, 40);
  EXPECT_EQ(graph.segments[1].forward, 1);
  EXPECT_EQ(graph.segments[0].weights, graph.segments[2].weights);
  EXPECT_NE(graph.segments[0].weights, graph.segments[1].weights);
  EXPECT_EQ(graph.edges[0], (Edge{0, 1, 1000, true}));
  EXPECT_EQ(graph.edges[1], (Edge{2, 1, 0, false}));
  EXPECT_EQ(graph.interactions[0].members, (std::vector<SegmentId>{1, 2}));
  EXPECT_EQ(graph.tied, (std::vector<std::vector<SegmentId>>{{1, 2}}));
  EXPECT_EQ(graph.segments[0].micro_batches, 4);
}

TEST_F(FileTest, AGraphWithoutRanksIsUnplaced) {
  const std::string text =
      R"({"ranks":2,"micro_batches":4,"segments":[{"name":"a"},{"name":"b"}]})";
  EXPECT_TRUE(read_pipeline_graph_file(file(text)).unplaced);
}

TEST_F(FileTest, RefusesWrongGraphs) {
  const auto says = [&](const std::string& text) {
    return complaint([&] { read_pipeline_graph_file(file(text)); });
  };
  const std::string head = R"({"ranks":2,"micro_batches":4,"segments":[{"name":"a","rank":0},)";
  EXPECT_SAYS(says(head + R"({"name":"a","rank":1}]})"), "are both named \"a\"");
  EXPECT_SAYS(says(head + R"({"name":"b"}]})"), "1 of 2 segments have a rank");
  EXPECT_SAYS(says(head + R"({"name":"b","rank":1}],"edges":[{"from":"a"}]})"),
              "the key edges[0].to is missing");
  EXPECT_SAYS(says(head + R"({"name":"b","rank":1}],"edges":[{"from":"a","to":"c"}]})"),
              "edges[0].to is \"c\"");
  EXPECT_SAYS(says(head + R"({"name":"b","rank":1}],"edges":[{"from":"a","to":"b"},
                                                            {"from":"b","to":"a"}]})"),
              "cycle");
  EXPECT_SAYS(says(head + R"({"name":"b","rank":1,"forward":-1}]})"), "segment 1 costs -1");
  EXPECT_SAYS(says(head + R"(7]})"), "segments[1] is 7 (must be an object)");
  EXPECT_SAYS(says(R"({"ranks":2,"micro_batches":4,"segments":[]})"), "without segments");
  EXPECT_SAYS(says(R"({"ranks":2,"micro_batches":4,"segments":{}})"), "must be a list");
  EXPECT_SAYS(says(R"({"rank":2,"micro_batches":4,"segments":[]})"), "Did you mean \"ranks\"?");
  EXPECT_SAYS(says(R"({"ranks":"2","micro_batches":4,"segments":[{"rank":1}]})"), "ranks is \"2\"");
  EXPECT_SAYS(says(head + R"({"name":"b","rank":1}],"tied":[7]})"), "tied[0] is 7");
  const std::string path = file("{}");
  EXPECT_SAYS(complaint([&] { read_pipeline_graph_file(path); }),
              path + ": the key ranks is missing");
}

TEST_F(FileTest, ReadsANetwork) {
  const Network network =
      read_network_file(file(R"({"bandwidth":1e9,"capacity":2,"full_duplex":false,"card":[0,0,1,1],
               "card_bandwidth":5e8,"node":[0,0,1,1],"compute_slow_down":1.25,"reduction_time":3,
               "step_time":4})"));
  EXPECT_EQ(network.bandwidth, 1e9);
  EXPECT_EQ(network.capacity, 2);
  EXPECT_FALSE(network.full_duplex);
  EXPECT_EQ(network.card, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(network.card_bandwidth, 5e8);
  EXPECT_EQ(network.node, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(network.compute_slow_down, 1.25);
  EXPECT_EQ(network.reduction_time, 3);
  EXPECT_EQ(network.step_time, 4);
  EXPECT_TRUE(read_network_file(file("{}")).full_duplex);
}

TEST_F(FileTest, RefusesWrongNetworks) {
  const auto says = [&](const std::string& text) {
    return complaint([&] { read_network_file(file(text)); });
  };
  EXPECT_SAYS(says(R"({"bandwith":1})"), "Did you mean \"bandwidth\"?");
  EXPECT_SAYS(says(R"({"bandwidth":-1})"), "bandwidth is -1");
  EXPECT_SAYS(says(R"({"capacity":0})"), "capacity is 0");
  EXPECT_SAYS(says(R"({"full_duplex":1})"), "full_duplex is 1 (must be true or false)");
  EXPECT_SAYS(says(R"({"compute_slow_down":0.5})"), "compute_slow_down is 0.5");
  EXPECT_SAYS(says(R"({"card":[0,-1]})"), "card[1] is -1");
  EXPECT_SAYS(says(R"({"card":[0,1],"node":[0]})"), "card lists 2 ranks and node 1");
}

}  // namespace
}  // namespace heteroperf
