#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "runners/cluster/system_files.hpp"
#include "runners/device/host_pool.hpp"

namespace heteroperf {

inline at::Device cuda_device(int index) {
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

/// The CUDA devices as LibTorch sees them. It lives in a module of its own, loaded when a run asks
/// for a device: a run on the host never loads the GPU's libraries.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// Returns the devices that can be used; where it is 0, `reason` has the driver's words.
  virtual int count() const = 0;
  virtual std::string reason() const = 0;
  virtual CudaDevice properties(int index) const = 0;

  /// Makes the calling thread work on this device from now on, in order, on its current stream.
  /// Float32 products and convolutions are made in float32, not TF32.
  virtual void select(int index) = 0;
  /// Waits until this thread's current stream has done all its work. Throws SystemError.
  virtual void wait() = 0;
  /// Copies a host tensor to the device, from pinned memory on a stream of its own, and returns at
  /// once. Work that is queued afterwards on the current stream waits for the copy.
  virtual at::Tensor bring(const at::Tensor& host) = 0;

  /// Returns the use of LibTorch's caching allocator on the device, all threads together.
  virtual MemoryUse memory(int index) const = 0;
  virtual void reset_peak(int index) = 0;

  /// A point in the current stream.
  class Mark {
   public:
    virtual ~Mark() = default;
    /// Waits for both points and returns the time between them.
    virtual double seconds_since(const Mark& earlier) const = 0;
  };
  virtual std::unique_ptr<Mark> mark() = 0;
};

}  // namespace heteroperf
