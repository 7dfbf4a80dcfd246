// The verb `count`: answers, from the graph alone and without training, how many operations a model
// needs, how many parameters it has, and how much memory a training of it takes. Operations depend
// on a *convention* of counting. `strict` counts what a step really computes and is the one that
// records use; others (AIPerf, multiply-adds, PaLM, Megatron) are there to compare with numbers
// that people publish. A convention has no answer for models that it does not define, and shows a
// dash.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/text/document.hpp"
#include "suite/program/verb.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/graph_memory.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// One model for a batch, and what is told of it.
struct CountedModel {
  const ModelGraph& graph;
  GraphCounts counts;
  std::vector<Convention> conventions;  ///< the extra ones asked for
};

/// Counts are exact, so people and programs read all digits; programs read them as text.
Datum digits(const std::optional<Ops>& count) {
  return count ? Datum(count->to_string()).as(count->to_string()) : Datum();
}

/// The counts of the passes that a convention defines.
std::vector<Member> passes_of(const PassOps& counts) {
  return {{"forward", digits(counts.forward)},
          {"backward", digits(counts.backward)},
          {"train", digits(counts.train())}};
}
bool is_defined(const PassOps& counts) { return counts.forward || counts.backward; }

/// The classes are the last dimension of what a cross entropy takes; those of a language model are
/// its vocabulary.
std::optional<std::int64_t> classes_of(const ModelGraph& graph) {
  const Node& loss = graph.node(graph.loss());
  if (!std::holds_alternative<CrossEntropy>(loss.attributes)) return std::nullopt;
  return graph.node(loss.inputs.front()).output.back();
}

const Input& input_of(const ModelGraph& graph, NodeId node) {
  return std::get<Input>(graph.node(node).attributes);
}
std::string extents_of(const Input& input) {
  return input.kind == InputKind::tokens
             ? fmt::format("{} tokens", input.length)
             : fmt::format("{}x{}x{} image", input.channels, input.height, input.width);
}

/// Tokens are told with the vocabulary, images with their classes.
void add_input(Document& document, const Input& input, std::uint64_t samples,
               std::optional<std::int64_t> classes) {
  const bool tokens = input.kind == InputKind::tokens;
  std::string last;
  if (classes)
    last = tokens ? fmt::format(" of {}", *classes) : fmt::format(", {} classes", *classes);
  document.field("", "input", Unit::none,
                 fmt::format("{} of {}{}", samples, extents_of(input), last));
  const auto add = [&](const char* key, const char* label, Datum value) {
    document.data(std::string("input.") + key, label, Unit::none, std::move(value));
  };
  add("samples", "samples", samples);
  add("kind", "kind of the input", tokens ? "tokens" : "images");
  if (tokens) {
    add("length", "tokens of a sample", input.length);
  } else {
    add("channels", "channels of an image", input.channels);
    add("height", "its height", input.height);
    add("width", "its width", input.width);
  }
  add("classes", "classes, or words of the vocabulary", classes ? Datum(*classes) : Datum());
}

/// The inputs of a model of several components, and what each component counts. A branch of the
/// graph is one.
void add_components(Document& document, const CountedModel& model) {
  const ModelGraph& graph = model.graph;
  Table inputs{"inputs",
               "",
               {{"name", "input", Unit::none},
                {"component", "component", Unit::none},
                {"kind", "kind", Unit::none, Audience::programs},
                {"", "extents", Unit::none, Audience::people},
                {"extents", "extents", Unit::none, Audience::programs},
                {"items", "at most per sample", Unit::none}}};
  for (const NodeId id : graph.inputs()) {
    const Node& node = graph.node(id);
    const Input& input = input_of(graph, id);
    inputs.add({node.name, node.branch, std::string(to_string(input.kind)), extents_of(input),
                node.output, input.items > 0 ? Datum(input.items) : Datum()});
  }
  document.field("samples", "samples", Unit::none, model.counts.batch.samples);
  document.table(std::move(inputs));
  Table table{"components",
              "",
              {{"name", "component", Unit::none},
               {"parameters", "parameters", Unit::none},
               {"trained_parameters", "trained", Unit::none},
               {"strict.forward", "strict forward", Unit::operations},
               {"strict.input_gradient", "input gradient", Unit::operations},
               {"strict.weight_gradient", "weight gradient", Unit::operations}}};
  for (const ComponentCounts& component : by_component(graph, model.counts)) {
    table.add({component.name, component.parameters, component.trained_parameters,
               digits(component.strict.forward), digits(component.strict.input_gradient),
               digits(component.strict.weight_gradient)});
  }
  document.table(std::move(table));
}

/// People see the conventions that they asked for, else the three that most readers know, in rows.
void add_operations(Document& document, const CountedModel& model) {
  const ConventionCounts& counts = model.counts.conventions;
  const std::vector<Convention> usual{Convention::strict, Convention::aiperf, Convention::mac};
  Table table{.key = {}, .columns = {{"", "operations", Unit::none}}, .audience = Audience::people};
  for (const std::size_t pass : {0, 1, 2}) {
    std::vector<Member> by_convention;
    for (const Convention convention : usual) {
      by_convention.push_back({to_string(convention), passes_of(counts[convention])[pass].value});
    }
    const std::string name = passes_of({})[pass].key;
    document.data(name, name + " by convention", Unit::operations, std::move(by_convention));
    table.columns.push_back({"", name, Unit::operations});
  }
  for (const Convention convention : model.conventions.empty() ? usual : model.conventions) {
    const PassOps& pass = counts[convention];
    // One that was asked for by itself is shown to be without an answer.
    if (model.conventions.size() == all_conventions.size() && !is_defined(pass)) continue;
    table.add(
        {to_string(convention), digits(pass.forward), digits(pass.backward), digits(pass.train())});
  }
  document.table(std::move(table));
}

/// Gradients of inputs and weights are counted apart, because schedules compute them apart.
Table layers_table(const std::vector<LayerCounts>& layers) {
  return table_of("layers", layers,
                  {{{"name", "layer", Unit::none}, &LayerCounts::name},
                   {{"kind", "kind", Unit::none}, &LayerCounts::kind},
                   {{"parameters", "parameters", Unit::none}, &LayerCounts::parameters},
                   {{"strict.forward", "strict forward", Unit::operations},
                    [](const LayerCounts& layer) { return digits(layer.strict.forward); }},
                   {{"strict.input_gradient", "input gradient", Unit::operations},
                    [](const LayerCounts& layer) { return digits(layer.strict.input_gradient); }},
                   {{"strict.weight_gradient", "weight gradient", Unit::operations},
                    [](const LayerCounts& layer) { return digits(layer.strict.weight_gradient); }},
                   // AIPerf counts only some kinds of layers.
                   {{"aiperf", "aiperf by pass", Unit::operations, Audience::programs},
                    [](const LayerCounts& layer) {
                      const PassOps& aiperf = layer.conventions[Convention::aiperf];
                      return is_defined(aiperf) ? Datum(passes_of(aiperf)) : Datum();
                    }}});
}

Document count_document(const CountedModel& model, bool per_layer) {
  const std::vector<NodeId> inputs = model.graph.inputs();
  // Models that read tokens are usually trained with AdamW, which keeps two states per weight;
  // classifiers with SGD.
  const bool reads_tokens = std::ranges::any_of(
      inputs, [&](NodeId id) { return input_of(model.graph, id).kind == InputKind::tokens; });
  const OptimizerKind optimizer = reads_tokens ? OptimizerKind::adamw : OptimizerKind::sgd;
  Document document{"heteroperf-count"};
  document.field("model", "model", Unit::none, model.graph.name);
  document.data("graph_hash", "hash of the graph", Unit::none, model.graph.hash());
  if (inputs.size() == 1) {
    add_input(document, input_of(model.graph, inputs[0]), model.counts.batch.samples,
              classes_of(model.graph));
  } else {
    add_components(document, model);
  }
  document.field("parameters", "parameters", Unit::none, model.counts.parameters);
  add_operations(document, model);
  // Memory is that of a training in fp32 with the usual optimizer of the family.
  const MemoryEstimate memory =
      estimate_memory(model.graph, model.counts.batch.samples, Precision::fp32, optimizer);
  const auto add_memory = [&](const char* use, Bytes bytes, std::string hint = {}) {
    document.field(fmt::format("memory.{}_bytes", use), fmt::format("fp32 {}", use), Unit::bytes,
                   bytes.value(), std::move(hint));
  };
  add_memory("weights", memory.weights);
  add_memory("gradients", memory.gradients);
  add_memory("optimizer", memory.optimizer, to_string(optimizer));
  add_memory("activations", memory.activations);
  if (!model.conventions.empty()) {
    std::vector<Member> conventions;
    for (const Convention convention : model.conventions) {
      const PassOps& counts = model.counts.conventions[convention];
      if (is_defined(counts)) conventions.push_back({to_string(convention), passes_of(counts)});
    }
    document.data("conventions", "operations by convention and pass", Unit::operations,
                  std::move(conventions));
  }
  if (per_layer) document.table(layers_table(model.counts.layers));
  return document;
}

/// "HxW".
std::pair<std::int64_t, std::int64_t> parse_image(const std::string& text) {
  std::int64_t height = 0, width = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, height);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == 'x') {
    const auto second = std::from_chars(first.ptr + 1, end, width);
    if (second.ec == std::errc{} && second.ptr == end && height > 0 && width > 0) {
      return {height, width};
    }
  }
  throw UserError("--image " + text + " is not usable", "expected HEIGHTxWIDTH, as 224x224");
}

class CountVerb : public Verb {
 public:
  CountVerb()
      : Verb(
            {"count",
             "operations, parameters and memory of a model, from its graph",
             {"count resnet50-v1 --convention all --json", "count micro --batch 16 --per-layer"}}) {
  }

  void declare(CLI::App& command) override {
    add_argument(command, "model", model_, "a name of `list models`, or a graph file (.json)");
    command.add_option("--batch", batch_, "samples (default 1)")->check(CLI::Range(1L, 1L << 40));
    command.add_option("--seq", length_, "tokens of a sample")->check(CLI::Range(1L, 1L << 30));
    add_typed_option(command, "--image", image_, "HxW", "height and width of an image");
    command.add_option("--convention", convention_,
                       "also strict, aiperf, mac, palm, megatron-full, megatron-causal, or all");
    command.add_flag("--per-layer", per_layer_, "every node by itself");
  }

  ExitCode run(const GlobalOptions& options) override {
    const ModelGraph graph = load();
    const auto samples = static_cast<std::uint64_t>(batch_);
    print(count_document({graph, count_graph(graph, samples), extra_conventions()}, per_layer_),
          options);
    return ExitCode::ok;
  }

 private:
  /// Reads a graph file, or builds a model of the catalog with the shapes that were asked for.
  ModelGraph load() const {
    if (std::filesystem::is_directory(model_)) {
      throw UserError("'" + model_ + "' is a folder", "expected a graph file or a model's name",
                      "See `heteroperf list models`.");
    }
    if (std::filesystem::path(model_).extension() == ".json") {
      // A graph file has its shapes written out.
      if (length_ || !image_.empty()) {
        throw UserError("--seq and --image do not go with a graph file", "it fixes its own input");
      }
      return read_graph_file(model_);
    }
    require_input_of(find_model(model_));
    ModelOptions options;
    if (length_) options.length = *length_;
    if (!image_.empty()) {
      const auto [height, width] = parse_image(image_);
      options.height = height;
      options.width = width;
    }
    return build_model(model_, options);
  }

  /// Refuses the option that sets an input which the model does not read.
  void require_input_of(const ModelSpec& model) const {
    if (model.inputs.size() > 1) return;
    const bool images = model.reads_only(InputKind::images);
    const std::string given = !images && !image_.empty() ? "--image " + image_
                              : images && length_        ? fmt::format("--seq {}", *length_)
                                                         : "";
    if (given.empty()) return;
    throw UserError(fmt::format("{} changes nothing in {}", given, model.name),
                    images ? "it reads images" : "it reads sequences of tokens",
                    images ? "Leave it out, or give --image." : "Leave it out, or give --seq.");
  }

  /// The conventions beside the usual ones of the document.
  std::vector<Convention> extra_conventions() const {
    if (convention_.empty()) return {};
    if (convention_ == "all") return {all_conventions.begin(), all_conventions.end()};
    return {parse_value_name<Convention>("counting convention", convention_)};
  }

  std::string model_, image_, convention_;
  std::int64_t batch_ = 1;
  std::optional<std::int64_t> length_;
  bool per_layer_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_count_verb() { return std::make_unique<CountVerb>(); }

}  // namespace heteroperf
