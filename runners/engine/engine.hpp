#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runners/cluster/rank_device.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/engine/conformance.hpp"
#include "runners/engine/products.hpp"
#include "runners/engine/training.hpp"
#include "runners/plan/times/measured_operations.hpp"
#include "workloads/data/data_source.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The fastest of the products that LibTorch has on a device, ready to be repeated. Belongs to the
/// thread that found it.
struct FastestProduct {
  std::string name;                ///< its way and shape: "aten::mm 1024x1024x1024"
  std::vector<std::string> tried;  ///< ways that work here, in the order in which they were tried
  double operations = 0;           ///< one product has so many, 2 per multiply-add
  double ops_per_second = 0;       ///< its best call
  double mm_ops_per_second = 0;    ///< best call of aten::mm, which the operators compute with
  std::function<void()> multiply;  ///< one product; returns when it is done
};

/// Operations of a model that are to be measured.
struct OperationProbe {
  const ModelGraph& graph;
  const ModelOperations& model;  ///< the graph's operations
  std::shared_ptr<const DataSource> data;
  OptimizerRecipe recipe = {};
  Precision precision = Precision::fp32;
  std::int64_t samples = 1;        ///< per micro-batch
  std::int64_t micro_batches = 1;  ///< per step: the first overwrites gradients, the others add
  int threads = 1;
  std::optional<int> gpu = {};  ///< none: the host's cores
  /// The time for one operation, about: all are repeated for as long as that makes together.
  double seconds_each = 0.05;
  double deadline_s = 60;           ///< from now; fewer repetitions, or none, when it comes
  std::function<bool()> stop = {};  ///< asked now and then; true ends it as the deadline does
};

/// The measured times of the operations of OperationProbe::model.
struct OperationProbeResult {
  std::vector<OperationSeconds> operations;  ///< medians, in the model's order
  double optimizer_s = 0;                    ///< one update takes so long; 0: not measured
  std::int64_t optimizer_elements = 0;
};

/// An operation of a model, by our operators and by LibTorch's, on the calling thread's device.
struct OperatorTime {
  std::string name;         ///< its kinds of nodes: "linear+gelu"
  std::string shape;        ///< input and output with the samples: "8x64-8x256"
  std::uint64_t count = 0;  ///< so often in a micro-batch
  OperationSeconds ours;    ///< the least of the turns; no repetitions: there was no time for it
  std::vector<double> forward_turns_s, backward_turns_s;  ///< ours, a median of each turn
  double library_forward_s = 0, library_backward_s = 0;   ///< 0: LibTorch has none
  double operations = 0, bytes = 0;                       ///< all passes together
};

/// A pass of a layer, or the update of all parameters.
enum class LayerPass { forward, backward, update };
constexpr std::array<const char*, 3> value_names(LayerPass) {
  return {"forward", "backward", "update"};
}

/// The place where a device first computes something else than the reference.
struct LocatedFault {
  std::uint64_t step = 0;
  std::string layer;  ///< names of its nodes, "up + gelu"; "optimizer" in an update
  LayerPass pass = LayerPass::forward;
  std::string op;  ///< the operator, by its name in `lacks`; empty: no single one is at fault
  double difference = 0;  ///< relative, of the tensor that is furthest outside its band
  double band = 0;        ///< rounding makes so much of it
  double after = 0;  ///< the difference that is left with the reference in the operator's place
};

/// The LibTorch side of the program. Lives in a shared module loaded on first use, so that what
/// needs no training neither waits for LibTorch nor breaks with it.
class Engine {
 public:
  virtual ~Engine() = default;

  /// From now on the calling thread computes on this device. Throws UserError for
  /// instructions that this processor lacks, and for a chip that lacks operators that there are
  /// not.
  virtual void use_device(const RankDevice& device, const FallbackRules& rules) = 0;
  /// The operators that the calling thread's device lacked since then.
  virtual Substitutions substitutions() const = 0;

  /// "2.11.0".
  virtual std::string libtorch_version() const = 0;
  /// The ways of products that there are here, and the instruction set of our own: "mkl own of
  /// avx2". Times of products hold where this is the same.
  virtual std::string product_ways_here() const = 0;
  /// Starts a training on the calling thread, which then makes all calls of the session.
  /// Throws UserError with every reason the spec cannot run (unsupported nodes, shapes of data and
  /// graph that differ, more ranks than samples).
  /// With `devices`, the same ranks over a library of their GPUs (buffers in device memory),
  /// gradients and tensor-parallel sums go through it; all else goes through `group`.
  virtual std::unique_ptr<TrainingSession> start(const TrainingSpec& spec, Communicator& group,
                                                 Communicator* devices) = 0;
  /// The products of float32 that rank `rank` of the spec's plan makes in the passes of one
  /// micro-batch; none on a GPU. Nothing is computed.
  virtual std::set<ProductShape> products_of(const TrainingSpec& spec, RankId rank) = 0;
  /// Lets all ways make each of these products in turn, for about `seconds` in all and some turns
  /// in any case, on the calling thread. Large products are timed by smaller ones of their kind.
  virtual std::vector<ProductTimes> time_products(const std::vector<ProductShape>& shapes,
                                                  int threads, double seconds) = 0;
  /// Tries the ways that LibTorch has to multiply, each at several shapes, for about `seconds`, on
  /// the calling thread with `threads` intra-operation threads: what the measured peak behind
  /// `utilization` repeats.
  virtual FastestProduct find_fastest_product(Precision precision, int threads, double seconds) = 0;
  /// The names of the graph's operators as they run, "linear+gelu", each once.
  virtual std::vector<std::string> operator_names(const ModelGraph& graph) = 0;
  /// Holds the operators of the calling thread's device against the reference.
  virtual std::vector<OperatorVerdict> check_operators(const ConformanceRequest& request) = 0;
  /// Times the operations of a model, on the calling thread, as a training would run them.
  virtual OperationProbeResult measure_operations(const OperationProbe& probe) = 0;
  /// Times the same operations and LibTorch's own operators in turns.
  virtual std::vector<OperatorTime> time_operators(const OperationProbe& probe) = 0;
  /// Trains the first `steps` steps of a spec of one rank with the exact reference, and finds the
  /// first pass of a layer that `suspect` computes otherwise from the same inputs: by more than
  /// parted_bands times what `runs` devices like `sound` with sums in drawn orders are apart from
  /// the reference. None: there is no such pass.
  virtual std::optional<LocatedFault> locate_fault(const TrainingSpec& spec,
                                                   const RankDevice& suspect,
                                                   const RankDevice& sound, int runs,
                                                   std::uint64_t steps) = 0;
  /// Loads the GPU side. Throws SystemError{environment} with the reason why there is no device.
  virtual std::vector<CudaDevice> cuda_devices() = 0;
  /// The same on CUDA device `gpu`.
  virtual FastestProduct find_fastest_cuda_product(Precision precision, int gpu,
                                                   double seconds) = 0;
  /// Bytes per second that the memory of CUDA device `gpu` reads and writes in its fastest copy of
  /// a tensor, within about `seconds`.
  virtual double measure_cuda_memory(int gpu, double seconds) = 0;
};

/// Returns the rate of products of bf16, as operators make them, over that of the fastest of
/// float32 on the host's cores. It is measured for a moment, on the calling thread: a processor
/// that has instructions of bf16 may still have fewer of them per cycle than of float32.
double bf16_speedup(Engine& engine, int threads);

/// Loads the module. Throws SystemError{environment} with the searched paths and the loader's
/// words.
std::shared_ptr<Engine> load_engine();

/// The engine's state as `doctor` tells it without loading LibTorch, which takes half a second: the
/// module is there and the dynamic linker finds every library it needs. Never throws.
BackendStatus engine_file_status();
/// The same for the module of CUDA devices, which is usable where a driver is there too.
BackendStatus cuda_file_status();

}  // namespace heteroperf
