#pragma once

#include "runners/engine/engine.hpp"

namespace heteroperf::test {

/// For what needs a rank's context and no training.
class NoEngine : public Engine {
 public:
  void use_device(const RankDevice&, const FallbackRules&) override {}
  Substitutions substitutions() const override { return {}; }
  std::string libtorch_version() const override { return ""; }
  std::string product_ways_here() const override { return ""; }
  std::unique_ptr<TrainingSession> start(const TrainingSpec&, Communicator&,
                                         Communicator*) override {
    return {};
  }
  std::set<ProductShape> products_of(const TrainingSpec&, RankId) override { return {}; }
  std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes, int,
                                          double) override {
    return std::vector<ProductTimes>(shapes.size());
  }
  FastestProduct find_fastest_product(Precision, int, double) override { return {}; }
  std::vector<std::string> operator_names(const ModelGraph&) override { return {}; }
  std::vector<OperatorVerdict> check_operators(const ConformanceRequest&) override { return {}; }
  OperationProbeResult measure_operations(const OperationProbe&) override { return {}; }
  std::vector<OperatorTime> time_operators(const OperationProbe&) override { return {}; }
  std::optional<LocatedFault> locate_fault(const TrainingSpec&, const RankDevice&,
                                           const RankDevice&, int, std::uint64_t) override {
    return {};
  }
  std::vector<CudaDevice> cuda_devices() override { return {}; }
  FastestProduct find_fastest_cuda_product(Precision, int, double) override { return {}; }
  double measure_cuda_memory(int, double) override { return 0; }
};

}  // namespace heteroperf::test
