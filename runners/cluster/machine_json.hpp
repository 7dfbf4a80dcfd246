#pragma once

#include <nlohmann/json.hpp>

#include "runners/cluster/device_class.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {

/// The `system` object of a record. Every value is {"value","source"}, or
/// {"status":"unavailable|denied","source","reason"}: there is no empty text and no zero that
/// stands for "unknown".
nlohmann::json to_json(const Machine& machine);

/// {"libraries":[{"path","build_id"}],"environment":{NAME:value}}.
nlohmann::json to_json(const ProcessContext& context);

/// {"name","kind","memory_bytes","count","threads","rates_ops_per_second":{precision:rate}}.
nlohmann::json to_json(const DeviceClass& device);
/// Throws UserError with every unknown key, wrong type and value out of range; `where` names the
/// object in the messages ("devices[0]").
DeviceClass device_class_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace heteroperf
