#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// The cluster file, see runners/comm/README.md. from(to(x)) == x.
nlohmann::json to_json(const Cluster& cluster);
/// Throws UserError with every unknown key, wrong type and contradiction; `where` names the file.
Cluster cluster_from_json(const nlohmann::json& json, const std::string& where);
/// Throws UserError for a missing, unreadable, truncated or wrong file.
Cluster read_cluster(const std::filesystem::path& file);

}  // namespace heteroperf
