#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {
namespace {

std::string message_of(PipelineGraph graph) {
  try {
    normalise(graph);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Instruction, PrintsItsFields) {
  EXPECT_EQ(to_text(compute(Op::forward, 3, 7)), "F 3.7");
  EXPECT_EQ(to_text(compute(Op::backward, 3, 7, 1)), "BW 3.7/1");
  Instruction send = compute(Op::send_act, 0, 3);
  send.peer = 1;
  EXPECT_EQ(to_text(send), "SEND_ACT 0.3>1");
  send.op = Op::recv_grad;
  EXPECT_EQ(to_text(send), "RECV_GRAD 0.3<1");
  Instruction step;
  step.op = Op::opt_step;
  EXPECT_EQ(to_text(step), "OPT_STEP");
  EXPECT_EQ(to_text(Instruction{}), "idle");
}

TEST(Placement, LoopedAndZigZag) {
  const StageCosts costs = uniform_costs(3, 6, 12, 18, 1);
  const PipelineGraph looped = chain_graph(3, 4, 2, ChainPlacement::looped, costs);
  const PipelineGraph zig_zag = chain_graph(3, 4, 2, ChainPlacement::zig_zag, costs);
  std::vector<int> looped_ranks, zig_zag_ranks;
  for (const Segment& s : looped.segments) looped_ranks.push_back(s.rank);
  for (const Segment& s : zig_zag.segments) zig_zag_ranks.push_back(s.rank);
  EXPECT_EQ(looped_ranks, (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(zig_zag_ranks, (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(looped.edges.size(), 5u);
  EXPECT_EQ(looped.forward(4, 0), 3);
  EXPECT_EQ(looped.weight_gradient(4, 0), 9);
  EXPECT_EQ(looped.segments[5].activation, 0.5);
  EXPECT_EQ(looped.weight_copies(), 1);
}

TEST(Placement, TwoDirectionsShareWeightsAndSplitMicroBatches) {
  const PipelineGraph graph = bidirectional_graph(4, 6, uniform_costs(4, 1, 1, 1, 0));
  EXPECT_EQ(graph.weight_copies(), 2);
  EXPECT_EQ(graph.segments[1].weights, graph.segments[5].weights);
  EXPECT_EQ(graph.segments[5].rank, 2);
  EXPECT_TRUE(graph.passes(1, 2));
  EXPECT_FALSE(graph.passes(1, 3));
  EXPECT_TRUE(graph.passes(5, 3));
  EXPECT_EQ(graph.edges.size(), 6u);
}

TEST(PipelineGraph, MicroBatchScaleAndPartsMakeCosts) {
  PipelineGraph graph = chain_graph(2, 2, 1, ChainPlacement::looped, uniform_costs(2, 8, 4, 2, 0));
  graph.parts = 4;
  graph.micro_batch_scale = {0.5, 1.5};
  EXPECT_EQ(graph.forward(0, 0), 1);
  EXPECT_EQ(graph.forward(0, 1), 3);
  EXPECT_EQ(graph.segment_work(1), 28);
}

TEST(PipelineGraph, NamesEverythingThatIsWrong) {
  PipelineGraph graph = chain_graph(3, 2, 1, ChainPlacement::looped, uniform_costs(3, 1, 1, 1, 0));
  EXPECT_EQ(message_of(graph), "");
  PipelineGraph cycle = graph;
  cycle.edges.push_back({2, 0, 0, true});
  EXPECT_NE(message_of(cycle).find("cycle"), std::string::npos);
  EXPECT_NE(message_of(cycle).find(" -> "), std::string::npos);
  PipelineGraph off = graph;
  off.segments[1].rank = 3;
  off.segments[2].forward = -1;
  off.edges.push_back({0, 9, 0, true});
  const std::string message = message_of(off);
  EXPECT_NE(message.find("rank 3"), std::string::npos) << message;
  EXPECT_NE(message.find("-1"), std::string::npos) << message;
  EXPECT_NE(message.find("to 9"), std::string::npos) << message;
  PipelineGraph huge = graph;
  huge.micro_batches = 1 << 27;
  EXPECT_NE(message_of(huge).find("tasks"), std::string::npos);
  PipelineGraph mixed = graph;
  mixed.segments[1].first_micro_batch = 1;
  mixed.segments[1].micro_batches = 1;
  EXPECT_NE(message_of(mixed).find("different micro-batches"), std::string::npos);
  PipelineGraph interaction = graph;
  interaction.interactions.push_back({"x", {0, 7}, 1, 0});
  EXPECT_NE(message_of(interaction).find("member 7"), std::string::npos);
  PipelineGraph scale = graph;
  scale.micro_batch_scale = {1};
  EXPECT_NE(message_of(scale).find("scales"), std::string::npos);
}

TEST(TaskTable, NumbersSlotsDensely) {
  PipelineGraph graph = bidirectional_graph(2, 5, uniform_costs(2, 1, 1, 1, 0));
  graph.parts = 2;
  const TaskTable tasks(graph);
  std::int32_t expected = 0;
  for (const SegmentId segment : graph.segments.ids()) {
    for (const MicroBatchId micro_batch : first_ids<MicroBatchId>(5)) {
      for (int part = 0; part < 2; ++part) {
        const std::int32_t slot = tasks.slot(segment, micro_batch, part);
        if (!graph.passes(segment, micro_batch)) {
          EXPECT_EQ(slot, -1);
          continue;
        }
        EXPECT_EQ(slot, expected++);
        EXPECT_EQ(tasks.segment_of(slot), segment);
        EXPECT_EQ(tasks.micro_batch_of(slot), micro_batch);
        EXPECT_EQ(tasks.part_of(slot), part);
      }
    }
  }
  EXPECT_EQ(tasks.slots(), expected);
  EXPECT_EQ(tasks.slot(4, 0, 0), -1);
  EXPECT_EQ(tasks.slot(0, 0, 2), -1);
  EXPECT_EQ(tasks.slot(-1, 0, 0), -1);
}

Schedule one_rank(std::vector<Instruction> program, int micro_batches) {
  Schedule schedule;
  schedule.graph =
      chain_graph(1, micro_batches, 1, ChainPlacement::looped, uniform_costs(1, 1, 1, 1, 0));
  schedule.programs = {std::move(program)};
  return schedule;
}

TEST(MemoryPeaks, InputGradientsFreeHalf) {
  const MemoryPeaks peaks = memory_peaks(one_rank(
      {compute(Op::forward, 0, 0), compute(Op::input_gradient, 0, 0), compute(Op::forward, 0, 1),
       compute(Op::backward, 0, 1), compute(Op::weight_gradient, 0, 0)},
      2));
  EXPECT_EQ(peaks.activations[0], 2);
  EXPECT_EQ(peaks.memory[0], 1.5);
}

TEST(ScheduleHash, SeesOrderAndPlacementButNotCosts) {
  const Schedule a = one_rank({compute(Op::forward, 0, 0), compute(Op::backward, 0, 0)}, 1);
  Schedule b = a, c = a, d = a;
  std::swap(b.programs[0][0], b.programs[0][1]);
  c.graph.segments[0].forward = 7;
  d.level = ScheduleLevel::lowered;
  EXPECT_NE(schedule_hash(a), schedule_hash(b));
  EXPECT_EQ(schedule_hash(a), schedule_hash(c));
  EXPECT_NE(schedule_hash(a), schedule_hash(d));
  EXPECT_EQ(schedule_hash(a).hex(), "574984eb8f2e95cd8103b8c9824c3f19");
}

}  // namespace
}  // namespace heteroperf
