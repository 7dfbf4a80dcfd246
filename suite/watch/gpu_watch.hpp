#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "results/journal/events.hpp"
#include "runners/cluster/gpu_slowdown.hpp"

namespace heteroperf {

/// Watches for how long one rank's GPU is held below its clocks, from construction on.
class GpuWatch {
 public:
  /// `pci_bus_id` as CUDA writes it. `library` as GpuSlowdownReader takes it.
  explicit GpuWatch(std::string pci_bus_id, const std::string& library = nvidia_management_library);
  /// Nothing where the driver counts neither.
  std::optional<GpuSlowdownEvent> until_now(std::string host, int rank) const;

 private:
  std::string pci_bus_id_;
  GpuSlowdownReader reader_;
  std::int64_t start_ns_;
  GpuSlowdown start_;
};

}  // namespace heteroperf
