#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "metrics/base/strict_json.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {

/// Writes the cluster file (runners/comm/README.md): cluster_from_json(to_json(x)) == x.
nlohmann::json to_json(const Cluster& cluster);
/// Reads it back. Throws UserError with every unknown key, wrong type and contradiction; `where`
/// names the file.
Cluster cluster_from_json(const nlohmann::json& json, const std::string& where);
/// Reads a cluster file. Throws UserError for a missing, unreadable, truncated or wrong file.
Cluster read_cluster(const std::filesystem::path& file);

/// Writes the points of a link's curve, [{"bytes", "time_s"}], as cluster and efficiency files have
/// them.
nlohmann::json link_points_json(const LinkCurve& curve);
/// Reads them back from the key "points".
std::vector<LinkCurve::Point> read_link_points(ObjectReader& reader, DocumentProblems& problems);

/// Writes the `system` object of a record. Every value is {"value","source"}, or
/// {"status":"unavailable|denied","source","reason"}: no empty text and no zero stands for
/// "unknown".
nlohmann::json to_json(const Machine& machine);

/// Writes {"libraries":[{"path","build_id"}],"environment":{NAME:value}}.
nlohmann::json to_json(const ProcessContext& context);

/// Writes {"name","kind","memory_bytes","count","threads","rates_ops_per_second":{precision:rate}}.
nlohmann::json to_json(const DeviceClass& device);
/// Reads it back and notes every unknown or missing key, wrong type and value out of range.
DeviceClass read_device_class(const Json& json, const std::string& path,
                              DocumentProblems& problems);

}  // namespace heteroperf
