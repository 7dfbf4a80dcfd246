// The verb `count`: answers, from the graph alone and without training, how many operations a model
// needs, how many parameters it has, and how much memory a training of it takes. Operations depend
// on a *convention* of counting. `strict` counts what a step really computes and is the one that
// records use; others (AIPerf, multiply-adds, PaLM, Megatron) are there to compare with numbers
// that people publish. A convention has no answer for models that it does not define, and shows a
// dash.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/strict_json.hpp"
#include "suite/program/verb.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/graph_memory.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// The answer of `count`: the counts of one model for a batch.
struct CountReport {
  std::string model, graph_hash;
  Input input;
  std::int64_t classes = 0;
  GraphCounts counts;
  MemoryEstimate memory;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::vector<Convention> conventions;  ///< the extra ones asked for
  bool per_layer = false;
};

using Json = nlohmann::ordered_json;

void put(Json& object, const char* key, const std::optional<Ops>& count) {
  if (count) object[key] = count->to_string();
}

/// Only passes that the convention defines have a key.
Json pass_json(const PassOps& counts) {
  Json json = Json::object();
  put(json, "forward", counts.forward);
  put(json, "backward", counts.backward);
  put(json, "train", counts.train());
  return json;
}

Json input_json(const CountReport& report) {
  Json json{{"samples", whole_number_json(report.counts.samples)}};
  if (report.input.kind == InputKind::tokens) {
    json.update({{"kind", "tokens"}, {"length", report.input.length}});
  } else {
    json.update({{"kind", "images"},
                 {"channels", report.input.channels},
                 {"height", report.input.height},
                 {"width", report.input.width}});
  }
  json["classes"] = report.classes;
  return json;
}

/// Gradients of inputs and weights are counted apart, because schedules compute them apart.
Json layer_json(const LayerCounts& layer) {
  Json json{{"name", layer.name},
            {"kind", layer.kind},
            {"parameters", whole_number_json(layer.parameters)}};
  json["strict"] = {{"forward", layer.strict.forward.to_string()},
                    {"input_gradient", layer.strict.input_gradient.to_string()},
                    {"weight_gradient", layer.strict.weight_gradient.to_string()}};
  const Json aiperf = pass_json(layer.conventions[Convention::aiperf]);
  // AIPerf counts only some kinds of layers.
  if (!aiperf.empty()) json["aiperf"] = aiperf;
  return json;
}

/// The document of `count --json`.
std::string count_json_text(const CountReport& report) {
  const ConventionCounts& counts = report.counts.conventions;
  const PassOps& strict = counts[Convention::strict];
  const PassOps& aiperf = counts[Convention::aiperf];
  Json json{
      {"_format", "heteroperf-count"}, {"_version", 1},
      {"model", report.model},         {"graph_hash", report.graph_hash},
      {"input", input_json(report)},   {"parameters", whole_number_json(report.counts.parameters)}};
  Json forward = Json::object(), backward = Json::object(), train = Json::object();
  put(forward, "strict", strict.forward);
  put(forward, "aiperf", aiperf.forward);
  // Multiply-adds are defined for the forward pass alone.
  put(forward, "mac", counts[Convention::mac].forward);
  put(backward, "strict", strict.backward);
  put(backward, "aiperf", aiperf.backward);
  put(train, "strict", strict.train());
  put(train, "aiperf", aiperf.train());
  json["forward"] = forward;
  json["backward"] = backward;
  json["train"] = train;
  // Memory is that of a training in fp32 with the usual optimizer of the family.
  json["memory"] = {{"weights_bytes", whole_number_json(report.memory.weights.value())},
                    {"gradients_bytes", whole_number_json(report.memory.gradients.value())},
                    {"optimizer_bytes", whole_number_json(report.memory.optimizer.value())},
                    {"activations_bytes", whole_number_json(report.memory.activations.value())}};
  if (!report.conventions.empty()) json["conventions"] = Json::object();
  for (Convention convention : report.conventions) {
    const Json pass = pass_json(counts[convention]);
    if (!pass.empty()) json["conventions"][to_string(convention)] = pass;
  }
  if (report.per_layer) {
    json["layers"] = Json::array();
    for (const LayerCounts& layer : report.counts.layers)
      json["layers"].push_back(layer_json(layer));
  }
  return json.dump(2) + "\n";
}

std::string text_of(const std::optional<Ops>& count) { return count ? count->to_string() : "-"; }

/// Memory is shown in MiB whatever its size, so that the columns compare.
std::string mebibytes(Bytes bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes.value()) / (1 << 20));
}

/// Tokens are told with the vocabulary, images with their classes.
std::string input_text(const CountReport& report) {
  const std::string sample =
      report.input.kind == InputKind::tokens
          ? fmt::format("{} tokens of {}", report.input.length, report.classes)
          : fmt::format("{}x{}x{} image, {} classes", report.input.channels, report.input.height,
                        report.input.width, report.classes);
  return fmt::format("{} of {}", report.counts.samples, sample);
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

/// The classes are the last dimension of the loss's input.
std::int64_t classes_of(const ModelGraph& graph) {
  const Node& loss = graph.node(graph.loss());
  return graph.node(loss.inputs.front()).output.back();
}

/// The document as a table.
std::string count_table(const CountReport& report) {
  std::string text = fmt::format("{}  {}\nparameters  {}\n", report.model, input_text(report),
                                 report.counts.parameters);
  std::vector<Convention> shown = report.conventions;
  // Without --convention the table shows the three that most readers know.
  if (shown.empty()) shown = {Convention::strict, Convention::aiperf, Convention::mac};
  text += fmt::format("{:<16}{:>26}{:>26}{:>26}\n", "operations", "forward", "backward", "train");
  for (Convention convention : shown) {
    const PassOps& counts = report.counts.conventions[convention];
    // One that was asked for by itself is shown to be without an answer.
    if (shown.size() == all_conventions.size() && !counts.forward && !counts.backward) continue;
    text += fmt::format("{:<16}{:>26}{:>26}{:>26}\n", to_string(convention),
                        text_of(counts.forward), text_of(counts.backward), text_of(counts.train()));
  }
  text +=
      fmt::format("memory fp32     weights {}, gradients {}, optimizer {} ({}), activations {}\n",
                  mebibytes(report.memory.weights), mebibytes(report.memory.gradients),
                  mebibytes(report.memory.optimizer), to_string(report.optimizer),
                  mebibytes(report.memory.activations));
  if (!report.per_layer) return text;
  text += fmt::format("{:<36}{:<18}{:>12}{:>20}{:>20}{:>20}\n", "layer", "kind", "parameters",
                      "strict forward", "input gradient", "weight gradient");
  for (const LayerCounts& layer : report.counts.layers) {
    text += fmt::format("{:<36}{:<18}{:>12}{:>20}{:>20}{:>20}\n", layer.name, layer.kind,
                        layer.parameters, layer.strict.forward.to_string(),
                        layer.strict.input_gradient.to_string(),
                        layer.strict.weight_gradient.to_string());
  }
  return text;
}

class CountVerb : public Verb {
 public:
  const char* name() const override { return "count"; }
  const char* summary() const override {
    return "operations, parameters and memory of a model, from its graph";
  }
  std::vector<std::string> examples() const override {
    return {"count resnet50-v1 --convention all --json", "count micro --batch 16 --per-layer"};
  }

  void declare(CLI::App& command) override {
    command.add_option("model", model_, "a name of `list models`, or a graph file (.json)")
        ->required();
    command.add_option("--batch", batch_, "samples (default 1)")->check(CLI::Range(1L, 1L << 40));
    command.add_option("--seq", length_, "tokens of a sample")->check(CLI::Range(1L, 1L << 30));
    command.add_option("--image", image_, "height and width of an image")->type_name("HxW");
    command.add_option("--convention", convention_,
                       "also strict, aiperf, mac, palm, megatron-full, megatron-causal, or all");
    command.add_flag("--per-layer", per_layer_, "every node by itself");
  }

  ExitCode run(const GlobalOptions& options) override {
    const CountReport report = make_report();
    fmt::print("{}", options.json ? count_json_text(report) : count_table(report));
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

  /// Refuses the option that sets the other kind of input: a model reads tokens or images.
  void require_input_of(const ModelSpec& model) const {
    const bool images = model.input.kind == InputKind::images;
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
    return {parse_convention(convention_)};
  }

  CountReport make_report() const {
    const ModelGraph graph = load();
    const auto samples = static_cast<std::uint64_t>(batch_);
    CountReport report;
    report.model = graph.name;
    report.graph_hash = graph.hash();
    report.input = std::get<Input>(graph.node(graph.input()).attributes);
    // A language model's classes are its vocabulary.
    report.classes = classes_of(graph);
    // Language models are usually trained with AdamW, which keeps two states per weight;
    // classifiers with SGD.
    report.optimizer =
        report.input.kind == InputKind::tokens ? OptimizerKind::adamw : OptimizerKind::sgd;
    report.counts = count_graph(graph, samples);
    report.memory = estimate_memory(graph, samples, Precision::fp32, report.optimizer);
    report.conventions = extra_conventions();
    report.per_layer = per_layer_;
    return report;
  }

  std::string model_, image_, convention_;
  std::int64_t batch_ = 1;
  std::optional<std::int64_t> length_;
  bool per_layer_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_count_verb() { return std::make_unique<CountVerb>(); }

}  // namespace heteroperf
