// The verb `count`: answers, from the graph alone and without training, how many operations a model
// needs, how many parameters it has, and how much memory a training of it takes. Operations depend
// on a *convention* of counting. `strict` counts what a step really computes and is the one that
// records use; others (AIPerf, multiply-adds, PaLM, Megatron) are there to compare with numbers
// that people publish. A convention has no answer for models that it does not define, and shows a
// dash.
#include <fmt/format.h>

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

/// Tokens are told with the vocabulary, images with their classes.
std::string input_text(const CountReport& report) {
  const std::string sample =
      report.input.kind == InputKind::tokens
          ? fmt::format("{} tokens of {}", report.input.length, report.classes)
          : fmt::format("{}x{}x{} image, {} classes", report.input.channels, report.input.height,
                        report.input.width, report.classes);
  return fmt::format("{} of {}", report.counts.samples, sample);
}

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

void add_input(Document& document, const CountReport& report) {
  const Input& input = report.input;
  document.data("input.samples", "samples", Unit::none, report.counts.samples);
  if (input.kind == InputKind::tokens) {
    document.data("input.kind", "kind of the input", Unit::none, "tokens");
    document.data("input.length", "tokens of a sample", Unit::none, input.length);
  } else {
    document.data("input.kind", "kind of the input", Unit::none, "images");
    document.data("input.channels", "channels of an image", Unit::none, input.channels);
    document.data("input.height", "its height", Unit::none, input.height);
    document.data("input.width", "its width", Unit::none, input.width);
  }
  document.data("input.classes", "classes, or words of the vocabulary", Unit::none, report.classes);
}

/// People see the conventions that they asked for, else the three that most readers know, in rows.
void add_operations(Document& document, const CountReport& report) {
  const ConventionCounts& counts = report.counts.conventions;
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
  for (const Convention convention : report.conventions.empty() ? usual : report.conventions) {
    const PassOps& pass = counts[convention];
    // One that was asked for by itself is shown to be without an answer.
    if (report.conventions.size() == all_conventions.size() && !is_defined(pass)) continue;
    table.add(
        {to_string(convention), digits(pass.forward), digits(pass.backward), digits(pass.train())});
  }
  document.table(std::move(table));
}

/// Gradients of inputs and weights are counted apart, because schedules compute them apart.
Table layers_table(const CountReport& report) {
  Table table{.key = "layers",
              .columns = {{"name", "layer", Unit::none},
                          {"kind", "kind", Unit::none},
                          {"parameters", "parameters", Unit::none},
                          {"strict.forward", "strict forward", Unit::operations},
                          {"strict.input_gradient", "input gradient", Unit::operations},
                          {"strict.weight_gradient", "weight gradient", Unit::operations},
                          // AIPerf counts only some kinds of layers.
                          {"aiperf", "aiperf by pass", Unit::operations, Audience::programs}}};
  for (const LayerCounts& layer : report.counts.layers) {
    const PassOps& aiperf = layer.conventions[Convention::aiperf];
    table.add({layer.name, layer.kind, layer.parameters, digits(layer.strict.forward),
               digits(layer.strict.input_gradient), digits(layer.strict.weight_gradient),
               is_defined(aiperf) ? Datum(passes_of(aiperf)) : Datum()});
  }
  return table;
}

Document count_document(const CountReport& report) {
  Document document{"heteroperf-count"};
  document.field("model", "model", Unit::none, report.model);
  document.data("graph_hash", "hash of the graph", Unit::none, report.graph_hash);
  document.field("", "input", Unit::none, input_text(report));
  add_input(document, report);
  document.field("parameters", "parameters", Unit::none, report.counts.parameters);
  add_operations(document, report);
  // Memory is that of a training in fp32 with the usual optimizer of the family.
  const std::pair<const char*, Bytes> uses[] = {{"weights", report.memory.weights},
                                                {"gradients", report.memory.gradients},
                                                {"optimizer", report.memory.optimizer},
                                                {"activations", report.memory.activations}};
  for (const auto& [use, bytes] : uses) {
    const bool optimizer = use == std::string("optimizer");
    document.field(fmt::format("memory.{}_bytes", use), fmt::format("fp32 {}", use), Unit::bytes,
                   bytes.value(), optimizer ? to_string(report.optimizer) : "");
  }
  if (!report.conventions.empty()) {
    std::vector<Member> conventions;
    for (const Convention convention : report.conventions) {
      const PassOps& counts = report.counts.conventions[convention];
      if (is_defined(counts)) conventions.push_back({to_string(convention), passes_of(counts)});
    }
    document.data("conventions", "operations by convention and pass", Unit::operations,
                  std::move(conventions));
  }
  if (report.per_layer) document.table(layers_table(report));
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

/// The classes are the last dimension of the loss's input.
std::int64_t classes_of(const ModelGraph& graph) {
  const Node& loss = graph.node(graph.loss());
  return graph.node(loss.inputs.front()).output.back();
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
    print(count_document(make_report()), options);
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
    return {parse_value_name<Convention>("counting convention", convention_)};
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
