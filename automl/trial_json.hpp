#pragma once

#include <nlohmann/json.hpp>

#include "automl/trial.hpp"
#include "automl/trial_master.hpp"

namespace heteroperf {

/// Seeds and operation counts are decimal strings. A value that is missing, and a loss that is not
/// finite, are absent keys (format: automl/README.md). The from_json functions throw UserError with
/// every key that is missing, unknown or of the wrong type.

nlohmann::ordered_json hyper_parameters_to_json(const HyperParameters& hyper);
nlohmann::ordered_json trial_to_json(const Trial& trial);
nlohmann::ordered_json trial_report_to_json(const TrialReport& report);
nlohmann::ordered_json trial_outcome_to_json(const TrialOutcome& outcome);
nlohmann::ordered_json assignment_to_json(const Assignment& assignment);
nlohmann::ordered_json decision_to_json(const Decision& decision);

HyperParameters hyper_parameters_from_json(const nlohmann::ordered_json& json);
Trial trial_from_json(const nlohmann::ordered_json& json);
TrialReport trial_report_from_json(const nlohmann::ordered_json& json);
TrialOutcome trial_outcome_from_json(const nlohmann::ordered_json& json);
Assignment assignment_from_json(const nlohmann::ordered_json& json);
Decision decision_from_json(const nlohmann::ordered_json& json);

}  // namespace heteroperf
