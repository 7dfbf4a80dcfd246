#include <filesystem>

#include "metrics/base/name_table.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "runners/cluster/hexiscale_machines_json.hpp"
#include "runners/cluster/shipped_clusters.hpp"

namespace heteroperf {

std::vector<std::string> shipped_cluster_names() {
  std::vector<std::string> names;
  for (const detail::ShippedText& one : detail::shipped_texts()) names.emplace_back(one.name);
  return names;
}

Cluster shipped_cluster(const std::string& name) {
  for (const detail::ShippedText& one : detail::shipped_texts()) {
    if (name == one.name) return cluster_from_json(nlohmann::json::parse(one.text), name);
  }
  throw unknown_name("shipped cluster", name, shipped_cluster_names());
}

Cluster find_cluster(const std::string& file_or_name) {
  constexpr std::string_view hexiscale = "hexiscale:";
  if (file_or_name.starts_with(hexiscale)) {
    return read_hexiscale_source(file_or_name.substr(hexiscale.size()));
  }
  std::error_code error;
  const bool there = std::filesystem::exists(file_or_name, error);
  const bool path = file_or_name.find_first_of("/.") != std::string::npos;
  return there || path ? read_cluster(file_or_name) : shipped_cluster(file_or_name);
}

}  // namespace heteroperf
