#pragma once

#include <string>
#include <vector>

#include "runners/plan/sailor/search/sailor_pipelines.hpp"

namespace heteroperf {

/// Devices of a cluster by the names of Sailor's inputs: "A100-40=32,V100-16=96", a row of a trace
/// ("trace.csv:1", the first without a number), or a cluster file whose classes have these names;
/// a cluster label that is a zone of the inputs is taken as that zone. Throws UserError naming the
/// nearest place for names that the inputs do not have.
SailorDevices sailor_devices(const SailorTables& tables, const std::string& cluster);

}  // namespace heteroperf
