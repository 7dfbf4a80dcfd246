#include "workloads/graph/model_graph_json.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "metrics/base/error.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

ModelGraph small_model(const std::string& name) {
  const ModelSpec& spec = find_model(name);
  ModelOptions options;
  options.dropout = 0.1;
  for (const Input& input : spec.inputs) {
    if (input.kind == InputKind::tokens) {
      // An image takes 4 places of its text at most.
      options.length = spec.family.starts_with("vlm") ? 16 : 8;
      options.classes = 11;
    } else {
      options.height = options.width = 32;
      options.classes = 3;
      if (input.items > 0) options.images = 2;
    }
  }
  return build_model(name, options);
}

void expect_equal(const ModelGraph& a, const ModelGraph& b) {
  ASSERT_EQ(a.nodes().size(), b.nodes().size());
  EXPECT_EQ(a.name, b.name);
  for (std::size_t i = 0; i < a.nodes().size(); ++i) {
    const Node &left = a.nodes()[i], &right = b.nodes()[i];
    EXPECT_EQ(left.name, right.name);
    EXPECT_EQ(left.attributes, right.attributes) << left.name;
    EXPECT_EQ(left.inputs, right.inputs) << left.name;
    EXPECT_EQ(left.branch, right.branch) << left.name;
    EXPECT_EQ(left.output, right.output) << left.name;
    EXPECT_EQ(left.parameters.size(), right.parameters.size()) << left.name;
  }
  EXPECT_EQ(a.hash(), b.hash());
}

TEST(GraphJson, EveryModelRoundTripsToTheSameBytes) {
  for (const ModelSpec& spec : models()) {
    const ModelGraph graph = small_model(spec.name);
    const std::string text = graph_to_text(graph);
    const ModelGraph again = graph_from_text(text, "memory");
    expect_equal(graph, again);
    EXPECT_EQ(graph_to_text(again), text) << spec.name;
    expect_equal(graph, graph_from_json(graph_to_json(graph), "memory"));
  }
}

/// One graph with every kind of node, every field off its default.
ModelGraph every_kind() {
  ModelGraph graph;
  graph.name = "every kind";
  NodeId x = graph.add("in", Input{InputKind::images, 2, 9, 8, 0}, {}, "vision");
  x = graph.add("conv", Conv2d{6, {3, 2}, {1, 2}, {1, 0}, 2, true}, {x}, "vision");
  x = graph.add("bn", BatchNorm{1e-3, 0.25}, {x}, "vision");
  x = graph.add("max", MaxPool{{3, 2}, {1, 1}, {1, 0}}, {x});
  x = graph.add("avg", AvgPool{{2, 3}, {1, 1}, {0, 1}}, {x});
  const NodeId pooled = graph.add("global", GlobalAvgPool{}, {x});
  const NodeId wide = graph.add("wide", Concat{}, {x, x});
  x = graph.add("rows", ToSequence{}, {wide});
  x = graph.add("class", ClassToken{}, {x});
  x = graph.add("pos", PositionEmbedding{77}, {x});
  x = graph.add("type", TypeEmbedding{3}, {x});
  x = graph.add("rotary", Rotary{2, 1, 2, 500.5}, {graph.add("qkv", Linear{8, false, {}}, {x})});
  x = graph.add("attention", Attention{2, 1, 2, false, true}, {x});
  x = graph.add("ln", LayerNorm{1e-7, false}, {x});
  x = graph.add("rms", RmsNorm{0.1 + 0.2}, {x});
  const NodeId gate = graph.add("silu", Silu{}, {graph.add("gelu", Gelu{GeluForm::tanh}, {x})});
  x = graph.add("mul", Multiply{}, {gate, graph.add("tanh", Tanh{}, {x})});
  x = graph.add("take", TakeToken{1}, {graph.add("relu", Relu{}, {x})});
  x = graph.add("drop", Dropout{1.0 / 3}, {x});
  x = graph.add("up", Linear{6, true, {}}, {x});
  x = graph.add("flat", Flatten{}, {graph.add("sum", Add{}, {x, pooled})});
  graph.add("loss", CrossEntropy{0.05}, {x});
  return graph;
}

TEST(GraphJson, EveryKindRoundTrips) {
  const ModelGraph graph = every_kind();
  const std::string text = graph_to_text(graph);
  const ModelGraph again = graph_from_text(text, "memory");
  expect_equal(graph, again);
  EXPECT_EQ(graph_to_text(again), text);
  EXPECT_NE(text.find(R"("branch":"vision")"), std::string::npos);
}

TEST(GraphJson, FieldsWithDefaultsAndOutputsMayBeAbsent) {
  const ModelGraph graph = graph_from_text(R"({"_format":"heteroperf-graph","_version":1,"name":"g",
    "nodes":[{"name":"in","kind":"input","inputs":[],"sample":"tokens","length":4},
             {"name":"e","kind":"embedding","inputs":["in"],"vocabulary":7,"features":3},
             {"name":"loss","kind":"cross_entropy","inputs":["e"]}]})",
                                           "memory");
  EXPECT_EQ(graph.node(graph.find("e")).output, (Shape{4, 3}));
}

const char* valid_text = R"({"_format":"heteroperf-graph","_version":1,"name":"g","nodes":[
{"name":"in","kind":"input","inputs":[],"sample":"images","channels":3,"height":8,"width":8,"output":[3,8,8]},
{"name":"conv","kind":"conv2d","inputs":["in"],"out_channels":4,"kernel":[3,3],"stride":[1,1],"padding":[1,1],"groups":1,"bias":false,"output":[4,8,8]},
{"name":"act","kind":"gelu","inputs":["conv"],"form":"erf","output":[4,8,8]},
{"name":"pool","kind":"global_avg_pool","inputs":["act"],"output":[4]},
{"name":"loss","kind":"cross_entropy","inputs":["pool"],"label_smoothing":0.0,"output":[1]}
]}
)";

std::string error_of(const std::string& text) {
  try {
    graph_from_text(text, "g.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = valid_text;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(GraphJson, TheValidTextIsCanonical) {
  EXPECT_EQ(graph_to_text(graph_from_text(valid_text, "g.json")), valid_text);
}

struct BadText {
  const char* from;
  const char* to;
  const char* expected;
};

TEST(GraphJson, EveryMalformationIsNamed) {
  const BadText cases[] = {
      {"heteroperf-graph", "heteroperf-plan",
       R"(is a plan, a model's graph is wanted (its _format is "heteroperf-plan"))"},
      {"\"_format\":\"heteroperf-graph\",", "",
       R"(is not a model's graph (it has no _format "heteroperf-graph"))"},
      {"\"_version\":1", "\"_version\":2",
       "has heteroperf-graph version 2, this program knows version 1"},
      {"\"_version\":1", "\"_version\":\"1\"", "its _version must be 1, not \"1\""},
      {"\"name\":\"g\"", "\"name\":7", "name is 7 (must be a text)"},
      {"\"name\":\"g\",", "", "the key name is missing"},
      {"\"name\":\"g\"", "\"nmae\":\"g\"", R"(unknown key "nmae". Did you mean "name"?)"},
      {"\"name\":\"g\",\"nodes\":[", "\"name\":\"g\",\"nodes\":{}}", "not valid JSON"},
      {"\"out_channels\"", "\"out_chanels\"",
       R"(unknown key "out_chanels" in nodes[1 "conv"]. Did you mean "out_channels"?)"},
      {"\"out_channels\":4,", "", "out_channels is 0"},
      {"\"out_channels\":4", "\"out_channels\":\"4\"",
       R"(nodes[1 "conv"].out_channels is "4" (must be a whole number))"},
      {"\"out_channels\":4", "\"out_channels\":4.5",
       "out_channels is 4.5 (must be a whole number)"},
      {"\"out_channels\":4", "\"out_channels\":-4", "out_channels is -4"},
      {"\"out_channels\":4", "\"out_channels\":18446744073709551615",
       "must be a whole number below 2^63"},
      {"\"out_channels\":4", "\"out_channels\":null", "out_channels is null"},
      {"\"out_channels\":4", "\"out_channels\":4,\"out_channels\":8", "is there twice"},
      {"[3,3]", "[3]", "kernel is [3] (must be two whole numbers)"},
      {"[3,3]", "[3,true]", "kernel[1] is true"},
      {"[3,3]", "3", "kernel is 3 (must be two whole numbers)"},
      {"\"bias\":false", "\"bias\":0", "bias is 0 (must be true or false)"},
      {"\"kind\":\"conv2d\"", "\"kind\":\"conv3d\"", R"(Did you mean "conv2d"?)"},
      {"\"kind\":\"conv2d\"", "\"kind\":\"\"", R"(nodes[1 "conv"].kind is "")"},
      {"\"kind\":\"conv2d\",", "", R"(the key nodes[1 "conv"].kind is missing)"},
      {"\"kind\":\"conv2d\"", "\"kind\":\"relu\"",
       R"(unknown key "out_channels" in nodes[1 "conv"])"},
      {"\"form\":\"erf\"", "\"form\":\"erv\"", R"(Did you mean "erf"?)"},
      {"\"form\":\"erf\"", "\"form\":1", "must be one of erf, tanh"},
      {"\"sample\":\"images\"", "\"sample\":\"image\"", R"(Did you mean "images"?)"},
      {"\"inputs\":[\"in\"]", "\"inputs\":[\"on\"]",
       R"(nodes[1 "conv"]: its input "on" is no node. Did you mean "in"?)"},
      {"\"inputs\":[\"in\"]", "\"inputs\":[\"act\"]", R"(its input "act" comes later)"},
      {"\"inputs\":[\"in\"]", "\"inputs\":[\"conv\"]", R"(its input "conv" comes later)"},
      {"\"inputs\":[\"in\"]", "\"inputs\":\"in\"", "inputs is \"in\" (must be a list)"},
      {"\"inputs\":[\"in\"]", "\"inputs\":[1]", "inputs[0] is 1 (must be a text)"},
      {"\"inputs\":[\"in\"]", "\"inputs\":[]", "has 0 inputs (takes 1)"},
      {"\"inputs\":[\"in\"],", "", R"(the key nodes[1 "conv"].inputs is missing)"},
      {"\"name\":\"act\"", "\"name\":\"conv\"", "two nodes are named 'conv'"},
      {"\"name\":\"act\"", "\"name\":\"\"", "has no name"},
      {"\"output\":[4,8,8]", "\"output\":[4,8,9]",
       "stated as {4, 8, 9} (its inputs and attributes give {4, 8, 8})"},
      {"\"output\":[4,8,8]", "\"output\":4", "output is 4"},
      {"\"label_smoothing\":0.0", "\"label_smoothing\":1.5", "label_smoothing is 1.5"},
      {"\"label_smoothing\":0.0", "\"label_smoothing\":1e999", "not valid JSON"},
      {"\"kind\":\"cross_entropy\",\"inputs\":[\"pool\"],\"label_smoothing\":0.0",
       "\"kind\":\"relu\",\"inputs\":[\"pool\"]", "stated as {1}"},
      {"\"inputs\":[\"act\"]", "\"inputs\":[\"conv\"]", R"(nothing uses node "act")"},
      {"{\"name\":\"act\",\"kind\":\"gelu\",\"inputs\":[\"conv\"],\"form\":\"erf\",\"output\":[4,8,"
       "8]}",
       "17", "nodes[2] is 17 (must be an object)"},
  };
  for (const BadText& bad : cases) {
    const std::string message = error_of(replaced(bad.from, bad.to));
    EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.to << "\n" << message;
    EXPECT_NE(message.find("g.json"), std::string::npos) << message;
  }
}

TEST(GraphJson, TheLastNodeMustBeTheLoss) {
  const std::string message = error_of(
      R"({"_format":"heteroperf-graph","_version":1,"name":"g","nodes":[
      {"name":"in","kind":"input","inputs":[],"channels":3,"height":8,"width":8}]})");
  EXPECT_NE(message.find("the last node is not a loss"), std::string::npos) << message;
  EXPECT_NE(error_of(R"({"_format":"heteroperf-graph","_version":1,"name":"g","nodes":[]})")
                .find("the last node is not a loss"),
            std::string::npos);
}

TEST(GraphJson, AllProblemsComeAtOnce) {
  std::string text = replaced("\"out_channels\":4", "\"out_channels\":0,\"stide\":[1,1]");
  text.replace(text.find("\"form\":\"erf\""), 12, "\"form\":\"nah\"");
  text.replace(text.find("\"label_smoothing\":0.0"), 21, "\"label_smoothing\":2.0");
  const std::string message = error_of(text);
  EXPECT_NE(message.find("out_channels is 0"), std::string::npos) << message;
  EXPECT_NE(message.find(R"(Did you mean "stride"?)"), std::string::npos) << message;
  EXPECT_NE(message.find(R"(form is "nah")"), std::string::npos) << message;
}

TEST(GraphJson, NoTruncationIsAccepted) {
  const std::string text = valid_text;
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_NE(error_of(text.substr(0, length)).find("g.json"), std::string::npos) << length;
  }
}

TEST(GraphJson, OtherJsonIsNotAGraph) {
  for (const char* text : {"[]", "7", "null", "\"x\"", "{}"}) {
    EXPECT_NE(error_of(text).find("g.json"), std::string::npos) << text;
  }
  EXPECT_NE(error_of("\xff\xfe").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '[')).find("nest more than"), std::string::npos);
}

class GraphFile : public testing::Test {
 protected:
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / (fmt::format("graph_{}", getpid()));
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }
};

TEST_F(GraphFile, IsReadBack) {
  const auto path = folder / "g.json";
  std::ofstream(path) << valid_text;
  EXPECT_EQ(graph_to_text(read_graph_file(path)), valid_text);
}

TEST_F(GraphFile, MissingFileAndFolderAreNamed) {
  EXPECT_THROW(read_graph_file(folder / "none.json"), UserError);
  try {
    read_graph_file(folder);
    FAIL() << "a folder was read";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(folder.string()), std::string::npos);
  }
}

}  // namespace
}  // namespace heteroperf
