// The file of a plan: reading and writing of plan.json.
//
// Reading is strict: unknown keys, wrong types and values outside their ranges are all collected,
// each with its path, before one error names them. A planner writes notes beside the plan
// (prediction, certificate, memory); these keys are known and passed over, since they follow from
// the plan. Writing puts one stage to a line, so that two plans can be compared line by line, and
// leaves out what has its default or is empty.
#include "runners/plan/plan_json.hpp"

#include <fmt/format.h>

#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {
namespace {

constexpr const char* format_name = "heteroperf-plan";
constexpr int format_version = 1;
constexpr std::int64_t most_samples = std::int64_t{1} << 40;

/// Keys that a planner writes beside the plan: they are worked out again where they are needed.
constexpr const char* derived_keys[] = {"replicas", "predicted",  "memory",  "certificate",
                                        "search",   "comparison", "centric", "placements",
                                        "profiled", "imported",   "learned", "rates"};

class PlanReader {
 public:
  explicit PlanReader(const std::string& origin) : problems_(origin) {}

  Plan read(const Json& document) {
    ObjectReader reader(document, "", problems_);
    reader.expect_format(format_name, format_version);
    reader.require({"schedule", "micro_batches", "stages"});
    reader.read("graph_hash", plan_.graph_hash);
    reader.read("cluster", plan_.cluster);
    reader.read("schedule", plan_.schedule);
    reader.read("chunks", plan_.chunks, 1, most_ranks);
    reader.read("micro_batches", plan_.micro_batches, 1, most_tasks);
    reader.read("zero_stage", plan_.zero_stage, 0, 1);
    reader.read("sequence_parallel", plan_.sequence_parallel);
    reader.read_object("workload", [&](ObjectReader& inner) { read_workload(inner); });
    reader.for_each("stages", *this, &PlanReader::read_stage);
    reader.for_each("wires", *this, &PlanReader::read_wire);
    reader.read("warm_up", plan_.warm_up, std::int64_t{0}, std::int64_t{most_tasks});
    reader.read("devices", plan_.devices, std::int64_t{0}, std::int64_t{most_ranks - 1});
    read_efficiency(reader);
    for (const char* key : derived_keys) reader.value(key);
    reader.finish();
    problems_.throw_if_any();
    return std::move(plan_);
  }

 private:
  /// The matrix has a format of its own; its problems are reported with the plan's.
  void read_efficiency(ObjectReader& reader) {
    const Json* value = reader.value("efficiency");
    if (value == nullptr) return;
    try {
      plan_.efficiency = parse_efficiency_matrix(value->dump(), "efficiency");
    } catch (const UserError& error) {
      problems_.add_all(error);
    }
  }

  void read_workload(ObjectReader& reader) {
    PlanWorkload& workload = plan_.workload.emplace();
    reader.require({"name"});
    reader.read("name", workload.name);
    reader.read("size", workload.size);
    reader.read("model", workload.model);
    reader.read("precision", workload.precision);
    reader.read("optimizer", workload.optimizer);
    reader.read("sequence_length", workload.sequence_length, 0, most_samples);
    reader.read("images", workload.images, 0, most_samples);
    reader.read("freeze", workload.freeze);
  }

  void read_stage(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    PlanStage& stage = plan_.stages.emplace_back();
    reader.require({"nodes", "replicas"});
    reader.read("nodes", stage.nodes);
    reader.read("recomputation", stage.recomputation);
    reader.for_each("replicas", [&](const Json& replica, const std::string& where) {
      read_replica(replica, where, stage);
    });
    reader.finish();
  }

  void read_replica(const Json& value, const std::string& path, PlanStage& stage) {
    ObjectReader reader(value, path, problems_);
    StageReplica& replica = stage.replicas.emplace_back();
    reader.require({"ranks", "micro_batch"});
    reader.read("ranks", replica.ranks, std::int64_t{0}, std::int64_t{most_ranks - 1});
    reader.read("micro_batch", replica.micro_batch, 1, most_samples);
    reader.read("device_class", replica.device_class);
    reader.read("direction", replica.direction, 0, 1);
    reader.read_object("sequence_part", [&](ObjectReader& inner) {
      inner.require({"index", "parts"});
      inner.read("index", replica.part.index, 0, most_ranks - 1);
      inner.read("parts", replica.part.parts, 1, most_ranks);
    });
    reader.read("sequence_order", replica.part.order);
    reader.finish();
  }

  void read_wire(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    StageWire& wire = plan_.wires.emplace_back();
    reader.require({"from", "to", "format"});
    reader.read("from", wire.from, 0, most_tasks);
    reader.read("to", wire.to, 0, most_tasks);
    if (const Json* name = reader.value("format")) {
      const int index =
          read_choice(*name, reader.path_of("format"), {"fp32", "bf16", "int8"}, problems_);
      if (index >= 0) wire.format = static_cast<WireFormat>(index);
    }
    reader.finish();
  }

  DocumentProblems problems_;
  Plan plan_;
};

Json to_json(const StageReplica& replica) {
  Json object = {{"ranks", replica.ranks}, {"micro_batch", replica.micro_batch}};
  if (!replica.device_class.empty()) object["device_class"] = replica.device_class;
  if (replica.direction != 0) object["direction"] = replica.direction;
  if (!replica.part.whole()) {
    object["sequence_part"] = {{"index", replica.part.index}, {"parts", replica.part.parts}};
    if (replica.part.order != SequenceOrder::zig_zag) {
      object["sequence_order"] = to_string(replica.part.order);
    }
  }
  return object;
}

Json to_json(const PlanStage& stage) {
  Json replicas = Json::array();
  for (const StageReplica& replica : stage.replicas) replicas.push_back(to_json(replica));
  return {{"recomputation", to_string(stage.recomputation)},
          {"replicas", std::move(replicas)},
          {"nodes", stage.nodes}};
}

Json to_json(const PlanWorkload& workload) {
  Json object = {{"name", workload.name}};
  if (!workload.size.empty()) object["size"] = workload.size;
  if (!workload.model.empty()) object["model"] = workload.model;
  object["precision"] = workload.precision;
  if (!workload.optimizer.empty()) object["optimizer"] = workload.optimizer;
  if (workload.sequence_length > 0) object["sequence_length"] = workload.sequence_length;
  if (workload.images > 0) object["images"] = workload.images;
  if (!workload.freeze.empty()) object["freeze"] = workload.freeze;
  return object;
}

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A list with one value per line.
std::string lines_of(const Json& list) {
  std::string text;
  for (const Json& value : list) text += (text.empty() ? "\n    " : ",\n    ") + text_of(value);
  return "[" + text + "]";
}

}  // namespace

std::string plan_text(const Plan& plan) {
  Json stages = Json::array(), wires = Json::array();
  for (const PlanStage& stage : plan.stages) stages.push_back(to_json(stage));
  for (const StageWire& wire : plan.wires) {
    wires.push_back({{"from", wire.from}, {"to", wire.to}, {"format", to_string(wire.format)}});
  }
  std::string text =
      fmt::format("{{\n  \"_format\":\"{}\",\"_version\":{}", format_name, format_version);
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format(",\n  \"{}\":{}", key, value);
  };
  if (!plan.graph_hash.empty()) add("graph_hash", text_of(plan.graph_hash));
  if (plan.workload) add("workload", text_of(to_json(*plan.workload)));
  if (!plan.cluster.empty()) add("cluster", text_of(plan.cluster));
  add("schedule", text_of(plan.schedule));
  add("chunks", std::to_string(plan.chunks));
  add("micro_batches", std::to_string(plan.micro_batches));
  add("zero_stage", std::to_string(plan.zero_stage));
  if (plan.sequence_parallel) add("sequence_parallel", "true");
  add("stages", lines_of(stages));
  if (!wires.empty()) add("wires", lines_of(wires));
  if (!plan.warm_up.empty()) add("warm_up", text_of(plan.warm_up));
  if (!plan.devices.empty()) add("devices", text_of(plan.devices));
  if (!(plan.efficiency == EfficiencyMatrix())) {
    add("efficiency", text_of(Json::parse(efficiency_matrix_text(plan.efficiency))));
  }
  return text + "\n}\n";
}

Plan parse_plan(const std::string& text, const std::string& origin) {
  return PlanReader(origin).read(parse_strict_json(text, origin, format_name));
}

Plan read_plan_file(const std::string& path) {
  return parse_plan(read_text_file(path, "plan file"), path);
}

}  // namespace heteroperf
