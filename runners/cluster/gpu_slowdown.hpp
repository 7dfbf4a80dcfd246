#pragma once

#include <memory>
#include <optional>
#include <string>

namespace heteroperf {

/// The seconds for which an NVIDIA GPU was held below its clocks, since its driver started.
struct GpuSlowdown {
  std::optional<double> thermal_s, power_s;  ///< because of heat; because of its power limit
};

/// The management library that comes with the driver.
inline constexpr const char* nvidia_management_library = "libnvidia-ml.so.1";

/// Reads NVML, the driver's management library (nvmlDeviceGetViolationStatus, NVML API reference:
/// violationTime in nanoseconds).
class GpuSlowdownReader {
 public:
  /// Loads and starts `library`. Where that fails, `reason` tells why and nothing can be read.
  explicit GpuSlowdownReader(const std::string& library = nvidia_management_library);
  ~GpuSlowdownReader();

  /// Reads a device by its PCI bus id as CUDA writes it, "0000:1b:00.0". A counter that the driver
  /// does not have is absent; both are absent where it does not know the device.
  GpuSlowdown read(const std::string& pci_bus_id) const;
  const std::string& reason() const { return reason_; }

 private:
  class Nvml;
  std::unique_ptr<const Nvml> nvml_;
  std::string reason_;
};

/// Subtracts the counters of an earlier reading; a counter that was reset in between counts as 0.
GpuSlowdown operator-(const GpuSlowdown& after, const GpuSlowdown& before);

}  // namespace heteroperf
