#pragma once

#include <memory>
#include <string>

#include "runners/engine/operation_probe.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// A GPU that CUDA_VISIBLE_DEVICES shows.
struct CudaDevice {
  std::string name;  ///< "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  std::string pci_bus_id = {};  ///< "0000:1B:00.0"
};

/// The LibTorch side of the program. Lives in a shared module loaded on first use, so that what
/// needs no training neither waits for LibTorch nor breaks with it.
class Engine {
 public:
  virtual ~Engine() = default;

  /// "2.11.0".
  virtual std::string libtorch_version() const = 0;
  /// True when bf16 matrix products run natively on this CPU (else they run slowly).
  virtual bool has_native_bf16() const = 0;
  /// Starts a training on the calling thread, which then makes all calls of the session.
  /// Throws UserError with every reason the spec cannot run (unsupported nodes, shapes of data and
  /// graph that differ, more ranks than samples).
  /// With `devices`, the same ranks over a library of their GPUs (buffers in device memory),
  /// gradients and tensor-parallel sums go through it; all else goes through `group`.
  virtual std::unique_ptr<TrainingSession> start(const TrainingSpec& spec, Communicator& group,
                                                 Communicator* devices) = 0;
  /// Best rate of large square matrix products over about `seconds`, on the calling thread with
  /// `threads` intra-operation threads: the measured peak behind `utilization`.
  virtual double measure_peak_ops_per_second(Precision precision, int threads, double seconds) = 0;
  /// Times the operations of a model, on the calling thread, as a training would run them.
  virtual OperationProbeResult measure_operations(const OperationProbe& probe);
  /// Loads the GPU side. Throws SystemError{environment} with the reason why there is no device.
  virtual std::vector<CudaDevice> cuda_devices();
  /// As measure_peak_ops_per_second, of device `gpu`.
  virtual double measure_cuda_peak_ops_per_second(Precision precision, int gpu, double seconds);
};

/// Loads the module. Throws SystemError{environment} with the searched paths and the loader's
/// words.
std::shared_ptr<Engine> load_engine();

/// What `doctor` says about the engine: tries to load it, never throws.
struct EngineStatus {
  bool built = false, usable = false;
  std::string version, reason;
};
EngineStatus engine_status();
/// As far as can be told without loading LibTorch (which takes half a second): the module is there
/// and the dynamic linker finds every library it needs.
EngineStatus engine_file_status();
/// The same of the module for CUDA devices; usable where a driver is there too.
EngineStatus cuda_file_status();

}  // namespace heteroperf
