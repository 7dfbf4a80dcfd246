// The driver counts for how long heat or the power limit held a GPU below its clocks. Two readings
// and their difference tell that of a run; a driver that counts neither gives no event, which is
// something else than an event of 0 s.
#include "suite/watch/gpu_watch.hpp"

#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

GpuWatch::GpuWatch(std::string pci_bus_id, const std::string& library)
    : pci_bus_id_(std::move(pci_bus_id)),
      reader_(library),
      start_ns_(now_ns()),
      start_(reader_.read(pci_bus_id_)) {}

std::optional<GpuSlowdownEvent> GpuWatch::until_now(std::string host, int rank) const {
  const GpuSlowdown slowdown = reader_.read(pci_bus_id_) - start_;
  if (!slowdown.thermal_s && !slowdown.power_s) return std::nullopt;
  const double seconds = static_cast<double>(now_ns() - start_ns_) * nanosecond;
  return GpuSlowdownEvent{std::move(host), pci_bus_id_,        rank,
                          seconds,         slowdown.thermal_s, slowdown.power_s};
}

}  // namespace heteroperf
