#include "runners/plan/tensor/row_cuts.hpp"

#include <gtest/gtest.h>

#include <string>

#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

ModelGraph decoder(double dropout) {
  GptShape shape;
  shape.layers = 2;
  shape.width = 48;
  shape.heads = 12;
  shape.vocabulary = 101;
  shape.length = 10;
  shape.dropout = dropout;
  return gpt(shape);
}

struct Cut {
  TensorShard shard;
  RowCuts rows;
};

Cut cut_of(const ModelGraph& graph, int degree) {
  Cut cut{tensor_shard(graph, degree, 0), {}};
  const std::vector<StageId> one_stage(graph.nodes().size(), 0);
  cut.rows = row_cuts(cut.shard, one_stage, 0);
  return cut;
}

template <class Kind>
std::size_t count_of(const Cut& cut, const std::vector<bool>& which) {
  std::size_t count = 0;
  for (std::size_t n = 0; n < which.size(); ++n) {
    if (which[n] && std::holds_alternative<Kind>(cut.shard.graph.nodes()[n].attributes)) ++count;
  }
  return count;
}

TEST(RowCuts, NormsAndSumsOfADecoderWorkOnRows) {
  const Cut cut = cut_of(decoder(0), 4);
  EXPECT_EQ(count_of<LayerNorm>(cut, cut.rows.works), 5U) << "two a block and the last";
  EXPECT_EQ(count_of<Add>(cut, cut.rows.works), 4U);
  EXPECT_EQ(count_of<Linear>(cut, cut.rows.works), 0U);
  // Behind attention and behind the second linear of each block the sum leaves rows.
  EXPECT_EQ(count_of<Linear>(cut, cut.rows.keeps), 4U);
  EXPECT_EQ(count_of<Add>(cut, cut.rows.keeps), 4U);
  EXPECT_EQ(count_of<LayerNorm>(cut, cut.rows.keeps), 0U) << "linears take them whole";
}

TEST(RowCuts, WhatWorksOnRowsHasAllItsInputsByRows) {
  for (const double dropout : {0.0, 0.1}) {
    const Cut cut = cut_of(decoder(dropout), 2);
    EXPECT_TRUE(cut.rows.any());
    const std::vector<Node>& nodes = cut.shard.graph.nodes();
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      for (const NodeId input : nodes[n].inputs) {
        EXPECT_EQ(cut.rows.works[n], cut.rows.keeps[input.index()])
            << nodes[n].name << " takes " << cut.shard.graph.node(input).name;
      }
    }
  }
}

TEST(RowCuts, AStageKeepsWhatItReceivesByRows) {
  const ModelGraph graph = decoder(0);
  const TensorShard shard = tensor_shard(graph, 2, 0);
  // The second stage begins behind the first block's last sum.
  std::size_t border = 0;
  for (std::size_t n = 0, sums = 0; n < graph.nodes().size(); ++n) {
    if (std::holds_alternative<Add>(graph.nodes()[n].attributes) && ++sums == 2) border = n;
  }
  std::vector<StageId> stage_of(graph.nodes().size(), 1);
  std::fill(stage_of.begin(), stage_of.begin() + static_cast<std::ptrdiff_t>(border) + 1,
            StageId(0));
  EXPECT_TRUE(row_cuts(shard, stage_of, 1).keeps[border]);
  const RowCuts first = row_cuts(shard, stage_of, 0);
  EXPECT_TRUE(first.works[border]);
  EXPECT_FALSE(first.keeps[border]) << "nobody in the stage takes it";
}

TEST(RowCuts, RowsOfAllRanksAreAllRows) {
  for (const std::int64_t rows : {0, 1, 5, 12}) {
    std::int64_t next = 0;
    for (int rank = 0; rank < 5; ++rank) {
      const RowRangeOfRank own = rows_of_rank(rows, rank, 5);
      EXPECT_EQ(own.first, next);
      next += own.count;
    }
    EXPECT_EQ(next, rows);
  }
}

}  // namespace
}  // namespace heteroperf
