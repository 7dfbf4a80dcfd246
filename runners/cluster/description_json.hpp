#pragma once

#include <vector>

#include "metrics/base/strict_json.hpp"
#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// What the files that describe machines share.

/// "points": [{"bytes", "time_s"}] of a link.
std::vector<LinkCurve::Point> read_link_points(ObjectReader& reader, DocumentProblems& problems);

}  // namespace heteroperf
