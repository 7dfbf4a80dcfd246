#include "workloads/models/models.hpp"

#include <gtest/gtest.h>

#include <set>

#include "metrics/base/error.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/convolutional.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

Ops total(const GraphCounts& counts, Convention convention) {
  return counts.conventions[convention].forward.value();
}

ModelGraph at_length(const std::string& name, std::int64_t length) {
  ModelOptions options;
  options.length = length;
  return build_model(name, options);
}

struct ParameterRow {
  const char* model;
  std::uint64_t parameters;
};

/// Published counts: torchvision's tables, the papers' checkpoints, the issue's `micro`.
class PublishedParameters : public testing::TestWithParam<ParameterRow> {};
TEST_P(PublishedParameters, AreExact) {
  EXPECT_EQ(build_model(GetParam().model).parameter_count(), GetParam().parameters);
}
INSTANTIATE_TEST_SUITE_P(
    Models, PublishedParameters,
    testing::Values(
        ParameterRow{"resnet18", 11'689'512}, ParameterRow{"resnet34", 21'797'672},
        ParameterRow{"resnet50", 25'557'032}, ParameterRow{"resnet50-v1", 25'557'032},
        ParameterRow{"resnet101", 44'549'160}, ParameterRow{"resnet152", 60'192'808},
        ParameterRow{"vgg16", 138'357'544}, ParameterRow{"vit-b-16", 86'567'656},
        ParameterRow{"bert-base", 109'482'240}, ParameterRow{"gpt2", 124'439'808},
        ParameterRow{"gpt2-medium", 354'823'168}, ParameterRow{"gpt2-large", 774'030'080},
        ParameterRow{"gpt2-xl", 1'557'611'200}, ParameterRow{"llama-7b", 6'738'415'616},
        ParameterRow{"llama-13b", 13'015'864'320}, ParameterRow{"llama-33b", 32'528'943'616},
        ParameterRow{"llama-65b", 65'285'660'672}, ParameterRow{"llama2-70b", 68'976'648'192},
        ParameterRow{"llama3-8b", 8'030'261'248}, ParameterRow{"llama3-70b", 70'553'706'496},
        ParameterRow{"llama3-405b", 405'853'388'800}, ParameterRow{"mpt-7b", 6'649'286'656},
        ParameterRow{"micro", 3'454'464}),
    [](const auto& test) {
      std::string name = test.param.model;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

struct MacRow {
  const char* model;
  std::uint64_t macs;
};
class ForwardMacs : public testing::TestWithParam<MacRow> {};
TEST_P(ForwardMacs, AreExact) {
  EXPECT_EQ(total(count_graph(build_model(GetParam().model)), Convention::mac),
            Ops(GetParam().macs));
}
INSTANTIATE_TEST_SUITE_P(Models, ForwardMacs,
                         testing::Values(MacRow{"resnet50", 4'089'184'256},
                                         MacRow{"resnet50-v1", 3'857'973'248},
                                         MacRow{"vgg16", 15'470'264'320},
                                         MacRow{"vit-b-16", 17'563'828'224},
                                         MacRow{"bert-base", 48'318'971'904}));

/// open_clip states parameters, and GFLOP of a pair forward at 2 per multiply-add, text attention
/// in full. A pair by itself is held against nothing but its partner: 2 · features more.
TEST(ModelCounts, ClipIsOpenClips) {
  struct Row {
    const char* model;
    std::uint64_t parameters;
    double gflop;
    std::uint64_t compared;
  };
  for (const Row& row : {Row{"clip-vit-b-32", 151'277'313, 14.78, 512},
                         Row{"clip-vit-b-16", 149'620'737, 41.09, 512},
                         Row{"clip-vit-l-14", 427'616'513, 175.33, 768}}) {
    const ModelGraph graph = build_model(row.model);
    EXPECT_EQ(graph.parameter_count(), row.parameters) << row.model;
    const Ops macs = total(count_graph(graph), Convention::mac) - Ops(row.compared);
    EXPECT_NEAR(2e-9 * macs.to_double(), row.gflop, 0.005) << row.model;
  }
}

// A stream has blocks of 12 h² and vectors, and after every two of them an exchange, whose queries
// and output have the width h, its keys and values 2 h of the other stream's width.
TEST(ModelCounts, StreamsWithCoAttentionEqualTheClosedForm) {
  constexpr std::uint64_t layers = 4, exchanges = 2, v = 128, t = 96, patches = 9, length = 16;
  const auto stream = [](std::uint64_t h, std::uint64_t other) {
    const std::uint64_t mlp = 2 * h + 8 * h * h + 5 * h;
    const std::uint64_t block = 2 * h + 4 * h * h + 4 * h + mlp;
    const std::uint64_t exchange = 2 * h + 2 * other + 2 * (h * h + h) + 2 * h * (other + 1) + mlp;
    return layers * block + exchanges * exchange + 2 * h + 64 * (h + 1);
  };
  const ModelGraph graph = build_model("co-attention-nano");
  const std::uint64_t inputs = 3 * 12 * 12 * v + v + v + (patches + 1) * v + 32 * t + length * t;
  EXPECT_EQ(graph.parameter_count(), stream(v, t) + stream(t, v) + inputs + 2 * 64 + 2);
  // Every product's three passes: rows times its weights, and scores with their sums of values.
  const auto ops = [](std::uint64_t h, std::uint64_t other, std::uint64_t rows,
                      std::uint64_t others) {
    return layers * (24 * rows * h * h + 4 * rows * rows * h) +
           exchanges * (20 * rows * h * h + 4 * others * h * other + 4 * rows * others * h) +
           2 * 64 * h;
  };
  EXPECT_EQ(count_graph(graph).strict.forward,
            Ops(ops(v, t, patches + 1, length) + ops(t, v, length, patches + 1) +
                2 * patches * 3 * 12 * 12 * v + 2 * 64 * 2));
}

TEST(ModelCounts, BertBaseAt128) {
  EXPECT_EQ(total(count_graph(at_length("bert-base", 128)), Convention::mac), Ops(11'174'215'680));
}

TEST(ModelCounts, Llama7bAt128Tokens) {
  EXPECT_EQ(total(count_graph(at_length("llama-7b", 128)), Convention::mac), Ops(850'000'871'424));
}

TEST(ModelCounts, Resnet50V1UnderAiperf) {
  const GraphCounts counts = count_graph(build_model("resnet50-v1"));
  const PassOps& aiperf = counts.conventions[Convention::aiperf];
  EXPECT_EQ(aiperf.forward, Ops(7'806'583'495));
  EXPECT_EQ(aiperf.backward, Ops(15'246'874'820));
  EXPECT_EQ(aiperf.train(), Ops(23'053'458'315));
}

/// The rows of the profiler's table, summed by kind.
TEST(ModelCounts, Resnet50V1UnderAiperfByKind) {
  std::map<std::string, Ops> forward, backward;
  for (const LayerCounts& layer : count_graph(build_model("resnet50-v1")).layers) {
    forward[layer.kind] += layer.conventions[Convention::aiperf].forward.value();
    backward[layer.kind] += layer.conventions[Convention::aiperf].backward.value();
  }
  EXPECT_EQ(forward["conv2d"], Ops(7'711'850'496));
  EXPECT_EQ(backward["conv2d"], Ops(15'234'582'912));
  EXPECT_EQ(forward["batch_norm"], Ops(74'109'952));
  EXPECT_EQ(backward["batch_norm"], Ops(1'908));
  EXPECT_EQ(forward["relu"], Ops(9'081'856));
  EXPECT_EQ(forward["add"], Ops(5'519'360));
  EXPECT_EQ(forward["max_pool"], Ops(1'806'336));
  EXPECT_EQ(forward["global_avg_pool"], Ops(106'496));
  EXPECT_EQ(forward["linear"], Ops(4'096'000));
  EXPECT_EQ(backward["linear"], Ops(12'290'000));
  EXPECT_EQ(forward["cross_entropy"], Ops(12'999));
}

TEST(ModelCounts, Resnet50V15StrictTraining) {
  const ModelGraph graph = build_model("resnet50");
  const GraphCounts counts = count_graph(graph);
  EXPECT_EQ(counts.strict.train(), Ops(24'299'077'632));
  // The first convolution has no input gradient: 118 013 952 multiply-adds less than 3 x forward.
  EXPECT_EQ(3 * counts.strict.forward - counts.strict.train(), Ops(2 * 118'013'952));
  EXPECT_EQ(strict_train_ops(graph, 32), 32 * counts.strict.train());
}

TEST(ModelCounts, VitParts) {
  std::map<std::string, Ops> macs;
  for (const LayerCounts& layer : count_graph(build_model("vit-b-16")).layers) {
    const std::string part = layer.name == "head" ? "head" : layer.kind;
    macs[part] += layer.conventions[Convention::mac].forward.value();
  }
  EXPECT_EQ(macs["linear"], Ops(16'732'127'232));
  EXPECT_EQ(macs["attention"], Ops(715'327'488));
  EXPECT_EQ(macs["conv2d"], Ops(115'605'504));
  EXPECT_EQ(macs["head"], Ops(768'000));
}

struct GptRow {
  const char* model;
  std::uint64_t layers, width;
  double full_gflop, causal_gflop;  ///< forward, one sequence of 1024
};
class Gpt2Counts : public testing::TestWithParam<GptRow> {};
TEST_P(Gpt2Counts, EqualTheClosedFormAndTheTable) {
  const GptRow& row = GetParam();
  const std::uint64_t s = 1024, h = row.width, l = row.layers, v = 50257;
  const Ops linear = Ops(2 * s) * (12 * l * h * h + v * h);
  const Ops attention = Ops(4 * l * h) * (s * s);
  const GraphCounts counts = count_graph(build_model(row.model));
  EXPECT_EQ(total(counts, Convention::megatron_full), linear + attention);
  EXPECT_EQ(total(counts, Convention::megatron_causal), linear + attention / 2);
  EXPECT_EQ(counts.strict.forward, linear + attention / 2);
  EXPECT_EQ(counts.strict.train(), 3 * counts.strict.forward);
  EXPECT_NEAR(total(counts, Convention::megatron_full).to_double() / 1e9, row.full_gflop, 5e-4);
  EXPECT_NEAR(counts.strict.forward.to_double() / 1e9, row.causal_gflop, 5e-4);
}
INSTANTIATE_TEST_SUITE_P(Models, Gpt2Counts,
                         testing::Values(GptRow{"gpt2", 12, 768, 291.648, 272.321},
                                         GptRow{"gpt2-medium", 24, 1024, 826.951, 775.411},
                                         GptRow{"gpt2-large", 36, 1280, 1774.571, 1677.934},
                                         GptRow{"gpt2-xl", 48, 1600, 3506.704, 3345.642}));

struct LlamaRow {
  const char* model;
  std::uint64_t layers, width, mlp_width;
  double full_gflop, causal_gflop;  ///< training, per token of a sequence of 2048
};
class LlamaCounts : public testing::TestWithParam<LlamaRow> {};
TEST_P(LlamaCounts, EqualTheClosedFormAndTheTable) {
  const LlamaRow& row = GetParam();
  const std::uint64_t s = 2048, h = row.width, l = row.layers, v = 32000;
  const Ops linear = Ops(6 * s) * (l * (4 * h * h + 3 * h * row.mlp_width) + v * h);
  const Ops attention = Ops(12 * l * h) * (s * s);
  const GraphCounts counts = count_graph(build_model(row.model));
  EXPECT_EQ(counts.conventions[Convention::megatron_full].train(), linear + attention);
  EXPECT_EQ(counts.conventions[Convention::megatron_causal].train(), linear + attention / 2);
  EXPECT_EQ(counts.strict.train(), linear + attention / 2);
  const double tokens = static_cast<double>(s) * 1e9;
  EXPECT_NEAR((linear + attention).to_double() / tokens, row.full_gflop, 5e-4);
  EXPECT_NEAR(counts.strict.train().to_double() / tokens, row.causal_gflop, 5e-4);
}
INSTANTIATE_TEST_SUITE_P(Models, LlamaCounts,
                         testing::Values(LlamaRow{"llama-7b", 32, 4096, 11008, 42.864, 41.253},
                                         LlamaRow{"llama-13b", 40, 5120, 13824, 82.143, 79.626},
                                         LlamaRow{"llama-33b", 60, 6656, 17920, 203.706, 198.798},
                                         LlamaRow{"llama-65b", 80, 8192, 22016, 406.239, 398.186}));

// 6N + 12LHQT with N without the position table, as nanoGPT and PaLM count it.
TEST(ModelCounts, PalmIsSixNPlusAttentionPerToken) {
  const std::uint64_t n = 124'439'808 - 1024 * 768;
  const GraphCounts counts = count_graph(build_model("gpt2"));
  const Ops expected = Ops(1024) * (6 * n + 12 * 12 * 768 * 1024);
  EXPECT_EQ(counts.conventions[Convention::palm].train(), expected);
}

// llm-foundry's MPT-7B row: 6N + 12 L d s per token.
TEST(ModelCounts, PalmOfMpt7b) {
  const std::uint64_t n = 6'649'286'656;
  const GraphCounts counts = count_graph(build_model("mpt-7b"));
  const Ops expected = Ops(2048) * (6 * n + 12ULL * 32 * 4096 * 2048);
  EXPECT_EQ(counts.conventions[Convention::palm].train(), expected);
}

// Megatron-Bridge's published tokens/s and TFLOP/s pairs imply these training operations per token.
TEST(ModelCounts, GroupedQueryModelsMatchPublishedRates) {
  const auto per_token = [](const char* model) {
    const GraphCounts counts = count_graph(build_model(model));
    return counts.conventions[Convention::megatron_causal].train()->to_double() / 8192;
  };
  EXPECT_NEAR(per_token("llama3-8b") * 14451 / 744e12, 1.0, 0.005);
  EXPECT_NEAR(per_token("llama3-70b") * 1602 / 719e12, 1.0, 0.005);
  EXPECT_NEAR(per_token("llama3-405b") * 292 / 737e12, 1.0, 0.005);
}

TEST(ModelCounts, ConventionsAreAbsentWhereNotDefined) {
  const auto defined = [](const char* model, Convention convention) {
    return count_graph(build_model(model)).conventions[convention].train().has_value();
  };
  EXPECT_FALSE(defined("gpt2", Convention::aiperf));
  EXPECT_FALSE(defined("vit-b-16", Convention::aiperf));
  EXPECT_TRUE(defined("vgg16", Convention::aiperf));
  EXPECT_FALSE(defined("resnet50", Convention::palm));
  EXPECT_FALSE(defined("resnet50", Convention::megatron_causal));
  EXPECT_TRUE(defined("bert-base", Convention::megatron_full));
}

TEST(Models, AllBuildWithTheirOwnName) {
  std::set<std::string> names, hashes;
  for (const ModelSpec& spec : models()) {
    const ModelGraph graph = build_model(spec.name);
    EXPECT_EQ(graph.name, spec.name);
    EXPECT_NO_THROW(graph.loss()) << spec.name;
    std::vector<Input> inputs;
    for (const NodeId id : graph.inputs()) {
      inputs.push_back(std::get<Input>(graph.node(id).attributes));
    }
    EXPECT_EQ(inputs, spec.inputs) << spec.name;
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_TRUE(hashes.insert(graph.hash()).second) << spec.name;
    EXPECT_FALSE(spec.summary.empty());
  }
}

TEST(Models, TheLadderGrows) {
  const std::vector<std::string> ladder = llm_ladder();
  ASSERT_GE(ladder.size(), 4u);
  EXPECT_EQ(ladder.front(), "nano");
  EXPECT_EQ(ladder.back(), "175b");
  for (std::size_t i = 1; i < ladder.size(); ++i) {
    EXPECT_LT(build_model(ladder[i - 1]).parameter_count(),
              build_model(ladder[i]).parameter_count());
  }
}

TEST(Models, Resnet18KeepsItsStemOnSmallImages) {
  ModelOptions options;
  options.channels = 1;
  options.height = options.width = 28;
  options.classes = 10;
  const ModelGraph graph = build_model("resnet18", options);
  EXPECT_EQ(graph.node(graph.find("conv1")).output, (Shape{64, 14, 14}));
  EXPECT_EQ(graph.node(graph.find("maxpool")).output, (Shape{64, 7, 7}));
  EXPECT_EQ(graph.node(graph.find("layer4.1.relu")).output, (Shape{512, 1, 1}));
  EXPECT_EQ(graph.node(graph.find("fc")).output, (Shape{10}));
}

TEST(Models, DropoutAddsNodesWithoutChangingCounts) {
  for (const char* name : {"resnet18", "vgg16", "vit-b-16", "bert-base", "nano", "llama-7b"}) {
    ModelOptions options;
    options.dropout = 0.25;
    const ModelGraph with = build_model(name, options), without = build_model(name);
    EXPECT_GT(with.nodes().size(), without.nodes().size()) << name;
    EXPECT_EQ(strict_train_ops(with, 1), strict_train_ops(without, 1)) << name;
    EXPECT_EQ(with.parameter_count(), without.parameter_count()) << name;
  }
}

TEST(Models, TheTiedHeadOwnsNothing) {
  const ModelGraph tied = build_model("gpt2"), untied = build_model("small");
  EXPECT_TRUE(tied.node(tied.find("head")).parameters.empty());
  EXPECT_EQ(untied.node(untied.find("head")).parameters.size(), 1u);
}

std::string error_of(const std::string& name, const ModelOptions& options) {
  try {
    build_model(name, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Models, BadOptionsAreNamed) {
  ModelOptions options;
  options.length = 100;
  EXPECT_NE(error_of("resnet18", options).find("no option 'length'"), std::string::npos);
  options.height = -3;
  const std::string both = error_of("resnet18", options);
  EXPECT_NE(both.find("length"), std::string::npos) << both;
  EXPECT_NE(both.find("height of model 'resnet18' is -3"), std::string::npos) << both;
  ModelOptions too_long;
  too_long.length = 1025;
  EXPECT_NE(error_of("gpt2", too_long).find("1024 positions for a sequence of 1025"),
            std::string::npos);
  ModelOptions dropout;
  dropout.dropout = -0.5;
  for (const char* model : {"resnet18", "vgg16", "vit-b-16", "bert-base", "gpt2"}) {
    EXPECT_NE(error_of(model, dropout).find("p is -0.5"), std::string::npos) << model;
  }
  ModelOptions tiny;
  tiny.height = tiny.width = 16;
  EXPECT_NE(error_of("vgg16", tiny).find("kernel 2x2 is larger than its input"), std::string::npos);
  ModelOptions classes;
  classes.classes = 0;
  EXPECT_NE(error_of("resnet50", classes).find("out_features is 0"), std::string::npos);
}

TEST(Models, AnUnknownNameGetsTheNearest) {
  EXPECT_NE(error_of("resnet5", {}).find("Did you mean 'resnet50'?"), std::string::npos);
}

TEST(Models, GenericShapesAreChecked) {
  GptShape shape;
  shape.layers = 1;
  shape.width = 10;
  shape.heads = 3;
  shape.vocabulary = 7;
  shape.length = 4;
  EXPECT_THROW(gpt(shape), UserError);
  shape.heads = 2;
  EXPECT_NO_THROW(gpt(shape));
}

}  // namespace
}  // namespace heteroperf
