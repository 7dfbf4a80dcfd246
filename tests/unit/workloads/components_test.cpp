#include <gtest/gtest.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "workloads/data/data_source.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/graph_memory.hpp"
#include "workloads/models/models.hpp"
#include "workloads/workload_factories.hpp"

// Graphs of several components: inputs of more than one kind and number, and frozen parts.

namespace heteroperf {
namespace {

Input image(std::int64_t side, std::int64_t items = 0) {
  return {InputKind::images, 3, side, side, 0, items};
}
Input text(std::int64_t length) { return {InputKind::tokens, 0, 0, 0, length}; }

/// Up to 2 pictures {3, 8, 8} of 4 patches stand in a text of 12 tokens of width 6, for which the
/// token 9 holds 4 places each.
ModelGraph pictures_in_text(Weights vision = Weights::trained) {
  ModelGraph graph;
  graph.name = "pictures in text";
  const auto see = [&](const char* name, const Attributes& kind, std::vector<NodeId> inputs) {
    return graph.add(name, kind, std::move(inputs), "vision", vision);
  };
  const NodeId picture = graph.add("picture", image(8, 2), {}, "vision");
  NodeId x = see("patches", Conv2d{5, {4, 4}, {4, 4}, {0, 0}, 1, true}, {picture});
  x = see("rows", ToSequence{}, {x});
  x = see("up", Linear{8, true, {}}, {x});
  x = see("act", Gelu{}, {x});
  const NodeId seen = graph.add("projector", Linear{6, true, {}}, {x});
  const NodeId tokens = graph.add("tokens", text(12), {});
  const NodeId words = graph.add("words", Embedding{10, 6}, {tokens});
  x = graph.add("joined", InsertTokens{9}, {words, tokens, seen});
  x = graph.add("attention", Attention{1, 1, 2, true, false}, {x});
  graph.add("loss", CrossEntropy{}, {graph.add("head", Linear{10, false, {}}, {x})});
  return graph;
}

/// A picture {3, 4, 4} and a caption of 5 tokens, compared as vectors of 7.
ModelGraph two_towers() {
  ModelGraph graph;
  const NodeId picture = graph.add("picture", image(4), {}, "vision");
  const NodeId seen = graph.add("seen", Linear{7, false, {}},
                                {graph.add("flat", Flatten{}, {picture}, "vision")}, "vision");
  const NodeId tokens = graph.add("tokens", text(5), {}, "text");
  const NodeId words = graph.add("words", Embedding{11, 7}, {tokens}, "text");
  const NodeId end = graph.add("end", TokenPool{10}, {words, tokens}, "text");
  graph.add("loss", Contrastive{ContrastOver::micro_batch, 0.25}, {seen, end});
  return graph;
}

/// A text of 5 tokens that looks at one of 7.
ModelGraph two_streams() {
  ModelGraph graph;
  const NodeId q = graph.add("q", Embedding{9, 12}, {graph.add("a", text(5), {})});
  const NodeId kv = graph.add("kv", Embedding{9, 8}, {graph.add("b", text(7), {})});
  graph.add("loss", SquaredError{}, {graph.add("cross", CrossAttention{3, 1, 4}, {q, kv})});
  return graph;
}

TEST(Components, ShapesAndItemsAreInferred) {
  const ModelGraph graph = pictures_in_text();
  const NodeId picture = graph.find("picture");
  EXPECT_EQ(graph.inputs(), (std::vector<NodeId>{picture, graph.find("tokens")}));
  EXPECT_THROW(graph.input(), UserError);
  EXPECT_EQ(graph.node(graph.find("projector")).output, (Shape{4, 6}));
  EXPECT_EQ(graph.node(graph.find("projector")).items, picture);
  EXPECT_EQ(graph.node(picture).items, picture);
  EXPECT_EQ(graph.node(graph.find("joined")).output, (Shape{12, 6}));
  EXPECT_FALSE(graph.node(graph.find("joined")).items);
  EXPECT_FALSE(graph.node(graph.find("words")).items);

  const ModelGraph towers = two_towers();
  EXPECT_EQ(towers.node(towers.find("end")).output, (Shape{7}));
  const Node& loss = towers.node(towers.loss());
  EXPECT_EQ(loss.output, (Shape{1}));
  ASSERT_EQ(loss.parameters.size(), 1u);
  EXPECT_EQ(loss.parameters[0].shape, (Shape{1}));
}

TEST(Components, CrossAttentionHasTheQueriesShape) {
  const ModelGraph graph = two_streams();
  const NodeId cross = graph.find("cross");
  EXPECT_EQ(graph.node(cross).output, (Shape{5, 12}));
  const StrictOps ops = strict_node_ops(graph, cross);
  EXPECT_EQ(ops.forward, Ops(2 * 2 * 3 * 4 * 5 * 7));
  EXPECT_EQ(ops.input_gradient, ops.forward * 2);
}

std::string refusal(ModelGraph graph, const Attributes& attributes,
                    const std::vector<std::string>& inputs) {
  std::vector<NodeId> ids;
  for (const std::string& input : inputs) ids.push_back(graph.find(input));
  try {
    graph.add("bad", attributes, ids);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Components, EveryMisfitIsNamed) {
  ModelGraph graph;
  const NodeId tokens = graph.add("tokens", text(6), {});
  const NodeId words = graph.add("words", Embedding{9, 8}, {tokens});
  graph.add("short", text(5), {});
  const NodeId picture = graph.add("picture", image(4, 2), {});
  graph.add("pixels", Flatten{}, {picture});
  graph.add("patches", Linear{8, true, {}}, {graph.add("rows", ToSequence{}, {picture})});
  graph.add("vector", TakeToken{0}, {words});
  struct Bad {
    Attributes attributes;
    std::vector<std::string> inputs;
    const char* expected;
  };
  for (const Bad& bad : {
           Bad{TokenPool{3},
               {"words", "short"},
               "'short' has 5 tokens (the sequence 'words' has 6 rows)"},
           Bad{TokenPool{3}, {"words", "words"}, "its input 'words' holds features"},
           Bad{TokenPool{-1}, {"words", "tokens"}, "token is -1"},
           Bad{TokenPool{3}, {"tokens", "tokens"}, "its input 'tokens' holds token indices"},
           Bad{InsertTokens{3}, {"words", "tokens", "pixels"}, "expected rows of 8 features"},
           Bad{InsertTokens{3}, {"words", "tokens", "patches"}, "2 items of 16 rows do not fit"},
           Bad{InsertTokens{3}, {"words", "tokens"}, "has 2 inputs (takes 3)"},
           Bad{Add{}, {"words", "patches"}, "'words' and 'patches' do not go together"},
           Bad{CrossAttention{3, 2, 4}, {"words", "words"}, "kv_heads 2 does not divide heads 3"},
           Bad{CrossAttention{1, 1, 4}, {"words", "words"}, "queries of 4 are packed as heads"},
           Bad{CrossAttention{2, 2, 4}, {"words", "words"}, "packed as 2 kv_heads * head_dim"},
           Bad{CrossAttention{2, 1, 4}, {"vector", "words"}, "expected {length, features}"},
           Bad{Contrastive{}, {"vector", "words"}, "{8} and 'words' {6, 8} differ"},
           Bad{Contrastive{}, {"words", "words"}, "expected {features}"},
           Bad{Contrastive{ContrastOver::step, 0}, {"vector", "vector"}, "temperature is 0"},
           Bad{CrossEntropy{}, {"pixels"}, "a loss is over samples"},
           Bad{SquaredError{}, {"picture"}, "expected {features} or {length, features}"},
           Bad{image(4, -1), {}, "items is -1"},
       }) {
    const std::string message = refusal(graph, bad.attributes, bad.inputs);
    EXPECT_NE(message.find(bad.expected), std::string::npos) << message;
  }
}

TEST(Components, AreCountedByTheirItems) {
  const ModelGraph graph = pictures_in_text();
  // One picture has 4 patches of 5 channels from 48 pixels, 5 to 8 and 8 to 6 features.
  const Ops patches(2 * 4 * 5 * 48), up(2 * 4 * 5 * 8), projector(2 * 4 * 8 * 6);
  const Ops head(2 * 12 * 2 * 10), attention(2 * 12 * 12 * 2);
  BatchExtent batch = 3;
  batch.items[graph.find("picture")] = 4;
  const GraphCounts some = count_graph(graph, batch);
  EXPECT_EQ(some.strict.forward, (patches + up + projector) * 4 + (head + attention) * 3);
  EXPECT_EQ(some.strict.weight_gradient, (patches + up + projector) * 4 + head * 3);
  EXPECT_EQ(some.strict.input_gradient, (up + projector) * 4 + (head + attention * 2) * 3);
  EXPECT_EQ(strict_train_ops(graph, batch), some.strict.train());
  EXPECT_EQ(strict_forward_ops(graph, batch), some.strict.forward);
  // Without a number samples have as many as they may.
  batch.items[graph.find("picture")] = 6;
  EXPECT_EQ(count_graph(graph, 3).strict.train(), count_graph(graph, batch).strict.train());
  batch.items[graph.find("picture")] = 0;
  EXPECT_EQ(strict_forward_ops(graph, batch), (head + attention) * 3);
}

TEST(Components, AreSummedUpByBranch) {
  const ModelGraph graph = pictures_in_text(Weights::frozen);
  const GraphCounts counts = count_graph(graph, 2);
  const std::vector<ComponentCounts> components = by_component(graph, counts);
  ASSERT_EQ(components.size(), 2u);
  EXPECT_EQ(components[0].name, "vision");
  EXPECT_EQ(components[1].name, "main");
  EXPECT_EQ(components[0].trained_parameters, 0u);
  EXPECT_EQ(components[0].strict.backward(), Ops(0));
  EXPECT_EQ(components[0].parameters + components[1].parameters, counts.parameters);
  EXPECT_EQ(components[0].strict.forward + components[1].strict.forward, counts.strict.forward);
  EXPECT_EQ(components[1].strict.backward(), counts.strict.backward());
  EXPECT_EQ(components_of(graph), (std::vector<std::string>{"vision", "main"}));
  EXPECT_EQ(components[0].padding + components[1].padding, padding_train_ops(graph, 2));
}

TEST(Components, PaddingIsOfTheComponentThatMultipliesWithIt) {
  ModelGraph graph;
  const NodeId image = graph.add("image", Input{InputKind::images, 3, 8, 8, 0}, {}, "vision");
  Conv2d window;
  window.out_channels = 4;
  window.kernel = {3, 3};
  window.padding = {1, 1};
  const NodeId seen = graph.add("seen", window, {image}, "vision");
  const NodeId flat = graph.add("flat", Flatten{}, {seen}, "vision");
  const NodeId head = graph.add("head", Linear{10, true, ""}, {flat}, "head");
  graph.add("loss", CrossEntropy{}, {head}, "head");
  const std::vector<ComponentCounts> components = by_component(graph, count_graph(graph, 5));
  ASSERT_EQ(components.size(), 2u);
  EXPECT_GT(components[0].padding, Ops());
  EXPECT_EQ(components[0].padding, padding_train_ops(graph, 5));
  EXPECT_EQ(components[1].padding, Ops());
}

TEST(Components, APairIsHeldAgainstAllThatAreContrasted) {
  const ModelGraph graph = two_towers();
  const Ops seen(2 * 48 * 7);
  BatchExtent batch = 4;
  EXPECT_EQ(strict_forward_ops(graph, batch), seen * 4 + Ops(2 * 7 * 4 * 4));
  batch.contrasted = 10;
  EXPECT_EQ(strict_forward_ops(graph, batch), seen * 4 + Ops(2 * 7 * 4 * 10));
  const StrictOps loss = strict_node_ops(graph, graph.loss(), batch);
  EXPECT_EQ(loss.input_gradient, Ops(2 * 2 * 7 * 4 * 10));
  EXPECT_EQ(loss.weight_gradient, Ops(0));
  // Conventions of language models and classifiers do not know such a model.
  const GraphCounts counts = count_graph(graph, batch);
  EXPECT_FALSE(counts.conventions[Convention::palm].forward);
  EXPECT_FALSE(counts.conventions[Convention::aiperf].forward);
  EXPECT_EQ(counts.conventions[Convention::mac].forward, counts.strict.forward / 2);
}

TEST(Components, AFrozenOneHasNoGradientsOfItsWeights) {
  const ModelGraph trained = pictures_in_text(), frozen = pictures_in_text(Weights::frozen);
  EXPECT_NE(trained.hash(), frozen.hash());
  EXPECT_FALSE(frozen.node(frozen.find("up")).differentiable);
  EXPECT_TRUE(frozen.node(frozen.find("projector")).differentiable);
  const std::uint64_t vision = 5 * 48 + 5 + 8 * 5 + 8;
  EXPECT_EQ(frozen.parameter_count(), trained.parameter_count());
  EXPECT_EQ(frozen.trained_parameter_count(), trained.parameter_count() - vision);
  const StrictOps up = strict_node_ops(frozen, frozen.find("up"));
  EXPECT_GT(up.forward, Ops(0));
  EXPECT_EQ(up.backward(), Ops(0));
  const StrictOps projector = strict_node_ops(frozen, frozen.find("projector"));
  EXPECT_EQ(projector.input_gradient, Ops(0));
  EXPECT_EQ(projector.weight_gradient, projector.forward);

  const auto memory = [](const ModelGraph& graph) {
    return estimate_memory(graph, 1, Precision::fp32, OptimizerKind::adamw);
  };
  EXPECT_EQ(memory(frozen).weights, memory(trained).weights);
  EXPECT_EQ(memory(frozen).gradients, memory(trained).gradients - Bytes(4 * vision));
  EXPECT_EQ(memory(frozen).optimizer, memory(trained).optimizer - Bytes(8 * vision));
  // The projector's input is the output of what no gradient flows through, and is kept for its
  // weight; the picture, its patches and what gelu needs are not.
  const std::uint64_t kept_less = 2 * (3 * 64 + 20 + 32);
  EXPECT_EQ(memory(frozen).activations, memory(trained).activations - Bytes(4 * kept_less));
}

TEST(Components, AFrozenLayerBehindATrainedOnePassesGradientsOn) {
  ModelGraph graph;
  const NodeId first = graph.add("first", Linear{8, true, {}},
                                 {graph.add("flat", Flatten{}, {graph.add("in", image(4), {})})});
  const NodeId second = graph.add("second", Linear{5, true, {}}, {first}, "main", Weights::frozen);
  graph.add("loss", CrossEntropy{}, {second});
  const StrictOps ops = strict_node_ops(graph, second);
  EXPECT_EQ(ops.input_gradient, ops.forward);
  EXPECT_EQ(ops.weight_gradient, Ops(0));
  // Kept: pixels for the first weight, logits, a target. The second's input serves nothing.
  EXPECT_EQ(activation_bytes(graph, 1, Precision::fp32), Bytes(4 * (48 + 5) + 8));
  const GraphCounts counts = count_graph(graph);
  EXPECT_TRUE(counts.conventions[Convention::aiperf].forward);
  EXPECT_FALSE(counts.conventions[Convention::aiperf].backward);
}

TEST(Components, AreFrozenByTheirNames) {
  const ModelGraph graph = two_towers();
  const ModelGraph frozen = with_frozen(graph, "vision");
  EXPECT_EQ(frozen.trained_parameter_count(),
            graph.parameter_count() - parameter_count(graph.node(graph.find("seen"))));
  EXPECT_EQ(frozen.name, graph.name);
  EXPECT_NE(frozen.hash(), graph.hash());
  EXPECT_FALSE(frozen.node(frozen.find("seen")).differentiable);
  const auto refusal = [&](const char* components) -> std::string {
    try {
      with_frozen(graph, components);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("vison,txt").find("no component 'vison' to freeze"), std::string::npos);
  EXPECT_NE(refusal("vison,txt").find("no component 'txt'"), std::string::npos);
  EXPECT_NE(refusal("vison").find("'vision'"), std::string::npos);
  EXPECT_NE(refusal("vision,text,main").find("nothing is left to train"), std::string::npos);
}

TEST(Components, ATiedWeightIsFrozenWithItsOwner) {
  for (const Weights training : {Weights::trained, Weights::frozen}) {
    ModelGraph graph;
    const NodeId words =
        graph.add("words", Embedding{9, 4}, {graph.add("in", text(3), {})}, "main", training);
    const NodeId head =
        graph.add("head", Linear{9, false, "words"}, {words}, "main", Weights::frozen);
    graph.add("loss", CrossEntropy{}, {head});
    const bool trained = training == Weights::trained;
    EXPECT_EQ(graph.node(head).differentiable, trained);
    EXPECT_EQ(strict_node_ops(graph, head).weight_gradient > Ops(0), trained);
  }
}

TEST(Components, FilesKeepThem) {
  for (const ModelGraph& graph : {pictures_in_text(Weights::frozen), two_towers(), two_streams()}) {
    const std::string written = graph_to_text(graph);
    const ModelGraph again = graph_from_text(written, "memory");
    EXPECT_EQ(again.hash(), graph.hash());
    EXPECT_EQ(graph_to_text(again), written);
    EXPECT_EQ(again.trained_parameter_count(), graph.trained_parameter_count());
  }
  EXPECT_NE(graph_to_text(pictures_in_text()).find(R"("items":2)"), std::string::npos);
  EXPECT_EQ(graph_to_text(two_towers()).find("items"), std::string::npos);
}

TEST(Components, AModelOfWhichNothingIsTrainedIsRefused) {
  ModelGraph graph;
  const NodeId flat = graph.add("flat", Flatten{}, {graph.add("in", image(4), {})});
  graph.add("loss", CrossEntropy{},
            {graph.add("head", Linear{5, true, {}}, {flat}, "main", Weights::frozen)});
  try {
    graph_from_text(graph_to_text(graph), "memory");
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("no weight that is trained"), std::string::npos)
        << error.what();
  }
}

TEST(Components, TheGraphTellsWhichSamplesItTakes) {
  const SampleSpec pairs = sample_of(two_towers());
  EXPECT_EQ(pairs, (SampleSpec{SampleKind::pairs, 3, 4, 4, 5, 11}));
  EXPECT_EQ(pairs.pixels(), 48);
  EXPECT_EQ(pairs.targets(), 0);
  const auto refusal = [](const ModelGraph& graph) -> std::string {
    try {
      sample_of(graph);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(pictures_in_text()).find("does not put the images where token 8 is"),
            std::string::npos);
  EXPECT_NE(refusal(two_streams()).find("0 images and 2 texts"), std::string::npos);
  const ModelGraph captioner = build_model("vlm-nano");
  EXPECT_EQ(sample_of(captioner), (SampleSpec{SampleKind::captions, 3, 36, 36, 28, 32, 9}));
  EXPECT_EQ(sample_of(captioner), generated_sample("vlm-nano"));
  EXPECT_EQ(generated_sample("vlm-nano", 40).length, 40);
  const SampleSpec album = generated_sample("vlm-nano", {}, 3);
  EXPECT_EQ(album, (SampleSpec{SampleKind::captions, 3, 36, 36, 84, 32, 9, 3}));
  EXPECT_EQ(sample_of(model_for("vlm-nano", album)), album);
  const SampleSpec many = generated_sample("vlm-13b");
  EXPECT_EQ(many, (SampleSpec{SampleKind::captions, 3, 224, 224, 8192, 32000, 256, 24, 24}));
  EXPECT_EQ(sample_of(model_for("vlm-13b", many)), many);
  EXPECT_THROW(generated_sample("nano", {}, 3), UserError);
  const ModelGraph streams = build_model("co-attention-nano");
  EXPECT_EQ(sample_of(streams), (SampleSpec{SampleKind::matches, 3, 36, 36, 16, 32}));
  EXPECT_EQ(sample_of(streams), generated_sample("co-attention-nano"));
  EXPECT_EQ(sample_of(streams).targets(), 1);
  ModelGraph three_classes;
  for (const Node& node : streams.nodes()) {
    const bool head = node.name == "text.head";
    three_classes.add(node.name, head ? Linear{3, true, {}} : node.attributes, node.inputs,
                      node.branch);
  }
  EXPECT_NE(refusal(three_classes).find("does not tell two classes apart"), std::string::npos);
}

// A contrastive loss is over the step: its operations grow with the square of the samples, and a
// part of a step has its rows.
TEST(Components, APartOfAStepIsContrastedWithAllOfIt) {
  const ModelGraph part = two_towers();
  ModelGraph step;
  for (const Node& node : part.nodes()) {
    const bool loss = node.name == "loss";
    step.add(node.name, loss ? Contrastive{ContrastOver::step, 0.25} : node.attributes, node.inputs,
             node.branch);
  }
  const auto of_loss = [&](const ModelGraph& graph, const BatchExtent& extent) {
    return strict_node_ops(graph, graph.loss(), extent).train();
  };
  EXPECT_EQ(of_loss(step, 12), Ops(3 * 2 * 12 * 12 * 7));
  EXPECT_EQ(of_loss(step, part_of_step(step, 3, 12, 6)), Ops(3 * 2 * 3 * 12 * 7));
  EXPECT_EQ(of_loss(part, part_of_step(part, 3, 12, 6)), Ops(3 * 2 * 3 * 6 * 7));
  // An evaluation holds sets of 64 against one another, the last one may be smaller.
  EXPECT_EQ(strict_evaluation_ops(step, 130),
            strict_forward_ops(step, 64) * 2 + strict_forward_ops(step, 2));
}

// `--model gpt2` is `--size gpt2`.
TEST(WorkloadFactories, AModelOfALadderIsASizeToo) {
  WorkloadRequest by_size, by_model;
  by_size.size = by_model.model = "gpt2";
  EXPECT_EQ(make_llm(by_model, {}).graph.hash(), make_llm(by_size, {}).graph.hash());
}

}  // namespace
}  // namespace heteroperf
