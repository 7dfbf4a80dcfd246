// The engine behind the module's door: it only joins the rooms below.
#include "runners/engine/module/torch_engine.hpp"

#include <torch/headeronly/version.h>

#include <fmt/format.h>

#include "runners/comm/communicator.hpp"
#include "runners/engine/conformance/operator_cases.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/probe/measure_operations.hpp"
#include "runners/engine/probe/peak_rate.hpp"

namespace heteroperf {
namespace {

class TorchEngine final : public Engine {
 public:
  void use_device(const RankDevice& device, const FallbackRules& rules) override {
    if (device.on_gpu) heteroperf::cuda_devices();  // which brings the kernels
    heteroperf::use_device(device, rules);
  }
  Substitutions substitutions() const override { return active_device().substitutions(); }

  std::string libtorch_version() const override {
    return fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  }
  std::string product_ways_here() const override {
    std::string ways;
    for (std::size_t w = 0; w < product_ways; ++w) {
      const auto way = static_cast<ProductWay>(w);
      if (has_product_way(way)) ways += fmt::format("{} ", to_string(way));
    }
    return fmt::format("{}of {}", ways, active_device().instruction_set());
  }
  std::unique_ptr<TrainingSession> start(const TrainingSpec& spec, Communicator& group,
                                         Communicator* devices) override {
    return start_training(spec, group, devices);
  }
  std::set<ProductShape> products_of(const TrainingSpec& spec, RankId rank) override {
    return heteroperf::products_of(spec, rank);
  }
  std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int threads,
                                          double seconds) override {
    return heteroperf::time_products(shapes, threads, seconds);
  }
  FastestProduct find_fastest_product(Precision precision, int threads, double seconds) override {
    return heteroperf::find_fastest_product(precision, threads, seconds);
  }
  std::vector<std::string> operator_names(const ModelGraph& graph) override {
    std::set<std::string> names;
    for (const FusedNodes& fused : fuse_nodes(graph)) {
      names.insert(operator_name(graph, fused.nodes));
    }
    return {names.begin(), names.end()};
  }
  std::vector<OperatorVerdict> check_operators(const ConformanceRequest& request) override {
    return heteroperf::check_operators(request);
  }
  OperationProbeResult measure_operations(const OperationProbe& probe) override {
    return heteroperf::measure_operations(probe);
  }
  std::vector<OperatorTime> time_operators(const OperationProbe& probe) override {
    return heteroperf::time_operators(probe);
  }
  std::optional<LocatedFault> locate_fault(const TrainingSpec& spec, const RankDevice& suspect,
                                           const RankDevice& sound, int runs,
                                           std::uint64_t steps) override {
    if (suspect.on_gpu) use_cuda(0);
    const FallbackRules rules = FallbackRules::parse(to_string(Fallback::allow));
    return heteroperf::locate_fault(spec, ActiveDevice(suspect, rules), sound, runs, steps);
  }
  std::vector<CudaDevice> cuda_devices() override {
    const Accelerator& accelerator = heteroperf::cuda_devices();
    std::vector<CudaDevice> devices;
    for (int i = 0; i < accelerator.count(); ++i) devices.push_back(accelerator.properties(i));
    return devices;
  }
  FastestProduct find_fastest_cuda_product(Precision precision, int gpu, double seconds) override {
    return heteroperf::find_fastest_cuda_product(precision, gpu, seconds);
  }
  double measure_cuda_memory(int gpu, double seconds) override {
    return heteroperf::measure_cuda_memory(gpu, seconds);
  }
};

}  // namespace

std::unique_ptr<Engine> make_torch_engine() { return std::make_unique<TorchEngine>(); }

}  // namespace heteroperf
