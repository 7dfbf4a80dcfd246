#include <nlohmann/json.hpp>

#include "suite/verbs/count_report.hpp"
#include "suite/verbs/whole_number_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& object, const char* key, const std::optional<Ops>& count) {
  if (count) object[key] = count->to_string();
}

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

Json layer_json(const LayerCounts& layer) {
  Json json{{"name", layer.name},
            {"kind", layer.kind},
            {"parameters", whole_number_json(layer.parameters)}};
  json["strict"] = {{"forward", layer.strict.forward.to_string()},
                    {"input_gradient", layer.strict.input_gradient.to_string()},
                    {"weight_gradient", layer.strict.weight_gradient.to_string()}};
  const Json aiperf = pass_json(layer.conventions[Convention::aiperf]);
  if (!aiperf.empty()) json["aiperf"] = aiperf;
  return json;
}

}  // namespace

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
  put(forward, "mac", counts[Convention::mac].forward);
  put(backward, "strict", strict.backward);
  put(backward, "aiperf", aiperf.backward);
  put(train, "strict", strict.train());
  put(train, "aiperf", aiperf.train());
  json["forward"] = forward;
  json["backward"] = backward;
  json["train"] = train;
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

}  // namespace heteroperf
