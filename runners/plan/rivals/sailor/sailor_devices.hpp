#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runners/plan/rivals/sailor/sailor_tables.hpp"

namespace heteroperf {

/// Devices that may be used, by SailorTables::places().
using SailorDevices = std::vector<int>;

/// Devices there are at one time of a trace.
struct SailorAvailability {
  double time_s = 0;
  std::map<std::pair<std::string, std::string>, int> devices;  ///< by (device, zone)
};

/// A trace of available devices: comma-separated, with a heading row; a column "Timestamp" in
/// seconds, and one per device and zone, "A100-40_us-central1-a"; a column without a heading is
/// passed over. Throws UserError with everything wrong, each with its line.
std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file);

/// Devices of a cluster by the names of Sailor's inputs: "A100-40=32,V100-16=96", a row of a trace
/// ("trace.csv:1", the first without a number), or a cluster file whose classes have these names;
/// a cluster label that is a zone of the inputs is taken as that zone. Throws UserError naming the
/// nearest place for names that the inputs do not have.
SailorDevices sailor_devices(const SailorTables& tables, const std::string& cluster);

}  // namespace heteroperf
