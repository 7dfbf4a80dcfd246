#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "metrics/strict_json.hpp"
#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// What the files that describe machines share.

/// The whole of a file. Throws UserError: "the `what` file X cannot be read (why) `suggestion`", or
/// that it is empty.
std::string read_description(const std::filesystem::path& file, const std::string& what,
                             const std::string& suggestion = "");

/// "points": [{"bytes", "time_s"}] of a link.
std::vector<LinkCurve::Point> read_link_points(ObjectReader& reader, DocumentProblems& problems);

}  // namespace heteroperf
