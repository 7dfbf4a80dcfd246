#pragma once

#include <nlohmann/json.hpp>

#include "automl/trial_master.hpp"

namespace heteroperf {

/// These write and read HyperParameters, TrialReport, Assignment and Decision, the `subject` of
/// problems.
///
/// Seeds and operation counts are decimal strings. A value that is missing, and a number that is
/// not finite, are absent keys (format: automl/README.md). Reading throws UserError with every key
/// that is missing, unknown or of the wrong type.
template <class Message>
nlohmann::ordered_json message_to_json(const Message& message);
template <class Message>
Message message_from_json(const nlohmann::ordered_json& json, const char* subject);

}  // namespace heteroperf
