// The files that describe a model and a machine to the scheduler: graph, costs and network. A graph
// is read segments first, because weights and edges refer to segments by name or number; then
// normalise() checks what single values do not show.

#include "runners/schedule/formats/schedule_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {
namespace detail {
namespace {

constexpr std::int64_t most_number = most_tasks;

/// Reads a graph; problems are collected in the reader's list.
class GraphReader {
 public:
  GraphReader(ObjectReader& reader, SegmentNames names)
      : reader_(reader), problems_(reader.problems()), names_(names) {}

  PipelineGraph read() {
    reader_.require({"ranks", "micro_batches", "segments"});
    int ranks = unread;
    reader_.read("ranks", ranks, 1, most_number);
    if (ranks != unread) graph_.ranks = ranks;
    last_rank_ = ranks != unread ? ranks - 1 : most_number;
    reader_.read("micro_batches", graph_.micro_batches, 1, most_number);
    reader_.read("parts", graph_.parts, 1, most_number);
    reader_.read("latency", graph_.latency);
    reader_.read("fused_cost_factor", graph_.fused_cost_factor);
    reader_.read("micro_batch_scale", graph_.micro_batch_scale);
    reader_.for_each(
        "segments", [&](const Json& value, const std::string& path) { read_segment(value, path); });
    check_placed();
    name_weights();
    index_names();
    reader_.for_each("edges",
                     [&](const Json& value, const std::string& path) { read_edge(value, path); });
    reader_.for_each("interactions", [&](const Json& value, const std::string& path) {
      read_interaction(value, path);
    });
    reader_.for_each("tied", [&](const Json& value, const std::string& path) {
      if (value.is_array()) {
        read_segment_list(value, path, graph_.tied.emplace_back());
      } else {
        note_wrong(value, path, "a list of segments", problems_);
      }
    });
    check();
    return std::move(graph_);
  }

 private:
  void read_segment(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    Segment segment;
    segment.name = std::to_string(graph_.segments.size());
    if (reader.value("rank") != nullptr) ++placed_;
    reader.read("name", segment.name);
    reader.read("branch", segment.branch);
    reader.read("rank", segment.rank, 0, last_rank_);
    reader.read("forward", segment.forward);
    reader.read("backward", segment.input_gradient);
    reader.read("weight", segment.weight_gradient);
    reader.read("activation", segment.activation);
    reader.read("first_micro_batch", segment.first_micro_batch, 0, most_number);
    reader.read("micro_batches", segment.micro_batches, 0, most_number);
    const Json* weights = reader.value("weights");
    if (weights != nullptr && weights->is_string()) {
      named_weights_.emplace_back(graph_.segments.size(), weights->get<std::string>());
    } else {
      reader.read("weights", segment.weights, 0, most_number);
    }
    reader.finish();
    graph_.segments.push_back(std::move(segment));
  }

  /// Either every segment has a rank or none has.
  void check_placed() {
    graph_.unplaced = names_ == SegmentNames::unique && placed_ == 0 && !graph_.segments.empty();
    if (graph_.unplaced || placed_ == graph_.segments.size()) return;
    problems_.add(fmt::format("{} of {} segments have a rank", placed_, graph_.segments.size()),
                  "a graph is placed as a whole",
                  "Give every segment a rank, or none for auto to place them.");
  }

  /// Gives weights with a name the numbers after the largest number in the file.
  void name_weights() {
    int next = 0;
    for (const Segment& segment : graph_.segments) next = std::max(next, segment.weights + 1);
    std::map<std::string, int> numbers;
    for (const auto& [segment, name] : named_weights_) {
      const auto [entry, added] = numbers.try_emplace(name, next);
      if (added) ++next;
      graph_.segments[segment].weights = entry->second;
    }
  }

  /// Maps names to segments; a name that several bear is ambiguous.
  void index_names() {
    for (const SegmentId segment : graph_.segments.ids()) {
      const auto [entry, added] =
          segment_of_name_.try_emplace(graph_.segments[segment].name, segment);
      if (added) continue;
      if (names_ == SegmentNames::unique) {
        problems_.add(fmt::format("{} and {} are both named {}",
                                  element_path(reader_.path_of("segments"), entry->second.index()),
                                  element_path(reader_.path_of("segments"), segment.index()),
                                  in_quotes(graph_.segments[segment].name)),
                      "edges name segments", "Give every segment a name of its own.");
      }
      entry->second = ambiguous;
    }
  }

  void read_edge(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    Edge edge;
    reader.require({"from", "to"});
    if (const Json* from = reader.value("from")) read_ref(*from, reader.path_of("from"), edge.from);
    if (const Json* to = reader.value("to")) read_ref(*to, reader.path_of("to"), edge.to);
    reader.read("bytes", edge.bytes);
    reader.read("gradient", edge.gradient);
    reader.read("activation_time", edge.activation_time);
    reader.read("gradient_time", edge.gradient_time);
    reader.finish();
    graph_.edges.push_back(edge);
  }

  void read_interaction(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    Interaction interaction;
    reader.require({"members"});
    reader.read("name", interaction.name);
    if (const Json* members = reader.list("members")) {
      read_segment_list(*members, reader.path_of("members"), interaction.members);
    }
    reader.read("every", interaction.every, 1, most_number);
    reader.read("cost", interaction.cost);
    reader.finish();
    graph_.interactions.push_back(std::move(interaction));
  }

  void read_segment_list(const Json& list, const std::string& path,
                         std::vector<SegmentId>& segments) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      read_ref(list[i], element_path(path, i), segments.emplace_back());
    }
  }

  /// Reads a segment by its name or number.
  void read_ref(const Json& value, const std::string& path, SegmentId& segment) {
    const auto last = static_cast<std::int64_t>(graph_.segments.size()) - 1;
    if (!value.is_string()) {
      read_value(value, path, segment, problems_, 0, last);
      return;
    }
    const auto& name = value.get_ref<const std::string&>();
    const auto named = segment_of_name_.find(name);
    if (named != segment_of_name_.end() && named->second != ambiguous) {
      segment = named->second;
      return;
    }
    std::vector<std::string> names;
    for (const Segment& known : graph_.segments) names.push_back(known.name);
    const bool several = named != segment_of_name_.end();
    problems_.add(fmt::format("{} is {}", path, in_quotes(name)),
                  several ? "several segments bear this name" : "no segment bears this name",
                  several ? "" : did_you_mean(name, names));
  }

  void check() {
    if (!problems_.empty()) return;
    try {
      normalise(graph_);
    } catch (const UserError& error) {
      problems_.add_all(error);
    }
  }

  static constexpr SegmentId ambiguous = SegmentId::none();
  static constexpr int unread = -1;

  ObjectReader& reader_;
  DocumentProblems& problems_;
  SegmentNames names_;
  PipelineGraph graph_;
  std::int64_t last_rank_ = 0;
  std::size_t placed_ = 0;  // segments with a rank
  std::map<std::string, SegmentId> segment_of_name_;
  std::vector<std::pair<SegmentId, std::string>> named_weights_;
};

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json segment_json(const Segment& s) {
  Json object = {{"name", s.name}};
  if (!s.branch.empty()) object["branch"] = s.branch;
  object["rank"] = s.rank;
  object["forward"] = s.forward;
  object["backward"] = s.input_gradient;
  object["weight"] = s.weight_gradient;
  object["activation"] = s.activation;
  if (s.weights >= 0) object["weights"] = s.weights;
  object["first_micro_batch"] = s.first_micro_batch;
  if (s.micro_batches >= 0) object["micro_batches"] = s.micro_batches;
  return object;
}

Json edge_json(const Edge& e) {
  Json object = {{"from", e.from}, {"to", e.to}, {"bytes", e.bytes}, {"gradient", e.gradient}};
  if (e.activation_time != 0) object["activation_time"] = e.activation_time;
  if (e.gradient_time != 0) object["gradient_time"] = e.gradient_time;
  return object;
}

Json interaction_json(const Interaction& x) {
  return {{"name", x.name}, {"members", x.members}, {"every", x.every}, {"cost", x.cost}};
}

template <class T, class Convert>
/// Appends a list with an element per line.
void append_list(std::string& text, const char* key, const std::vector<T>& values,
                 Convert convert) {
  text += fmt::format(",\n  \"{}\":[", key);
  for (const char* part = "\n    "; const T& value : values) {
    text += std::exchange(part, ",\n    ") + text_of(convert(value));
  }
  text += "]";
}

}  // namespace

PipelineGraph read_graph(ObjectReader& reader, SegmentNames names) {
  return GraphReader(reader, names).read();
}

std::string graph_to_text(const PipelineGraph& graph) {
  std::string text = fmt::format(
      "{{\"ranks\":{},\"micro_batches\":{},\"parts\":{},\"latency\":{},\"fused_cost_factor\":{}",
      graph.ranks, graph.micro_batches, graph.parts, text_of(graph.latency),
      text_of(graph.fused_cost_factor));
  append_list(text, "segments", graph.segments, &segment_json);
  append_list(text, "edges", graph.edges, &edge_json);
  if (!graph.interactions.empty()) {
    append_list(text, "interactions", graph.interactions, &interaction_json);
  }
  if (!graph.tied.empty()) text += ",\n  \"tied\":" + text_of(graph.tied);
  if (!graph.micro_batch_scale.empty()) {
    text += ",\n  \"micro_batch_scale\":" + text_of(graph.micro_batch_scale);
  }
  return text + "}";
}

}  // namespace detail

namespace {

void require_at_least(double least, const std::string& key, double value,
                      DocumentProblems& problems) {
  if (value >= least) return;
  problems.add(fmt::format("{} is {}", key, value), fmt::format("must be {} or more", least));
}

/// Reads a whole document with `read`, which fills a plain struct.
template <class Value, class Read>
Value read_document(const std::string& path, const char* what, const char* format, Read read) {
  const std::string text = read_text_file(path, what);
  DocumentProblems problems(path);
  const Json document = parse_strict_json(text, path, format);
  ObjectReader reader(document, "", problems);
  Value value;
  reader.expect_format(format, 1, FormatKey::optional);
  read(reader, value);
  reader.finish();
  problems.throw_if_any();
  return value;
}

void read_costs(ObjectReader& reader, StageCosts& costs) {
  const std::pair<const char*, std::vector<double>*> lists[] = {{"forward", &costs.forward},
                                                                {"backward", &costs.input_gradient},
                                                                {"weight", &costs.weight_gradient}};
  DocumentProblems& problems = reader.problems();
  reader.require({"forward", "backward", "weight"});
  for (const auto& [key, list] : lists) reader.read(key, *list);
  reader.read("comm", costs.latency);
  for (const auto& [key, list] : lists) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      require_at_least(0, element_path(key, i), (*list)[i], problems);
    }
  }
  require_at_least(0, "comm", costs.latency, problems);
  const std::size_t ranks = costs.forward.size();
  const bool equal = ranks == costs.input_gradient.size() && ranks == costs.weight_gradient.size();
  if (problems.empty() && (!equal || ranks == 0)) {
    problems.add(fmt::format("forward, backward and weight list {}, {} and {} ranks", ranks,
                             costs.input_gradient.size(), costs.weight_gradient.size()),
                 "", "Give one cost per rank in each.");
  }
}

void read_network(ObjectReader& reader, Network& network) {
  constexpr std::int64_t most_number = 1'000'000;
  reader.read("bandwidth", network.bandwidth);
  reader.read("capacity", network.capacity, 1, most_number);
  reader.read("full_duplex", network.full_duplex);
  reader.read("card", network.card, 0, most_number);
  reader.read("card_bandwidth", network.card_bandwidth);
  reader.read("node", network.node, 0, most_number);
  reader.read("compute_slow_down", network.compute_slow_down);
  reader.read("reduction_time", network.reduction_time);
  reader.read("step_time", network.step_time);
  DocumentProblems& problems = reader.problems();
  require_at_least(0, "bandwidth", network.bandwidth, problems);
  require_at_least(0, "card_bandwidth", network.card_bandwidth, problems);
  require_at_least(1, "compute_slow_down", network.compute_slow_down, problems);
  require_at_least(0, "reduction_time", network.reduction_time, problems);
  require_at_least(0, "step_time", network.step_time, problems);
  if (!network.card.empty() && !network.node.empty() &&
      network.card.size() != network.node.size()) {
    problems.add(
        fmt::format("card lists {} ranks and node {}", network.card.size(), network.node.size()),
        "", "Give one number per rank in each, or an empty list.");
  }
}

}  // namespace

PipelineGraph read_pipeline_graph_file(const std::string& path) {
  return read_document<PipelineGraph>(path, "pipeline graph", "heteroperf-pipeline-graph",
                                      [](ObjectReader& reader, PipelineGraph& graph) {
                                        graph = detail::read_graph(reader,
                                                                   detail::SegmentNames::unique);
                                      });
}

StageCosts read_costs_file(const std::string& path) {
  return read_document<StageCosts>(path, "costs file", "heteroperf-costs", &read_costs);
}

Network read_network_file(const std::string& path) {
  return read_document<Network>(path, "network file", "heteroperf-network", &read_network);
}

}  // namespace heteroperf
