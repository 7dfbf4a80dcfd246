#pragma once

#include <vector>

#include "workloads/graph/model_graph.hpp"
#include "workloads/models/convolutional.hpp"

namespace heteroperf {

inline ModelGraph small_resnet(ResidualBlock block = ResidualBlock::basic, std::int64_t side = 32) {
  ResnetShape shape;
  shape.input = {InputKind::images, 3, side, side, 0};
  shape.classes = 10;
  shape.block = block;
  shape.stem_width = 8;
  shape.stages = {2, 1};
  ModelGraph graph = resnet(shape);
  graph.name = "small-resnet";
  return graph;
}

inline Conv2d conv(std::int64_t width, std::int64_t kernel, std::int64_t stride = 1,
                   std::int64_t groups = 1) {
  Conv2d attributes;
  attributes.out_channels = width;
  attributes.kernel = {kernel, kernel};
  attributes.stride = {stride, stride};
  attributes.padding = {kernel / 2, kernel / 2};
  attributes.groups = groups;
  return attributes;
}

/// One convolution, one classifier: cheap to morph thousands of times.
inline ModelGraph tiny_classifier() {
  ModelGraph graph;
  graph.name = "tiny";
  NodeId x = graph.add("input", Input{InputKind::images, 3, 8, 8, 0}, {});
  x = graph.add("conv", conv(4, 3), {x});
  x = graph.add("bn", BatchNorm{}, {x});
  x = graph.add("relu", Relu{}, {x});
  x = graph.add("pool", GlobalAvgPool{}, {x});
  x = graph.add("fc", Linear{10, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

/// Convolutions, pooling, a flattened map, dense layers with dropout.
inline ModelGraph plain_with_dense() {
  ModelGraph graph;
  graph.name = "plain";
  NodeId x = graph.add("input", Input{InputKind::images, 1, 17, 13, 0}, {});
  x = graph.add("conv1", conv(6, 3), {x});
  x = graph.add("relu1", Relu{}, {x});
  x = graph.add("pool1", MaxPool{}, {x});
  x = graph.add("conv2", conv(12, 5), {x});
  x = graph.add("relu2", Relu{}, {x});
  x = graph.add("flatten", Flatten{}, {x});
  x = graph.add("fc1", Linear{20, true, {}}, {x});
  x = graph.add("relu3", Relu{}, {x});
  x = graph.add("drop", Dropout{0.5}, {x});
  x = graph.add("fc2", Linear{5, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

/// Depthwise and grouped convolutions and a concatenation.
inline ModelGraph grouped_with_concat() {
  ModelGraph graph;
  graph.name = "grouped";
  NodeId x = graph.add("input", Input{InputKind::images, 3, 16, 16, 0}, {});
  x = graph.add("stem", conv(8, 3, 2), {x});
  x = graph.add("stem_bn", BatchNorm{}, {x});
  const NodeId stem = graph.add("stem_relu", Relu{}, {x});
  x = graph.add("depthwise", conv(8, 3, 1, 8), {stem});
  x = graph.add("depthwise_bn", BatchNorm{}, {x});
  x = graph.add("depthwise_relu", Relu{}, {x});
  x = graph.add("point", conv(12, 1), {x});
  x = graph.add("point_relu", Relu{}, {x});
  x = graph.add("grouped", conv(12, 3, 1, 3), {x});
  x = graph.add("grouped_relu", Relu{}, {x});
  const NodeId side = graph.add("side", conv(4, 1), {stem});
  x = graph.add("concat", Concat{}, {x, side});
  x = graph.add("mix", conv(16, 1), {x});
  x = graph.add("mix_bn", BatchNorm{}, {x});
  x = graph.add("mix_relu", Relu{}, {x});
  x = graph.add("pool", GlobalAvgPool{}, {x});
  x = graph.add("fc", Linear{7, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

inline std::vector<ModelGraph> sample_graphs() {
  return {small_resnet(), small_resnet(ResidualBlock::bottleneck, 48), tiny_classifier(),
          plain_with_dense(), grouped_with_concat()};
}

}  // namespace heteroperf
