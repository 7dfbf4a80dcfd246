// This file writes the devices of a run in one line for tables and headings. The class of a device
// is a name that somebody chose in a cluster description, and it need not say which hardware it
// was, so models of GPUs follow in brackets where no class has their name.

#include "results/comparison/devices_text.hpp"

#include <fmt/format.h>

#include "results/comparison/run_machines.hpp"

namespace heteroperf {

std::string devices_text(const RunDigest& run, const std::string& times) {
  std::string text;
  for (const DeviceShare& share : run.devices) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : " + ", share.count, times,
                        share.device_class);
  }
  return text + gpus_beside_classes(run);
}

}  // namespace heteroperf
