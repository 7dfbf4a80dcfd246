#include "runners/schedule/formats/csv.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
namespace {

std::string sample(const std::string& name) {
  return read_text_file(HETEROPERF_TEST_DATA "/schedules/" + name, "sample");
}

CsvSchedule read(const std::string& text) { return read_csv(text, {}, {}); }

/// What read_csv() says of a wrong table; empty where it takes it.
std::string complaint(const std::string& text, const std::optional<StageCosts>& costs = {}) {
  try {
    read_csv(text, {}, costs);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

int count_of(const Schedule& schedule, Op op) {
  int count = 0;
  for (const auto& program : schedule.programs) {
    count += static_cast<int>(std::count_if(program.begin(), program.end(),
                                            [&](const Instruction& i) { return i.op == op; }));
  }
  return count;
}

TEST(Csv, PyTorchTablesComeBackByteForByte) {
  for (const char* name :
       {"pytorch_dualpipev_4rank_10mb.csv", "pytorch_zb1p_2rank_2stage_compute.csv",
        "pytorch_zb1p_2rank_2stage_comms.csv"}) {
    const std::string text = sample(name);
    const CsvSchedule table = read(text);
    EXPECT_EQ(write_csv(table.schedule, table.spelling), text) << name;
  }
}

TEST(Csv, FindsOutTheSpelling) {
  EXPECT_EQ(read(sample("pytorch_dualpipev_4rank_10mb.csv")).spelling, CsvSpelling::iwb);
  EXPECT_EQ(read(sample("pytorch_zb1p_2rank_2stage_compute.csv")).spelling, CsvSpelling::bwbw);
  EXPECT_EQ(read(sample("pytorch_zb1p_2rank_2stage_comms.csv")).spelling, CsvSpelling::bwbw);
  const CsvSchedule fused = read("0F0,0B0\n");
  EXPECT_EQ(fused.spelling, CsvSpelling::iwb);
  EXPECT_EQ(fused.schedule.programs[0][1].op, Op::backward);
  const CsvSchedule asked = read_csv("0F0,0B0\n", CsvSpelling::bwbw, {});
  EXPECT_EQ(asked.schedule.programs[0][1].op, Op::input_gradient);
}

TEST(Csv, DualPipeVHasItsStagesAndPairs) {
  const Schedule schedule = read(sample("pytorch_dualpipev_4rank_10mb.csv")).schedule;
  const PipelineGraph& graph = schedule.graph;
  EXPECT_EQ(graph.ranks, 4);
  EXPECT_EQ(graph.micro_batches, 10);
  EXPECT_EQ(schedule.chunks, 2);
  EXPECT_EQ(schedule.level, ScheduleLevel::compute);
  EXPECT_EQ(graph, chain_graph(4, 10, 2, ChainPlacement::zig_zag, uniform_costs(4, 1, 1, 1, 0)));
  EXPECT_EQ(count_of(schedule, Op::forward), 80);
  EXPECT_EQ(count_of(schedule, Op::backward) + count_of(schedule, Op::input_gradient), 80);
  EXPECT_EQ(count_of(schedule, Op::weight_gradient), count_of(schedule, Op::input_gradient));
  const auto& first = schedule.programs[0];
  EXPECT_TRUE(first[17].fused_with_next);
  EXPECT_EQ(to_text(first[17]), "F 0.7");
  EXPECT_EQ(to_text(first[18]), "BW 7.3");
  EXPECT_FALSE(first[18].fused_with_next);
}

TEST(Csv, MessagesKnowEdgePeerAndPlace) {
  const Schedule schedule = read(sample("pytorch_zb1p_2rank_2stage_comms.csv")).schedule;
  EXPECT_EQ(schedule.level, ScheduleLevel::lowered);
  EXPECT_EQ(count_of(schedule, Op::send_act), 24);
  EXPECT_EQ(count_of(schedule, Op::recv_act), 24);
  EXPECT_EQ(count_of(schedule, Op::send_grad), 24);
  EXPECT_EQ(count_of(schedule, Op::recv_grad), 24);
  const Instruction& send = schedule.programs[0][1];
  EXPECT_EQ(to_text(send), "SEND_ACT 0.0>1");
  EXPECT_EQ(send.edge, EdgeId(0));
  EXPECT_EQ(send.sequence, 0);
  const Instruction& receive = schedule.programs[0][2];
  EXPECT_EQ(to_text(receive), "RECV_ACT 2.0<1");
  EXPECT_EQ(receive.edge, EdgeId(1));
  const Instruction& gradient = schedule.programs[0][12];
  EXPECT_EQ(to_text(gradient), "SEND_GRAD 2.0>1");
  EXPECT_EQ(gradient.edge, EdgeId(1));
  EXPECT_EQ(schedule.programs[0][4].sequence, 1);  // 0SEND_F1
}

TEST(Csv, MessagesDoNotChangeTheTime) {
  // 0F0 … the tables of the same schedule: one keeps B and W apart where the other joins them.
  const Schedule compute = read(sample("pytorch_zb1p_2rank_2stage_compute.csv")).schedule;
  const Timeline timeline = simulate(compute);
  double end = 0;
  for (const auto& spans : timeline.spans) {
    for (const TimeSpan& span : spans) end = std::max(end, span.end);
  }
  EXPECT_GE(end, 24);  // 8 micro-batches of 3 on each rank
  EXPECT_LT(end, 30);
}

TEST(Csv, EmptyCellsStay) {
  const std::string text = ",0F0,,0B0,\n1F0,,,,1B0\n";
  const CsvSchedule table = read(text);
  EXPECT_EQ(table.schedule.programs[0].size(), 5u);
  EXPECT_EQ(table.schedule.programs[0][0].op, Op::idle);
  EXPECT_EQ(write_csv(table.schedule), text);
}

TEST(Csv, TakesAnyLineEnd) {
  const std::string unix_text = "0F0,0B0\n1F0,1B0\n";
  for (const std::string text : {"0F0,0B0\r\n1F0,1B0\r\n", "0F0,0B0\n1F0,1B0", "0F0,0B0\r\n1F0,1B0",
                                 "\xef\xbb\xbf"
                                 "0F0, 0B0\n1F0 ,1B0\n\n"}) {
    EXPECT_EQ(read(text).schedule, read(unix_text).schedule) << text;
    EXPECT_EQ(write_csv(read(text).schedule), unix_text);
  }
}

TEST(Csv, ReductionsComeBack) {
  const std::string text = "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  const CsvSchedule table = read(text);
  EXPECT_EQ(table.schedule.programs[0][4].op, Op::reduce_grad);
  EXPECT_EQ(table.schedule.level, ScheduleLevel::lowered);
  EXPECT_EQ(write_csv(table.schedule), text);
}

TEST(Csv, CostsAreSharedByTheStagesOfARank) {
  StageCosts costs = uniform_costs(2, 6, 4, 2, 3);
  costs.forward[1] = 10;
  const Schedule schedule = read_csv("0F0,2F0,2B0,0B0\n1F0,1B0\n", {}, costs).schedule;
  EXPECT_EQ(schedule.graph.latency, 3);
  EXPECT_EQ(schedule.chunks, 2);
  EXPECT_EQ(schedule.graph.segments[2].rank, 0);
  EXPECT_EQ(schedule.graph.segments[2].forward, 3);
  EXPECT_EQ(schedule.graph.segments[2].activation, 0.5);
  EXPECT_EQ(schedule.graph.segments[1].forward, 10);
  EXPECT_EQ(schedule.graph.segments[1].input_gradient, 4);
}

TEST(Csv, NamesRowColumnAndCellOfEverythingWrong) {
  const std::string text = complaint("0F0,0Q1,x\n1F0,F2,1F\n");
  for (const char* part : {"row 1, column 3: \"x\"", "row 2, column 2: \"F2\""}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  const std::string words = complaint("0F0,0Q1\n1F0,1F,0F1F\n");
  EXPECT_NE(words.find("row 2, column 3: \"0F1F\""), std::string::npos) << words;
  const std::string later = complaint("0F0,0Q1\n1F0,1F\n");
  EXPECT_NE(later.find("row 1, column 2: \"0Q1\""), std::string::npos) << later;
  EXPECT_NE(later.find("row 2, column 2: \"1F\" (the number of the micro-batch is missing)"),
            std::string::npos)
      << later;
}

TEST(Csv, RefusesWhatIsNoTable) {
  const struct {
    std::string text, part;
  } cases[] = {
      {"", "the table is empty"},
      {"\n\r\n", "the table is empty"},
      {"0F0,0B0\n\n1F0,1B0\n", "row 2 computes nothing"},
      {"0F0,0B0\n2F0,2B0\n", "no row computes stage 1"},
      {"0F0,0B0\n0F1,0B1\n", "stage 0 acts on row 1 too"},
      {"0F0,0B0\n1F0,0SEND_F0\n", "stage 0 acts on row 1 too"},
      {"0F1000000000,0B0\n", "a number beyond every size"},
      {"0F99999999999999999999,0B0\n", "a number beyond every size"},
      {"1000000000F0,0B0\n", "a number beyond every size"},
      {"0F0,100000F0\n", "cannot get that far"},
      {"0F0,0F100000\n", "cannot get that far"},
      {"-1F0\n", "begins with the number of its stage"},
      {"0F0,0UNSHARD\n", "FSDP"},
      {"0F0,0RESHARD\n", "FSDP"},
      {"0F0,0I0,0W0,0BW0\n", "the other spelling"},
      {"0F0,0REDUCE_GRAD3\n", "takes no micro-batch"},
      {"0F0,0B0,0SEND_F0\n", "the last one"},
      {"0F0,0B0,0SEND_B0\n", "the first one"},
      {"0F0,1F0,0SEND_F0\n", "on the same row"},
      {"(0F7;7B3\n", "begins with the number of its stage"},
      {"(0F7)OVERLAP_F_B\n", "begins with the number of its stage"},
      {"0F0,(0F0;0SEND_F1)OVERLAP_F_B\n1F0\n", "only computations overlap"},
      {"0F0\n\x01\xff\n", "\"\\x01\\xff\""},
      {std::string("0F0\0,1F0\n", 9), "\\x00"},
      {"stage,forward\n0,1\n", "row 1, column 1: \"stage\""},
  };
  for (const auto& wrong : cases) {
    const std::string text = complaint(wrong.text);
    EXPECT_NE(text.find(wrong.part), std::string::npos) << wrong.text << " -> " << text;
  }
}

TEST(Csv, RefusesCostsOfAnotherNumberOfRanks) {
  EXPECT_NE(
      complaint("0F0,0B0\n", uniform_costs(2, 1, 1, 1, 0)).find("2 forward costs for 1 ranks"),
      std::string::npos);
  StageCosts negative = uniform_costs(1, -1, 1, 1, 0);
  EXPECT_NE(complaint("0F0,0B0\n", negative), "");
}

TEST(Csv, SaysOnlyTheFirstOfManyProblems) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "garbage,";
  EXPECT_LT(complaint(text).size(), 4000u);
}

TEST(Csv, RandomBytesAreRefusedOrTaken) {
  std::mt19937 random(7);
  const std::string letters = "01239FBWI_SENDRCV(;)\n,\r OVERLAP\xff";
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    refused += !complaint(text).empty();
  }
  EXPECT_GT(refused, 2500);
}

TEST(Csv, DamagedTablesAreRefusedOrStayTables) {
  const std::string whole = sample("pytorch_zb1p_2rank_2stage_comms.csv");
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string text = whole;
    text[random() % text.size()] = "0FBW,\n;S9"[random() % 9];
    try {
      const CsvSchedule table = read(text);
      const std::string again = write_csv(table.schedule, table.spelling);
      EXPECT_EQ(read_csv(again, table.spelling, {}).schedule, table.schedule);
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

TEST(Csv, RefusesToWriteWhatATableCannotSay) {
  const auto refused = [](const Schedule& schedule) {
    try {
      write_csv(schedule);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Schedule chain = read("0F0,0B0\n1F0,1B0\n").schedule;
  EXPECT_EQ(refused(chain), "");
  Schedule parts = chain;
  parts.graph.parts = 2;
  EXPECT_NE(refused(parts).find("2 parts"), std::string::npos);
  Schedule interacting = chain;
  interacting.graph.interactions.push_back({"join", {0, 1}, 1, 0});
  EXPECT_NE(refused(interacting).find("interact"), std::string::npos);
  Schedule copies = chain;
  copies.graph = bidirectional_graph(2, 2, uniform_costs(2, 1, 1, 1, 0));
  EXPECT_NE(refused(copies).find("not one chain"), std::string::npos);
  Schedule recomputing = chain;
  recomputing.programs[0].push_back(compute(Op::recompute, 0, 0));
  EXPECT_NE(refused(recomputing).find("RECOMPUTE 0.0"), std::string::npos);
  Schedule skipping = chain;
  skipping.graph = chain_graph(3, 1, 1, ChainPlacement::looped, uniform_costs(3, 1, 1, 1, 0));
  skipping.graph.edges.push_back({0, 2, 0, true});
  EXPECT_NE(refused(skipping).find("not one chain"), std::string::npos);
  Schedule dangling = chain;
  dangling.programs[0].back().fused_with_next = true;
  EXPECT_NE(refused(dangling).find("fused"), std::string::npos);
}

TEST(Csv, NumbersStagesAlongTheChain) {
  // Segments in another order than the chain's.
  Schedule schedule = read("0F0,0B0\n1F0,1B0\n").schedule;
  schedule.graph.edges = {{1, 0, 0, true}};
  EXPECT_EQ(write_csv(schedule), "1F0,1B0\n0F0,0B0\n");
}

TEST(Csv, LeavesOutWhatPyTorchDoesByItself) {
  Schedule schedule = read("0F0,0B0\n").schedule;
  schedule.level = ScheduleLevel::lowered;
  auto& program = schedule.programs[0];
  program.insert(program.begin(), compute(Op::load, 0, 0));
  program.push_back(compute(Op::free, 0, 0));
  program.push_back(compute(Op::reduce_grad, 0, -1));
  program.push_back(compute(Op::opt_step, -1, -1));
  EXPECT_EQ(write_csv(schedule), "0F0,0B0,0REDUCE_GRAD\n");
}

}  // namespace
}  // namespace heteroperf
