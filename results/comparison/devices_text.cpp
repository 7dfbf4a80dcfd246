#include "results/comparison/devices_text.hpp"

#include <fmt/format.h>

namespace heteroperf {

std::string devices_text(const RunDigest& run, const std::string& times) {
  std::string text;
  for (const DeviceShare& share : run.devices) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : " + ", share.count, times,
                        share.device_class);
  }
  return text;
}

}  // namespace heteroperf
