#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// Names of the descriptions that come with the program (runners/cluster/descriptions).
std::vector<std::string> shipped_cluster_names();

/// Throws UserError naming the nearest.
Cluster shipped_cluster(const std::string& name);

/// What `--cluster` names: a file, where there is none of that path a shipped description, or
/// "hexiscale:" and what read_hexiscale_source() takes. Throws UserError as these do.
Cluster find_cluster(const std::string& file_or_name);

namespace detail {
struct ShippedText {
  const char* name;
  const char* text;
};
std::vector<ShippedText> shipped_texts();
}  // namespace detail

}  // namespace heteroperf
