#include "workloads/models/vgg.hpp"

#include <fmt/format.h>

#include <vector>

#include "workloads/models/transformer.hpp"

namespace heteroperf {
namespace {

struct VggStage {
  std::int64_t width;
  int convolutions;
};
constexpr VggStage configuration_d[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
constexpr std::int64_t hidden_width = 4096;

NodeId add_stage(ModelGraph& graph, int number, NodeId x, const VggStage& stage) {
  for (int i = 1; i <= stage.convolutions; ++i) {
    Conv2d conv;
    conv.out_channels = stage.width;
    conv.kernel = {3, 3};
    conv.padding = {1, 1};
    conv.bias = true;
    x = graph.add(fmt::format("conv{}_{}", number, i), conv, {x});
    x = graph.add(fmt::format("relu{}_{}", number, i), Relu{}, {x});
  }
  return graph.add(fmt::format("pool{}", number), MaxPool{}, {x});
}

}  // namespace

ModelGraph vgg16(const Input& input, std::int64_t classes, double dropout) {
  ModelGraph graph;
  NodeId x = graph.add("input", input, {});
  int number = 0;
  for (const VggStage& stage : configuration_d) x = add_stage(graph, ++number, x, stage);
  x = graph.add("flatten", Flatten{}, {x});
  for (const char* layer : {"fc6", "fc7"}) {
    x = graph.add(layer, Linear{hidden_width, true, {}}, {x});
    x = graph.add(std::string(layer) + ".relu", Relu{}, {x});
    x = add_dropout(graph, std::string(layer) + ".dropout", x, dropout);
  }
  x = graph.add("fc8", Linear{classes, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

}  // namespace heteroperf
