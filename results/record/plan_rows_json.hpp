#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace heteroperf {

/// Lines of a record's table that speak of its plan; empty: the record has nothing to say.
std::string plan_row(const nlohmann::ordered_json& record);
std::string prediction_row(const nlohmann::ordered_json& record);
std::string bubble_row(const nlohmann::ordered_json& record);
std::string hetero_row(const nlohmann::ordered_json& record);
std::string pacing_row(const nlohmann::ordered_json& record);

}  // namespace heteroperf
