#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "metrics/base/strict_json.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// Writes the cluster file (runners/comm/README.md): cluster_from_json(to_json(x)) == x.
nlohmann::json to_json(const Cluster& cluster);
/// Reads it back. Throws UserError with every unknown key, wrong type and contradiction; `where`
/// names the file.
Cluster cluster_from_json(const nlohmann::json& json, const std::string& where);
/// Reads a cluster file. Throws UserError for a missing, unreadable, truncated or wrong file.
Cluster read_cluster(const std::filesystem::path& file);

/// Reads the points of a link's curve, "points": [{"bytes", "time_s"}], as cluster and efficiency
/// files have them.
std::vector<LinkCurve::Point> read_link_points(ObjectReader& reader, DocumentProblems& problems);

}  // namespace heteroperf
