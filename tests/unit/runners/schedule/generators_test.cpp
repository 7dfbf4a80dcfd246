#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "runners/schedule/ir/graph_index.hpp"
#include "tests/unit/runners/schedule/generated.hpp"

namespace heteroperf {
namespace {

const std::set<std::string> searches = {"zb-1p", "zb-2p", "wave", "auto"};

std::vector<std::string> rows_of(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (const auto& program : schedule.programs) rows.push_back(row_of(program));
  return rows;
}

/// Every slot has one F and either one BW or one B and one W, on its segment's rank.
void expect_complete(const Schedule& schedule) {
  const TaskTable tasks(schedule.graph);
  std::vector<int> forwards(tasks.slots(), 0), inputs = forwards, weights = forwards;
  for (int r = 0; r < schedule.graph.ranks; ++r) {
    for (const Instruction& is : schedule.programs[r]) {
      const auto slot = tasks.slot(is.segment, is.micro_batch, is.part);
      ASSERT_GE(slot, 0) << to_text(is);
      ASSERT_EQ(schedule.graph.segments[is.segment].rank, r) << to_text(is);
      forwards[slot] += is.op == Op::forward;
      inputs[slot] += is.op == Op::input_gradient || is.op == Op::backward;
      weights[slot] += is.op == Op::weight_gradient || is.op == Op::backward;
    }
  }
  const std::vector<int> once(tasks.slots(), 1);
  EXPECT_EQ(forwards, once) << schedule.name;
  EXPECT_EQ(inputs, once) << schedule.name;
  EXPECT_EQ(weights, once) << schedule.name;
}

TEST(Generators, AreThoseOfTheDocumentationInItsOrder) {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.emplace_back(generator.name);
  EXPECT_EQ(names, (std::vector<std::string>{"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs",
                                             "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v", "v-half",
                                             "v-min", "chimera", "dualpipe", "dualpipev", "seq1f1b",
                                             "wave", "auto"}));
}

/// Either a complete schedule that ends and is no faster than possible, or a refusal.
TEST(Generators, NeverDropAMicroBatch) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> cost(0.5, 2);
  int made = 0;
  for (const Generator& generator : generators()) {
    if (searches.contains(generator.name)) continue;
    for (int trial = 0; trial < 40; ++trial) {
      ScheduleRequest asked = request(1 + random() % 9, 1 + random() % 40, 1, 1, 1, cost(random));
      for (int r = 0; r < asked.ranks; ++r) {
        asked.costs.forward[r] = cost(random);
        asked.costs.input_gradient[r] = cost(random);
        asked.costs.weight_gradient[r] = cost(random);
      }
      const std::string name = generator.name;
      if (name == "seq1f1b") asked.parts = 1 + random() % 4;
      if (name == "interleaved-1f1b" || name == "looped-bfs") asked.chunks = 1 + random() % 4;
      Schedule schedule;
      try {
        schedule = generator.make(asked);
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find(name + " "), std::string::npos) << error.what();
        EXPECT_EQ(error.problems().size(), 1u);
        continue;
      }
      ++made;
      SCOPED_TRACE(name + " p=" + std::to_string(asked.ranks) +
                   " m=" + std::to_string(asked.micro_batches));
      EXPECT_EQ(schedule.name, name);
      EXPECT_EQ(schedule.level, ScheduleLevel::compute);
      expect_complete(schedule);
      const ScheduleReport result = timed(schedule);
      EXPECT_GE(result.makespan, result.lower_bound * (1 - 1e-12));
      EXPECT_EQ(schedule_hash(schedule), schedule_hash(generator.make(asked)));
    }
  }
  EXPECT_GT(made, 300);
}

TEST(Orders, Gpipe) {
  EXPECT_EQ(rows_of(make("gpipe", request(2, 3))),
            (std::vector<std::string>{"0F0,0F1,0F2,0B0,0B1,0B2", "1F0,1F1,1F2,1B0,1B1,1B2"}));
}

TEST(Orders, OneForwardOneBackward) {
  EXPECT_EQ(rows_of(make("1f1b", request(3, 4))),
            (std::vector<std::string>{"0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3",
                                      "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3",
                                      "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3"}));
  EXPECT_EQ(rows_of(make("1f1b", request(3, 1))),
            (std::vector<std::string>{"0F0,0B0", "1F0,1B0", "2F0,2B0"}));
}

TEST(Orders, Interleaved) {
  ScheduleRequest asked = request(2, 4);
  asked.chunks = 2;
  EXPECT_EQ(rows_of(make("interleaved-1f1b", asked)),
            (std::vector<std::string>{
                "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3",
                "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3"}));
}

/// Rounds of m / ⌊m/p⌋ micro-batches, here 3 on 2 ranks.
TEST(Orders, InterleavedInLongerRounds) {
  ScheduleRequest asked = request(2, 3);
  asked.chunks = 2;
  EXPECT_EQ(rows_of(make("interleaved-1f1b", asked))[1],
            "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1B0,1B1,1B2");
}

TEST(Orders, LoopedBreadthFirst) {
  EXPECT_EQ(rows_of(make("looped-bfs", request(2, 2))),
            (std::vector<std::string>{"0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0",
                                      "1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0"}));
}

TEST(Orders, ZeroBubbleByHand) {
  EXPECT_EQ(rows_of(make("zb-h1", request(2, 3))),
            (std::vector<std::string>{"0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2",
                                      "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2"}));
  EXPECT_EQ(rows_of(make("zb-h2", request(2, 4))),
            (std::vector<std::string>{"0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3",
                                      "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3"}));
}

/// Too few micro-batches to fill the V: the phases of 2p−1, without those that are not there.
TEST(Orders, ZbV) {
  EXPECT_EQ(rows_of(make("zb-v", request(2, 4))),
            (std::vector<std::string>{"0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,"
                                      "0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,0W3",
                                      "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,"
                                      "2F3,2I2,2W2,1I2,2I3,1I3,1W2,2W3,1W3"}));
  EXPECT_EQ(rows_of(make("zb-v", request(2, 1))),
            (std::vector<std::string>{"0F0,3F0,3I0,3W0,0I0,0W0", "1F0,2F0,2I0,2W0,1I0,1W0"}));
}

TEST(Orders, VHalf) {
  EXPECT_EQ(rows_of(make("v-half", request(2, 4))),
            (std::vector<std::string>{"0F0,0F1,0F2,3F0,3I0,3W0,3F1,0I0,3I1,3W1,3F2,0W0,0F3,0I1,3I2,"
                                      "3W2,3F3,3I3,0I2,3W3,0I3,0W1,0W2,0W3",
                                      "1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,1F2,2F2,2I1,1I1,2W1,1F3,1W1,"
                                      "2F3,2I2,1I2,2I3,1I3,2W2,2W3,1W2,1W3"}));
}

TEST(Orders, Seq1f1b) {
  ScheduleRequest asked = request(2, 2);
  asked.parts = 2;
  const Schedule schedule = make("seq1f1b", asked);
  std::vector<std::string> texts;
  for (const Instruction& is : schedule.programs[0]) texts.push_back(to_text(is));
  EXPECT_EQ(texts, (std::vector<std::string>{"F 0.0", "F 0.0/1", "F 0.1", "BW 0.0/1", "F 0.1/1",
                                             "BW 0.0", "BW 0.1/1", "BW 0.1"}));
}

/// PyTorch's own table; DeepSeek's program emits the same one.
TEST(Orders, DualpipevIsThatOfPytorch) {
  std::ifstream file(HETEROPERF_SOURCE_DIR
                     "/tests/data/schedules/pytorch_dualpipev_4rank_10mb.csv");
  std::vector<std::string> table;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.pop_back();
    table.push_back(line);
  }
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(rows_of(make("dualpipev", request(4, 10))), table);
}

/// The two halves of the ranks are mirror images, down and up exchanged.
TEST(Orders, DualpipeIsSymmetric) {
  const int p = 6, m = 14;
  const Schedule schedule = make("dualpipe", request(p, m));
  for (int r = 0; r < p; ++r) {
    std::vector<Instruction> mirror = schedule.programs[p - 1 - r];
    for (Instruction& is : mirror) {
      is.segment = SegmentId((is.segment.value() + p) % (2 * p));
      is.micro_batch = MicroBatchId((is.micro_batch.value() + m / 2) % m);
    }
    EXPECT_EQ(schedule.programs[r], mirror);
  }
}

TEST(Orders, DualpipeHasThePhasesOfDualpipev) {
  const Schedule dual = make("dualpipe", request(8, 20)), v = make("dualpipev", request(4, 10));
  for (int r = 0; r < 4; ++r) {
    std::vector<Instruction> renamed = dual.programs[r];
    for (Instruction& is : renamed) {
      if (is.segment < 8) continue;
      is.segment = SegmentId(7 - r);
      is.micro_batch = is.micro_batch - 10;
    }
    EXPECT_EQ(renamed, v.programs[r]);
  }
}

}  // namespace
}  // namespace heteroperf
