#include "automl/trial_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "metrics/error.hpp"
#include "workloads/model_graph_json.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

/// The values that JSON has no type for.
struct DecimalText {
  std::uint64_t& value;
};

bool read(const Json& json, double& value) {
  if (!json.is_number()) return false;
  value = json.get<double>();
  return true;
}
bool read(const Json& json, std::uint64_t& value) {
  if (!json.is_number_unsigned()) return false;
  value = json.get<std::uint64_t>();
  return true;
}
bool read(const Json& json, std::uint32_t& value) {
  std::uint64_t wide = 0;
  if (!read(json, wide) || wide > UINT32_MAX) return false;
  value = static_cast<std::uint32_t>(wide);
  return true;
}
bool read(const Json& json, std::int64_t& value) {
  if (!json.is_number_integer() ||
      (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)) {
    return false;
  }
  value = json.get<std::int64_t>();
  return true;
}
bool read(const Json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}
bool read(const Json& json, Ops& value) {
  if (!json.is_string()) return false;
  value = Ops::parse(json.get<std::string>());
  return true;
}
bool read(const Json& json, DecimalText text) {
  Ops wide;
  if (!read(json, wide) || wide.high() != 0) return false;
  text.value = wide.low();
  return true;
}

const char* expectation(const double&) { return "a number"; }
const char* expectation(const std::uint64_t&) { return "a whole number, not negative"; }
const char* expectation(const std::uint32_t&) { return "a whole number below 2^32"; }
const char* expectation(const std::int64_t&) { return "a whole number"; }
const char* expectation(const std::string&) { return "text"; }
const char* expectation(const Ops&) { return "a decimal number as text"; }
const char* expectation(const DecimalText&) { return "a decimal number below 2^64 as text"; }

/// Reads the members of one object and throws everything that is wrong with it at once.
class Members {
 public:
  Members(const Json& json, const char* subject) : json_(json), subject_(subject) {
    if (!json.is_object()) throw UserError(fmt::format("the {} is not a JSON object", subject));
  }

  template <class Value>
  Members& required(const char* key, Value&& value) {
    if (!json_.contains(key)) problems_.add(fmt::format("{}: '{}' is missing", subject_, key));
    return optional(key, value);
  }

  template <class Value>
  Members& optional(const char* key, Value&& value) {
    return with(key, [&](const Json& member) {
      if (read(member, value)) return;
      problems_.add(fmt::format("{}: '{}' is {}", subject_, key, member.dump().substr(0, 60)),
                    fmt::format("must be {}", expectation(value)));
    });
  }

  /// Calls `use` with the member when it is there; UserErrors become problems of this object.
  Members& with(const char* key, const std::function<void(const Json&)>& use) {
    keys_.emplace_back(key);
    const auto member = json_.find(key);
    if (member == json_.end()) return *this;
    try {
      use(*member);
    } catch (const UserError& error) {
      for (const Problem& p : error.problems()) {
        problems_.add(fmt::format("{}: '{}': {}", subject_, key, p.problem), p.why, p.suggestion);
      }
    }
    return *this;
  }

  Members& with_required(const char* key, const std::function<void(const Json&)>& use) {
    if (!json_.contains(key)) problems_.add(fmt::format("{}: '{}' is missing", subject_, key));
    return with(key, use);
  }

  void finish() {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) continue;
      const std::string near = nearest_name(key, keys_);
      problems_.add(fmt::format("{}: unknown key '{}'", subject_, key), {},
                    near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
    }
    problems_.throw_if_any();
  }

 private:
  const Json& json_;
  const char* subject_;
  std::vector<std::string> keys_;
  ProblemList problems_;
};

void write_finite(Json& json, const char* key, double value) {
  if (std::isfinite(value)) json[key] = value;
}
void write_text(Json& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = text;
}

const std::vector<std::pair<TrialReport::Health, std::string>> health_names{
    {TrialReport::Health::fine, "fine"},
    {TrialReport::Health::diverged, "diverged"},
    {TrialReport::Health::failed, "failed"}};

void read_health(const Json& json, TrialReport::Health& health) {
  for (const auto& [value, name] : health_names) {
    if (json == name) {
      health = value;
      return;
    }
  }
  throw UserError(fmt::format("unknown health {}", json.dump()), "one of fine, diverged, failed");
}

Json milestone_to_json(const TrialOutcome::Milestone& milestone) {
  Json json;
  json["quality"] = milestone.quality;
  write_finite(json, "loss", milestone.loss);
  return json;
}

TrialOutcome::Milestone milestone_from_json(const Json& json) {
  TrialOutcome::Milestone milestone{0.0, std::numeric_limits<double>::quiet_NaN()};
  Members(json, "milestone")
      .required("quality", milestone.quality)
      .optional("loss", milestone.loss)
      .finish();
  return milestone;
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
  json["health"] = health_names.at(static_cast<std::size_t>(report.health)).second;
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
  HyperParameters hyper;
  Members(json, "hyper-parameters")
      .required("dropout", hyper.dropout)
      .required("kernel", hyper.kernel)
      .required("batch", hyper.batch)
      .required("learning_rate", hyper.learning_rate)
      .finish();
  return hyper;
}

Trial trial_from_json(const Json& json) {
  Trial trial;
  const auto set_parent = [&](const Json& member) {
    std::uint64_t id = 0;
    if (!read(member, id)) throw UserError("is not a trial's number");
    trial.parent = id;
  };
  Members(json, "trial")
      .required("id", trial.id)
      .with("parent", set_parent)
      .optional("morph", trial.morph)
      .with_required("hyper", [&](const Json& m) { trial.hyper = hyper_parameters_from_json(m); })
      .required("seed", DecimalText{trial.seed})
      .required("steps", trial.steps)
      .required("rung", trial.rung)
      .with_required("graph", [&](const Json& m) { trial.graph = graph_from_json(m, "graph"); })
      .finish();
  return trial;
}

TrialReport trial_report_from_json(const Json& json) {
  TrialReport report;
  report.quality = std::numeric_limits<double>::quiet_NaN();
  Members(json, "trial report")
      .required("id", report.id)
      .optional("quality", report.quality)
      .optional("loss", report.loss)
      .required("steps", report.steps)
      .with_required("health", [&](const Json& m) { read_health(m, report.health); })
      .optional("reason", report.reason)
      .finish();
  return report;
}

TrialOutcome trial_outcome_from_json(const Json& json) {
  TrialOutcome outcome;
  const auto set_milestones = [&](const Json& member) {
    if (!member.is_array()) throw UserError("is not an array");
    for (const Json& m : member) outcome.milestones.push_back(milestone_from_json(m));
  };
  const auto set_state = [&](const Json& member) {
    if (!member.is_string()) throw UserError("is not text");
    outcome.state = parse_trial_state(member.get<std::string>());
  };
  Members(json, "trial outcome")
      .required("id", outcome.id)
      .with_required("state", set_state)
      .required("quality", outcome.quality)
      .optional("loss", outcome.loss)
      .required("steps", outcome.steps)
      .required("ops", outcome.ops)
      .optional("reason", outcome.reason)
      .with_required("milestones", set_milestones)
      .finish();
  return outcome;
}

Assignment assignment_from_json(const Json& json) {
  Assignment assignment;
  Members(json, "assignment")
      .with("trial", [&](const Json& m) { assignment.trial = trial_from_json(m); })
      .optional("reason", assignment.reason)
      .finish();
  return assignment;
}

Decision decision_from_json(const Json& json) {
  Decision decision;
  const auto set_until = [&](const Json& member) {
    std::uint64_t steps = 0;
    if (!read(member, steps)) throw UserError("is not a number of steps");
    decision.until_step = steps;
  };
  Members(json, "decision")
      .with("until_step", set_until)
      .required("rung", decision.rung)
      .with("outcome", [&](const Json& m) { decision.outcome = trial_outcome_from_json(m); })
      .finish();
  return decision;
}

}  // namespace heteroperf
