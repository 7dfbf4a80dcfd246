#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <optional>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/device/accelerator.hpp"

namespace heteroperf {
namespace {

void expect(cudaError_t code, const char* operation) {
  if (code == cudaSuccess) return;
  throw SystemError(std::string("CUDA failed during ") + operation, cudaGetErrorString(code),
                    "nvidia-smi tells what holds the device", ErrorKind::environment);
}

class EventMark final : public Accelerator::Mark {
 public:
  EventMark() : event_(cudaEventDefault) { event_.record(); }
  double seconds_since(const Accelerator::Mark& earlier) const override {
    const at::cuda::CUDAEvent& other = static_cast<const EventMark&>(earlier).event_;
    other.synchronize();
    event_.synchronize();
    return 1e-3 * static_cast<double>(other.elapsed_time(event_));
  }

 private:
  at::cuda::CUDAEvent event_;
};

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator() {
    const cudaError_t code = cudaGetDeviceCount(&count_);
    if (code != cudaSuccess) {
      count_ = 0;
      reason_ = cudaGetErrorString(code);
      static_cast<void>(cudaGetLastError());
    } else if (count_ == 0) {
      reason_ = "the driver shows no device";
    }
  }

  int count() const override { return count_; }
  std::string reason() const override { return reason_; }

  CudaDevice properties(int index) const override {
    cudaDeviceProp device{};
    expect(cudaGetDeviceProperties(&device, index), "cudaGetDeviceProperties");
    std::array<char, 32> bus_id{};
    expect(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index),
           "cudaDeviceGetPCIBusId");
    return {device.name, device.totalGlobalMem, bus_id.data()};
  }

  void select(int index) override {
    at::globalContext().lazyInitDevice(at::kCUDA);
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowTF32CuBLAS(false);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  }

  void wait() override {
    expect(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()), "a step on the device");
  }

  at::Tensor bring(const at::Tensor& host) override {
    const c10::cuda::CUDAStream compute = c10::cuda::getCurrentCUDAStream();
    const c10::cuda::CUDAStream copies = copy_stream();
    at::Tensor there;
    at::cuda::CUDAEvent arrived;
    {
      const c10::cuda::CUDAStreamGuard on_copies(copies);
      there = at::empty_like(host, host.options().device(at::kCUDA, compute.device_index()));
      there.copy_(host.pin_memory(), /*non_blocking=*/true);
      arrived.record(copies);
    }
    arrived.block(compute);
    c10::cuda::CUDACachingAllocator::recordStream(there.storage().data_ptr(), compute);
    return there;
  }

  MemoryUse memory(int index) const override {
    using c10::CachingAllocator::StatType;
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
    const auto all = static_cast<std::size_t>(StatType::AGGREGATE);
    const auto& used = stats.allocated_bytes[all];
    const auto& held = stats.reserved_bytes[all];
    return {static_cast<std::uint64_t>(used.current), static_cast<std::uint64_t>(used.peak),
            static_cast<std::uint64_t>(held.current - used.current),
            static_cast<std::uint64_t>(stats.num_device_alloc)};
  }
  void reset_peak(int index) override {
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(index));
  }

  std::unique_ptr<Mark> mark() override { return std::make_unique<EventMark>(); }

 private:
  /// One per thread: ranks of one process share devices, not streams.
  static c10::cuda::CUDAStream copy_stream() {
    thread_local std::optional<c10::cuda::CUDAStream> stream;
    if (!stream) stream = c10::cuda::getStreamFromPool();
    return *stream;
  }

  int count_ = 0;
  std::string reason_;
};

}  // namespace
}  // namespace heteroperf

/// The module's door to the devices: the caller owns the object.
extern "C" __attribute__((visibility("default"))) heteroperf::Accelerator*
heteroperf_make_accelerator() {
  return new heteroperf::CudaAccelerator();
}
