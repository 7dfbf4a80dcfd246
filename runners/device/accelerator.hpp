#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "runners/device/host_pool.hpp"

namespace heteroperf {

inline at::Device cuda_device(int index) {
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

struct AcceleratorProperties {
  std::string name;  ///< "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  int major = 0, minor = 0;  ///< compute capability
  std::string pci_bus_id;    ///< "0000:1B:00.0"
};

/// CUDA devices as LibTorch sees them. Lives in a module of its own, loaded when a run asks for a
/// device: a run on the host never loads the GPU's libraries.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// Devices that can be used; 0 with `reason` in the driver's words.
  virtual int count() const = 0;
  virtual std::string reason() const = 0;
  virtual AcceleratorProperties properties(int index) const = 0;

  /// The calling thread works on this device from now on, in order, on its current stream. Float32
  /// products and convolutions are made in float32, not TF32.
  virtual void select(int index) = 0;
  /// Until all that this thread's current stream was given is done. Throws SystemError.
  virtual void wait() = 0;
  /// A host tensor on the device, copied from pinned memory on a stream of its own; what is queued
  /// afterwards on the current stream waits for it. Returns at once.
  virtual at::Tensor bring(const at::Tensor& host) = 0;

  /// Of LibTorch's caching allocator on the device, all threads together.
  virtual MemoryUse memory(int index) const = 0;
  virtual void reset_peak(int index) = 0;

  /// A point in the current stream.
  class Mark {
   public:
    virtual ~Mark() = default;
    /// Waits for both.
    virtual double seconds_since(const Mark& earlier) const = 0;
  };
  virtual std::unique_ptr<Mark> mark() = 0;
};

}  // namespace heteroperf
