#include "automl/trial_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "workloads/graph/model_graph_json.hpp"

// The messages between a group and the master are JSON texts. Every type has a reader of its keys
// and a writer; read_message() wraps the readers for whole messages, so that all problems of a
// message come at once.

namespace heteroperf {
namespace {

/// Reads a message; `read_keys` reads its members into the value.
template <class Value, class Read>
Value read_message(const Json& json, const char* subject, Read read_keys) {
  DocumentProblems problems(subject);
  ObjectReader reader(json, "", problems);
  Value value;
  read_keys(reader, value);
  reader.finish();
  problems.throw_if_any();
  return value;
}

/// Makes the call and turns its UserErrors into problems of the message.
template <class Call>
void note_errors(DocumentProblems& problems, const std::string& prefix, Call call) {
  try {
    call();
  } catch (const UserError& error) {
    problems.add_all(error, prefix);
  }
}

/// Reads a text and hands it to `parse`.
template <class Parse>
void read_parsed(ObjectReader& reader, const char* key, Parse parse) {
  std::string text;
  const Json* value = reader.value(key);
  if (value == nullptr || !read_value(*value, reader.path_of(key), text, reader.problems())) return;
  note_errors(reader.problems(), reader.path_of(key) + ": ", [&] { parse(text); });
}

/// Reads a count as a decimal text, because it may exceed the whole numbers of JSON.
void read_decimal(ObjectReader& reader, const char* key, Ops& value) {
  read_parsed(reader, key, [&](const std::string& text) { value = Ops::parse(text); });
}
void read_decimal(ObjectReader& reader, const char* key, std::uint64_t& value) {
  read_parsed(reader, key, [&](const std::string& text) {
    const Ops wide = Ops::parse(text);
    if (wide.high() != 0)
      throw UserError(fmt::format("{} is too large", text), "must be below 2^64");
    value = wide.low();
  });
}

/// Writes a number that may be missing: JSON knows no NaN.
void write_finite(Json& json, const char* key, double value) {
  if (std::isfinite(value)) json[key] = value;
}
/// Writes a text that may be empty.
void write_text(Json& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = text;
}

Json milestone_to_json(const TrialOutcome::Milestone& milestone) {
  Json json;
  json["quality"] = milestone.quality;
  write_finite(json, "loss", milestone.loss);
  return json;
}

void read_milestone(ObjectReader& reader, TrialOutcome::Milestone& milestone) {
  milestone.loss = std::numeric_limits<double>::quiet_NaN();
  reader.require({"quality"});
  reader.read("quality", milestone.quality);
  reader.read("loss", milestone.loss);
}

void read_hyper_parameters(ObjectReader& reader, HyperParameters& hyper) {
  reader.require({"dropout", "kernel", "batch", "learning_rate"});
  reader.read("dropout", hyper.dropout);
  reader.read("kernel", hyper.kernel);
  reader.read("batch", hyper.batch);
  reader.read("learning_rate", hyper.learning_rate);
}

void read_trial(ObjectReader& reader, Trial& trial) {
  reader.require({"id", "hyper", "seed", "steps", "rung", "graph"});
  reader.read("id", trial.id);
  if (reader.has("parent")) reader.read("parent", trial.parent.emplace());
  reader.read("morph", trial.morph);
  reader.read_object("hyper",
                     [&](ObjectReader& inner) { read_hyper_parameters(inner, trial.hyper); });
  read_decimal(reader, "seed", trial.seed);
  reader.read("steps", trial.steps);
  reader.read("rung", trial.rung);
  if (const Json* graph = reader.value("graph")) {
    note_errors(reader.problems(), "",
                [&] { trial.graph = graph_from_json(*graph, reader.path_of("graph")); });
  }
}

void read_report(ObjectReader& reader, TrialReport& report) {
  report.quality = std::numeric_limits<double>::quiet_NaN();
  reader.require({"id", "steps", "health"});
  reader.read("id", report.id);
  reader.read("quality", report.quality);
  reader.read("loss", report.loss);
  reader.read("steps", report.steps);
  reader.read("health", report.health);
  reader.read("reason", report.reason);
}

void read_outcome(ObjectReader& reader, TrialOutcome& outcome) {
  reader.require({"id", "state", "quality", "steps", "ops", "milestones"});
  reader.read("id", outcome.id);
  read_parsed(reader, "state",
              [&](const std::string& name) { outcome.state = parse_trial_state(name); });
  reader.read("quality", outcome.quality);
  reader.read("loss", outcome.loss);
  reader.read("steps", outcome.steps);
  read_decimal(reader, "ops", outcome.ops);
  reader.read("reason", outcome.reason);
  reader.for_each("milestones", [&](const Json& json, const std::string& path) {
    ObjectReader inner(json, path, reader.problems());
    read_milestone(inner, outcome.milestones.emplace_back());
    inner.finish();
  });
}

void read_assignment(ObjectReader& reader, Assignment& assignment) {
  reader.read_object("trial",
                     [&](ObjectReader& inner) { read_trial(inner, assignment.trial.emplace()); });
  reader.read("reason", assignment.reason);
}

void read_decision(ObjectReader& reader, Decision& decision) {
  reader.require({"rung"});
  if (reader.has("until_step")) reader.read("until_step", decision.until_step.emplace());
  reader.read("rung", decision.rung);
  reader.read_object("outcome",
                     [&](ObjectReader& inner) { read_outcome(inner, decision.outcome.emplace()); });
}

}  // namespace

Json hyper_parameters_to_json(const HyperParameters& hyper) {
  return {{"dropout", hyper.dropout},
          {"kernel", hyper.kernel},
          {"batch", hyper.batch},
          {"learning_rate", hyper.learning_rate}};
}

Json trial_to_json(const Trial& trial) {
  Json json;
  json["id"] = trial.id;
  if (trial.parent) json["parent"] = *trial.parent;
  write_text(json, "morph", trial.morph);
  json["hyper"] = hyper_parameters_to_json(trial.hyper);
  json["seed"] = std::to_string(trial.seed);
  json["steps"] = trial.steps;
  json["rung"] = trial.rung;
  json["graph"] = graph_to_json(trial.graph);
  return json;
}

Json trial_report_to_json(const TrialReport& report) {
  Json json;
  json["id"] = report.id;
  write_finite(json, "quality", report.quality);
  write_finite(json, "loss", report.loss);
  json["steps"] = report.steps;
  json["health"] = to_string(report.health);
  write_text(json, "reason", report.reason);
  return json;
}

Json trial_outcome_to_json(const TrialOutcome& outcome) {
  Json json;
  json["id"] = outcome.id;
  json["state"] = to_string(outcome.state);
  json["quality"] = outcome.quality;
  write_finite(json, "loss", outcome.loss);
  json["steps"] = outcome.steps;
  json["ops"] = outcome.ops.to_string();
  write_text(json, "reason", outcome.reason);
  json["milestones"] = Json::array();
  for (const auto& milestone : outcome.milestones) {
    json["milestones"].push_back(milestone_to_json(milestone));
  }
  return json;
}

Json assignment_to_json(const Assignment& assignment) {
  Json json = Json::object();
  if (assignment.trial) json["trial"] = trial_to_json(*assignment.trial);
  write_text(json, "reason", assignment.reason);
  return json;
}

Json decision_to_json(const Decision& decision) {
  Json json = Json::object();
  if (decision.until_step) json["until_step"] = *decision.until_step;
  json["rung"] = decision.rung;
  if (decision.outcome) json["outcome"] = trial_outcome_to_json(*decision.outcome);
  return json;
}

HyperParameters hyper_parameters_from_json(const Json& json) {
  return read_message<HyperParameters>(json, "hyper-parameters", &read_hyper_parameters);
}

Trial trial_from_json(const Json& json) { return read_message<Trial>(json, "trial", &read_trial); }

TrialReport trial_report_from_json(const Json& json) {
  return read_message<TrialReport>(json, "trial report", &read_report);
}

TrialOutcome trial_outcome_from_json(const Json& json) {
  return read_message<TrialOutcome>(json, "trial outcome", &read_outcome);
}

Assignment assignment_from_json(const Json& json) {
  return read_message<Assignment>(json, "assignment", &read_assignment);
}

Decision decision_from_json(const Json& json) {
  return read_message<Decision>(json, "decision", &read_decision);
}

}  // namespace heteroperf
