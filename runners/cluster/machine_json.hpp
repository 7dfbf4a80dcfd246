#pragma once

#include <nlohmann/json.hpp>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {

/// Writes the `system` object of a record. Every value is {"value","source"}, or
/// {"status":"unavailable|denied","source","reason"}: no empty text and no zero stands for
/// "unknown".
nlohmann::json to_json(const Machine& machine);

/// Writes {"libraries":[{"path","build_id"}],"environment":{NAME:value}}.
nlohmann::json to_json(const ProcessContext& context);

/// Writes {"name","kind","memory_bytes","count","threads","rates_ops_per_second":{precision:rate}}.
nlohmann::json to_json(const DeviceClass& device);
/// Reads it back. Throws UserError with every unknown key, wrong type and value out of range;
/// `where` names the object in the messages ("devices[0]").
DeviceClass device_class_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace heteroperf
