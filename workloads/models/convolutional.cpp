#include "workloads/models/convolutional.hpp"

#include <fmt/format.h>
#include <vector>

#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t bottleneck_expansion = 4;

/// Builds a residual network from the stem to the loss. Nodes have torchvision's names.
class ResnetBuilder {
 public:
  explicit ResnetBuilder(const ResnetShape& shape) : shape_(shape) {}

  ModelGraph build() {
    NodeId x = stem();
    std::int64_t width = shape_.stem_width;
    for (std::size_t stage = 0; stage < shape_.stages.size(); ++stage, width *= 2) {
      for (std::int64_t block = 0; block < shape_.stages[stage]; ++block) {
        const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
        x = residual_block(fmt::format("layer{}.{}", stage + 1, block), x, width, stride);
      }
    }
    head(x);
    return std::move(graph_);
  }

 private:
  /// Adds the layers before the first stage.
  NodeId stem() {
    const NodeId sample = graph_.add("input", shape_.input, {});
    const NodeId x = conv_bn("conv1", "bn1", sample, {shape_.stem_width, 7, 2});
    const NodeId active = graph_.add("relu", Relu{}, {x});
    return graph_.add("maxpool", MaxPool{{3, 3}, {2, 2}, {1, 1}}, {active});
  }

  /// Adds the classifier and the loss.
  void head(NodeId x) {
    x = graph_.add("avgpool", GlobalAvgPool{}, {x});
    x = add_dropout(graph_, "dropout", x, shape_.dropout);
    x = graph_.add("fc", Linear{shape_.classes, true, {}}, {x});
    graph_.add("loss", CrossEntropy{}, {x});
  }

  /// A convolution that keeps the size of its map, up to the stride.
  struct Convolution {
    std::int64_t width, kernel, stride;
  };

  /// Adds a convolution and its batch norm.
  NodeId conv_bn(const std::string& conv, const std::string& norm, NodeId x,
                 const Convolution& shape) {
    const std::int64_t padding = shape.kernel / 2;
    const Conv2d attributes{.out_channels = shape.width,
                            .kernel = {shape.kernel, shape.kernel},
                            .stride = {shape.stride, shape.stride},
                            .padding = {padding, padding}};
    return graph_.add(norm, BatchNorm{}, {graph_.add(conv, attributes, {x})});
  }

  /// Lists the two 3×3 convolutions of a basic block, or the 1×1, 3×3 and 1×1 of a bottleneck.
  std::vector<Convolution> convolutions(std::int64_t width, std::int64_t stride) const {
    if (shape_.block == ResidualBlock::basic) return {{width, 3, stride}, {width, 3, 1}};
    const bool first = shape_.stride_place == StridePlace::first_conv1x1;
    return {{width, 1, first ? stride : 1},
            {width, 3, first ? 1 : stride},
            {width * bottleneck_expansion, 1, 1}};
  }

  /// Adds a block: its branch, a projected shortcut where the shape changes, their sum and a ReLU.
  NodeId residual_block(const std::string& prefix, NodeId x, std::int64_t width,
                        std::int64_t stride) {
    NodeId branch = x, shortcut = x;
    int number = 0;
    for (const Convolution& convolution : convolutions(width, stride)) {
      if (number > 0)
        branch = graph_.add(fmt::format("{}.relu{}", prefix, number), Relu{}, {branch});
      ++number;
      branch = conv_bn(fmt::format("{}.conv{}", prefix, number),
                       fmt::format("{}.bn{}", prefix, number), branch, convolution);
    }
    const std::int64_t out_width = graph_.node(branch).output[0];
    if (stride != 1 || graph_.node(x).output[0] != out_width) {
      shortcut =
          conv_bn(prefix + ".downsample.0", prefix + ".downsample.1", x, {out_width, 1, stride});
    }
    return graph_.add(prefix + ".relu", Relu{},
                      {graph_.add(prefix + ".add", Add{}, {branch, shortcut})});
  }

  const ResnetShape& shape_;
  ModelGraph graph_;
};

/// A stage of VGG: convolutions of one width, and a pool.
struct VggStage {
  std::int64_t width;
  int convolutions;
};
constexpr VggStage configuration_d[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
constexpr std::int64_t hidden_width = 4096;

/// Adds the convolutions of a stage and its pool.
NodeId add_stage(ModelGraph& graph, int number, NodeId x, const VggStage& stage) {
  for (int i = 1; i <= stage.convolutions; ++i) {
    const Conv2d conv{
        .out_channels = stage.width, .kernel = {3, 3}, .padding = {1, 1}, .bias = true};
    x = graph.add(fmt::format("conv{}_{}", number, i), conv, {x});
    x = graph.add(fmt::format("relu{}_{}", number, i), Relu{}, {x});
  }
  return graph.add(fmt::format("pool{}", number), MaxPool{}, {x});
}

}  // namespace

ModelGraph resnet(const ResnetShape& shape) { return ResnetBuilder(shape).build(); }

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
