#include <exception>

#include "metrics/base/error.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/engine/engine.hpp"

namespace heteroperf {
namespace {

using MakeEngine = Engine*();

}  // namespace

std::shared_ptr<Engine> load_engine() {
#if HETEROPERF_WITH_TORCH
  static const SharedModule module = SharedModule::open("engine", Visibility::local);
  return std::shared_ptr<Engine>(module.symbol<MakeEngine>("heteroperf_make_engine")());
#else
  throw SystemError("no training is possible with this program", "not built with LibTorch",
                    "Configure with -DHETEROPERF_TORCH=ON", ErrorKind::environment);
#endif
}

namespace {

[[noreturn]] void refuse_cuda() {
  throw SystemError("this engine computes on no GPU", "it has no CUDA side", "Use --device cpu",
                    ErrorKind::environment);
}

}  // namespace

std::vector<CudaDevice> Engine::cuda_devices() { refuse_cuda(); }
OperationProbeResult Engine::measure_operations(const OperationProbe&) {
  throw SystemError("this engine measures no operations", "it only trains", "",
                    ErrorKind::environment);
}
FastestProduct Engine::find_fastest_cuda_product(Precision, int, double) { refuse_cuda(); }

EngineStatus engine_status() {
  EngineStatus status;
  status.built = HETEROPERF_WITH_TORCH != 0;
  try {
    status.version = load_engine()->libtorch_version();
    status.usable = true;
  } catch (const std::exception& error) {
    status.reason = error.what();
  }
  return status;
}

}  // namespace heteroperf
