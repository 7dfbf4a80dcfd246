#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/engine/operation_probe.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// A GPU that CUDA_VISIBLE_DEVICES shows.
struct CudaDevice {
  std::string name;  ///< "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  std::string pci_bus_id = {};  ///< "0000:1B:00.0"
};

/// The fastest of the products that LibTorch has on a device, ready to be repeated. Belongs to the
/// thread that found it.
struct FastestProduct {
  std::string name;                ///< its way and shape: "aten::mm 1024x1024x1024"
  std::vector<std::string> tried;  ///< ways that work here, in the order in which they were tried
  double operations = 0;           ///< of one product, 2 per multiply-add
  double mm_ops_per_second = 0;    ///< best call of aten::mm, which the operators compute with
  std::function<void()> multiply;  ///< one product; returns when it is done
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
  /// Tries the ways that LibTorch has to multiply, each at several shapes, for about `seconds`, on
  /// the calling thread with `threads` intra-operation threads: what the measured peak behind
  /// `utilization` repeats.
  virtual FastestProduct find_fastest_product(Precision precision, int threads, double seconds) = 0;
  /// Times the operations of a model, on the calling thread, as a training would run them.
  virtual OperationProbeResult measure_operations(const OperationProbe& probe);
  /// Loads the GPU side. Throws SystemError{environment} with the reason why there is no device.
  virtual std::vector<CudaDevice> cuda_devices();
  /// As find_fastest_product, on device `gpu`.
  virtual FastestProduct find_fastest_cuda_product(Precision precision, int gpu, double seconds);
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
