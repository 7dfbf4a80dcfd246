// What generators refuse, and the graphs they take.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/runners/schedule/generated.hpp"

namespace heteroperf {
namespace {

const char* const templates[] = {
    "gpipe",  "1f1b",  "interleaved-1f1b", "looped-bfs", "zb-h1",     "zb-h2",  "zb-v",
    "v-half", "v-min", "chimera",          "dualpipe",   "dualpipev", "seq1f1b"};

void expect_refusal(const char* name, const ScheduleRequest& asked,
                    std::initializer_list<const char*> texts) {
  const std::string said = refusal(name, asked);
  for (const char* text : texts) {
    EXPECT_NE(said.find(text), std::string::npos) << name << ": " << said << "\nlacks: " << text;
  }
}

TEST(FindGenerator, NamesTheNearest) {
  EXPECT_STREQ(find_generator("zb-h2").name, "zb-h2");
  try {
    find_generator("zb-vv");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'zb-v'?"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("dualpipev"), std::string::npos);
  }
  EXPECT_THROW(find_generator(""), UserError);
}

TEST(Requests, NumbersOutOfRange) {
  for (const char* name : templates) {
    expect_refusal(name, request(0, 4), {name, "0 ranks", "1 to 65536"});
    expect_refusal(name, request(4, 0), {name, "0 micro-batches"});
    expect_refusal(name, request(4, -3), {"-3 micro-batches"});
    ScheduleRequest asked = request(4, 8);
    asked.chunks = 0;
    expect_refusal(name, asked, {name, "0 chunks"});
    asked = request(4, 8);
    asked.parts = 0;
    expect_refusal(name, asked, {name, "0 sequence parts"});
  }
}

TEST(Requests, AbsurdSizesAreRefusedAtOnce) {
  constexpr int most = std::numeric_limits<int>::max();
  for (const char* name : templates) {
    ScheduleRequest asked;
    asked.ranks = 1'000'000;
    asked.micro_batches = 1'000'000;
    expect_refusal(name, asked, {name, "1000000 ranks", "1 to 65536"});
    asked.ranks = 4096;
    expect_refusal(name, asked, {name, "forwards", "at most 134217728"});
    asked.ranks = asked.micro_batches = most;
    asked.chunks = most;
    asked.parts = most;
    EXPECT_NE(refusal(name, asked), "");
  }
  ScheduleRequest chunked = request(4, 1);
  chunked.chunks = 1 << 20;
  expect_refusal("looped-bfs", chunked, {"4194304 stages", "4 ranks x 1048576 chunks"});
  expect_refusal("zb-v", request(60'000, 1), {"zb-v for 60000 ranks", "at most 5792 ranks"});
  expect_refusal("v-half", request(60'000, 1), {"v-half", "60000 ranks", "at most 2047 ranks"});
  expect_refusal("v-min", request(1024, 60'000), {"v-min", "at most 3072 micro-batches"});
}

TEST(Requests, CostsThatDoNotFit) {
  ScheduleRequest asked = request(4, 8);
  asked.costs.forward.pop_back();
  asked.costs.weight_gradient[2] = -1;
  asked.costs.latency = std::numeric_limits<double>::quiet_NaN();
  for (const char* name : templates) {
    expect_refusal(
        name, asked,
        {"forward costs for 3 ranks", "weight-gradient cost -1 on rank 2", "latency nan"});
  }
}

TEST(Requests, ChunksOfSchedulesThatHaveTheirNumber) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2", "chimera", "dualpipe", "seq1f1b"}) {
    ScheduleRequest asked = request(4, 8);
    asked.chunks = 2;
    expect_refusal(name, asked, {name, "2 chunks", "it has 1", "Give 1 chunk, or none"});
    asked.chunks = 1;
    EXPECT_EQ(refusal(name, asked), "");
  }
  for (const char* name : {"zb-v", "v-half", "v-min", "dualpipev"}) {
    ScheduleRequest asked = request(4, 8);
    asked.chunks = 3;
    expect_refusal(name, asked, {name, "3 chunks", "it has 2", "Give 2 chunks, or none"});
    asked.chunks = 2;
    EXPECT_EQ(refusal(name, asked), "");
  }
}

TEST(Requests, PartsOfSchedulesThatHaveNone) {
  for (const char* name : templates) {
    if (std::string(name) == "seq1f1b") continue;
    ScheduleRequest asked = request(4, 8);
    asked.parts = 2;
    expect_refusal(name, asked, {name, "2 sequence parts", "seq1f1b"});
  }
}

TEST(Requests, ConstraintsNameTheNearestNumbers) {
  expect_refusal("interleaved-1f1b", request(4, 9), {"9 micro-batches on 4 ranks", "Use 8 or 10"});
  expect_refusal("chimera", request(5, 10), {"chimera on 5 ranks", "Use 4 or 6 ranks"});
  expect_refusal("chimera", request(1, 10), {"chimera on 1 ranks", "Use 2 ranks"});
  expect_refusal("chimera", request(8, 20), {"chimera for 20 micro-batches", "Use 16 or 24"});
  expect_refusal("chimera", request(8, 3), {"Use 8 micro-batches"});
  expect_refusal("dualpipe", request(3, 12), {"dualpipe on 3 ranks", "Use 2 or 4 ranks"});
  expect_refusal("dualpipe", request(8, 19), {"19 micro-batches on 8 ranks", "Use 18 or 20"});
  expect_refusal("dualpipe", request(8, 15), {"Use 16 micro-batches"});
  expect_refusal("dualpipev", request(8, 15), {"15 micro-batches on 8 ranks", "Use 16 micro"});
}

/// What the messages suggest works.
TEST(Requests, NearestNumbersAreAccepted) {
  EXPECT_EQ(refusal("interleaved-1f1b", request(4, 8)), "");
  EXPECT_EQ(refusal("interleaved-1f1b", request(4, 10)), "");
  EXPECT_EQ(refusal("chimera", request(8, 24)), "");
  EXPECT_EQ(refusal("dualpipe", request(8, 18)), "");
  EXPECT_EQ(refusal("dualpipev", request(8, 16)), "");
}

/// Rank 0: 20 units of a vision tower. Rank 1: its other 14, 6 of text, and a join that is free.
PipelineGraph two_towers(int micro_batches = 2) {
  const auto piece = [](const char* name, int rank, double forward) {
    Segment segment;
    segment.name = name;
    segment.rank = rank;
    segment.forward = segment.input_gradient = segment.weight_gradient = forward;
    return segment;
  };
  PipelineGraph graph;
  graph.ranks = 2;
  graph.micro_batches = micro_batches;
  graph.segments = {piece("vision 0", 0, 20), piece("vision 1", 1, 14), piece("text", 1, 6),
                    piece("join", 1, 0)};
  graph.edges = {{0, 1}, {1, 3}, {2, 3}};
  normalise(graph);
  return graph;
}

TEST(Graphs, TwoTowersOneRankAtATime) {
  const Schedule schedule = make("1f1b", graph_request(two_towers()));
  EXPECT_EQ(timed(schedule).makespan, 180);
  EXPECT_EQ(row_of(schedule.programs[1]), "1F0,2F0,3F0,3B0,2B0,1B0,1F1,2F1,3F1,3B1,2B1,1B1");
  EXPECT_EQ(row_of(make("gpipe", graph_request(two_towers())).programs[0]), "0F0,0F1,0B0,0B1");
}

TEST(Graphs, WarmUpIsTheLongestPathOfRanks) {
  PipelineGraph graph;
  graph.ranks = 4;
  graph.micro_batches = 8;
  graph.segments.resize(4);
  for (const SegmentId s : graph.segments.ids()) graph.segments[s].rank = s.value();
  graph.edges = {{0, 1}, {1, 2}, {0, 2}, {3, 2}};
  const Schedule schedule = make("1f1b", graph_request(graph));
  const auto warm_up = [&](int r) {
    const auto& program = schedule.programs[r];
    return std::find_if(program.begin(), program.end(),
                        [](const Instruction& is) { return is.op == Op::backward; }) -
           program.begin();
  };
  EXPECT_EQ(warm_up(0), 3);
  EXPECT_EQ(warm_up(1), 2);
  EXPECT_EQ(warm_up(2), 1);
  EXPECT_EQ(warm_up(3), 2);
}

/// Two towers on two ranks that meet for every set of micro-batches.
PipelineGraph meeting_towers(int micro_batches, int every) {
  PipelineGraph graph;
  graph.ranks = 3;
  graph.micro_batches = micro_batches;
  graph.segments.resize(3);
  graph.segments[1].rank = 1;
  graph.segments[2].rank = 2;
  graph.edges = {{0, 1}};
  graph.interactions = {{"meet", {1, 2}, every, 1}};
  return graph;
}

TEST(Graphs, InteractionsStandBehindTheirSet) {
  const Schedule schedule = make("1f1b", graph_request(meeting_towers(5, 2)));
  const auto texts = [&](int r) {
    std::string text;
    for (const Instruction& is : schedule.programs[r]) {
      text += is.op == Op::forward ? "F" : is.op == Op::backward ? "B" : "X";
      text += std::to_string(is.micro_batch.value()) + " ";
    }
    return text;
  };
  EXPECT_EQ(texts(0), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 ");
  EXPECT_EQ(texts(1), "F0 F1 X0 B0 F2 B1 F3 X2 B2 F4 X4 B3 B4 ");
  EXPECT_EQ(texts(2), texts(1));
}

TEST(Graphs, InteractionsNeverMakeThemWait) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (int m = 1; m <= 12; ++m) {
      for (int every = 1; every <= 13; ++every) {
        const Schedule schedule = make(name, graph_request(meeting_towers(m, every)));
        const ScheduleReport result = timed(schedule);
        EXPECT_GE(result.makespan, 3 * m) << name << " " << m << " " << every;
        std::size_t interactions = 0;
        for (const auto& program : schedule.programs) {
          interactions += std::count_if(program.begin(), program.end(), [](const Instruction& is) {
            return is.op == Op::interact && is.edge == 0;
          });
        }
        EXPECT_EQ(interactions, 2u * ((m + every - 1) / every));
      }
    }
  }
}

TEST(Graphs, RanksThatFeedEachOtherAreRefused) {
  const PipelineGraph v =
      chain_graph(3, 4, 2, ChainPlacement::zig_zag, uniform_costs(3, 1, 1, 1, 0));
  for (const char* name : {"gpipe", "1f1b"}) {
    expect_refusal(name, graph_request(v),
                   {name, "does not fit", "rank 1 -> rank 2 -> rank 1", "auto"});
  }
}

/// A chain at the template's places keeps the costs of each of its segments.
TEST(Graphs, ChainsAtTheirPlacesKeepTheirCosts) {
  const StageCosts costs = uniform_costs(4, 1, 1, 1, 0.25);
  for (const char* name : templates) {
    const Schedule plain = make(name, [&] {
      ScheduleRequest asked = request(4, 8);
      asked.costs = costs;
      return asked;
    }());
    PipelineGraph graph = plain.graph;
    for (const SegmentId s : graph.segments.ids()) graph.segments[s].forward = 1.0 + s.value();
    const Schedule given = make(name, graph_request(graph));
    EXPECT_EQ(given.graph, graph) << name;
    EXPECT_EQ(given.programs, plain.programs) << name;
    EXPECT_EQ(given.chunks, plain.chunks) << name;
  }
}

TEST(Graphs, OtherGraphsAreRefusedByTheTemplatesOfChains) {
  for (const char* name : templates) {
    if (name == std::string("gpipe") || name == std::string("1f1b")) continue;
    expect_refusal(name, graph_request(two_towers(4)), {name, "does not fit the graph", "auto"});
  }
  PipelineGraph moved = make("zb-v", request(4, 8)).graph;
  moved.segments[5].rank = 1;
  expect_refusal("zb-v", graph_request(moved), {"segment 5 lies on rank 1, not 2"});
  PipelineGraph skipping = make("zb-h1", request(4, 8)).graph;
  skipping.edges.push_back({0, 2});
  expect_refusal("zb-h1", graph_request(skipping), {"its edges are not"});
  PipelineGraph meeting = make("zb-h1", request(2, 8)).graph;
  meeting.interactions = {{"meet", {0, 1}, 1, 0}};
  expect_refusal("zb-h1", graph_request(meeting), {"interactions"});
  PipelineGraph uneven = make("chimera", request(4, 8)).graph;
  for (SegmentId s; s < 4; ++s) uneven.segments[s].micro_batches = 3;
  expect_refusal("chimera", graph_request(uneven), {"micro-batches 0 to 2, not 0 to 3"});
}

}  // namespace
}  // namespace heteroperf
