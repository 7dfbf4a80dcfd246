#include "runners/cluster/gpu_slowdown.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

// This is the library's binary interface, which is stable; its header is no part of the CUDA
// packages that this program is built with.
using Device = struct NvmlDevice*;
struct ViolationTime {
  unsigned long long reference_us, violation_ns;
};
constexpr int success = 0, policy_power = 0, policy_thermal = 1;

/// Returns how much a counter grew; nothing where either reading lacks it.
std::optional<double> growth(const std::optional<double>& before,
                             const std::optional<double>& after) {
  if (!before || !after) return std::nullopt;
  return std::max(0.0, *after - *before);
}

}  // namespace

/// The loaded library with the functions that are needed of it.
class GpuSlowdownReader::Nvml {
 public:
  /// Throws std::runtime_error with the loader's or the library's words.
  explicit Nvml(const std::string& library) : handle_(dlopen(library.c_str(), RTLD_NOW), &dlclose) {
    if (!handle_) throw std::runtime_error(dlerror());
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(device_of_bus_id_, "nvmlDeviceGetHandleByPciBusId_v2");
    find(violation_, "nvmlDeviceGetViolationStatus");
    const int code = init_();
    if (code != success) throw std::runtime_error(fmt::format("nvmlInit_v2 returned {}", code));
  }
  ~Nvml() { shutdown_(); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  GpuSlowdown read(const std::string& pci_bus_id) const {
    Device device = nullptr;
    if (device_of_bus_id_(pci_bus_id.c_str(), &device) != success) return {};
    return {seconds(device, policy_thermal), seconds(device, policy_power)};
  }

 private:
  template <class F>
  void find(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(dlsym(handle_.get(), name));
    if (function == nullptr) throw std::runtime_error(dlerror());
  }

  std::optional<double> seconds(Device device, int policy) const {
    ViolationTime time{};
    if (violation_(device, policy, &time) != success) return std::nullopt;
    return static_cast<double>(time.violation_ns) * nanosecond;
  }

  std::unique_ptr<void, int (*)(void*)> handle_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*device_of_bus_id_)(const char*, Device*) = nullptr;
  int (*violation_)(Device, int, ViolationTime*) = nullptr;
};

GpuSlowdownReader::GpuSlowdownReader(const std::string& library) {
  try {
    nvml_ = std::make_unique<const Nvml>(library);
  } catch (const std::runtime_error& error) {
    reason_ = error.what();
  }
}

GpuSlowdownReader::~GpuSlowdownReader() = default;

GpuSlowdown GpuSlowdownReader::read(const std::string& pci_bus_id) const {
  return nvml_ ? nvml_->read(pci_bus_id) : GpuSlowdown{};
}

GpuSlowdown operator-(const GpuSlowdown& after, const GpuSlowdown& before) {
  return {growth(before.thermal_s, after.thermal_s), growth(before.power_s, after.power_s)};
}

}  // namespace heteroperf
