// The GPU side is a module of its own, so that a run on the host never loads the GPU's libraries.
//
// The module gives two things: the accelerator, which knows devices and their memory, and the table
// of kernels. A machine without a driver, a module without a usable device, and a program built
// without CUDA each end in an error that says which of them it is.
#include "runners/engine/operators/load_cuda.hpp"

#include <fmt/format.h>

#include <memory>

#include "metrics/base/error.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/device/accelerator.hpp"
#include "runners/engine/operators/active_device.hpp"

namespace heteroperf {
namespace {

constexpr const char* advice = "Use --device cpu, or see `heteroperf doctor`";

#if HETEROPERF_WITH_CUDA
using MakeAccelerator = Accelerator*();
using GiveKernels = const DeviceKernels*();

std::unique_ptr<Accelerator> load() {
  if (!has_nvidia_driver()) {
    throw SystemError("no GPU can be used", no_nvidia_driver, advice, ErrorKind::environment);
  }
  const SharedModule module = SharedModule::open("cuda", Visibility::local);
  std::unique_ptr<Accelerator> accelerator(
      module.symbol<MakeAccelerator>("heteroperf_make_accelerator")());
  if (accelerator->count() == 0) {
    throw SystemError("no GPU can be used", accelerator->reason(), advice, ErrorKind::environment);
  }
  use_device_kernels(*module.symbol<GiveKernels>("heteroperf_device_kernels")());
  return accelerator;
}
#else
std::unique_ptr<Accelerator> load() {
  throw SystemError("no GPU can be used",
                    "not built with CUDA (configure with -DHETEROPERF_CUDA=ON)", advice,
                    ErrorKind::environment);
}
#endif

}  // namespace

// Loaded once per process and never unloaded: tensors in a device's memory may outlive every
// training.
Accelerator& cuda_devices() {
  static const std::unique_ptr<Accelerator> accelerator = load();
  return *accelerator;
}

Accelerator& use_cuda(int index) {
  Accelerator& accelerator = cuda_devices();
  if (index < 0 || index >= accelerator.count()) {
    throw SystemError(fmt::format("no GPU {} can be used", index),
                      fmt::format("there are {}", accelerator.count()), advice,
                      ErrorKind::environment);
  }
  accelerator.select(index);
  return accelerator;
}

}  // namespace heteroperf
