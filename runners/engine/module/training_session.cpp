// A training of one rank. The session checks the spec, builds the parts of the training
// (parameters, gradient sums, stages, optimizer, the runner of steps) and keeps what outlives a
// step: the number of steps, and the ways to save and restore them or to take them over from a
// session of another plan.
#include "runners/engine/module/torch_engine.hpp"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>
#include <variant>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/pipeline/evaluation.hpp"
#include "runners/engine/pipeline/step_runner.hpp"
#include "runners/engine/probe/operation_observer.hpp"
#include "runners/engine/probe/peak_rate.hpp"
#include "runners/plan/plan_json.hpp"

namespace heteroperf {
namespace {

/// Makes every operator once: an operator knows best what it refuses.
void check_operators(const TrainingSpec& spec, ProblemList& problems) {
  const std::vector<Node>& nodes = spec.graph.nodes();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (std::holds_alternative<Input>(nodes[n].attributes)) continue;
    collect_problems(problems,
                     [&] { make_operator(spec.graph, NodeId(n), scalar_type(spec.precision)); });
  }
}

/// A node that nothing takes would have no gradient.
void check_uses(const TrainingSpec& spec, ProblemList& problems) {
  const std::vector<Node>& nodes = spec.graph.nodes();
  for (std::size_t n = 0; n + 1 < nodes.size(); ++n) {
    if (!spec.graph.consumers(NodeId(n)).empty()) continue;
    problems.add(fmt::format("node '{}' has no way to the loss", nodes[n].name),
                 "nothing takes its output", "Remove it or connect it");
  }
}

std::string describe(const SampleSpec& s) {
  std::string text;
  if (s.has_image()) text = fmt::format("{}x{}x{} images", s.channels, s.height, s.width);
  if (!s.has_text()) return text;
  text += fmt::format("{}sequences of {} tokens", text.empty() ? "" : " with ", s.length);
  return s.features > 0 ? text + fmt::format(" with rows of {} values", s.features) : text;
}

/// The model was built for one form of a sample, and its outputs name every target.
void check_sample(const TrainingSpec& spec, ProblemList& problems) {
  const SampleSpec given = spec.data->spec();
  std::optional<SampleSpec> taken;
  collect_problems(problems, [&] { taken = sample_of(spec.graph); });
  if (!taken) return;
  SampleSpec wanted = *taken;
  const std::int64_t outputs = std::exchange(wanted.classes, given.classes);
  if (given != wanted) {
    problems.add(
        fmt::format("the model takes {} but the data are {}", describe(wanted), describe(given)),
        spec.data->description(), "Build the model for the data's shape");
  }
  if (given.classes > outputs) {
    problems.add(
        fmt::format("the data have {} classes, the model {} outputs", given.classes, outputs),
        spec.data->description(), "Build the model with as many classes or more");
  }
  const Node& loss = spec.graph.node(spec.graph.loss());
  const Shape& logits = spec.graph.node(loss.inputs.front()).output;
  const std::int64_t positions =
      takes_targets(loss.attributes) ? element_count(logits) / logits.back() : 0;
  if (given.targets() != positions) {
    problems.add(fmt::format("a sample has {} targets, the model {} predictions", given.targets(),
                             positions));
  }
}

/// Throws UserError with every reason why `spec` cannot run on `ranks` ranks, before anything is
/// allocated.
void check_spec(const TrainingSpec& spec, int ranks) {
  HETEROPERF_EXPECT(spec.ready->staged.stage_of.size() == spec.graph.nodes().size());
  ProblemList problems;
  if (spec.gpu && spec.pacing) {
    problems.add("an emulated device on a GPU", "emulated devices compute on the host",
                 "Use --device cpu or another cluster");
  }
  check_operators(spec, problems);
  check_uses(spec, problems);
  if (spec.plan().ranks() != ranks) {
    problems.add(
        fmt::format("the plan is for {} ranks, the group has {}", spec.plan().ranks(), ranks),
        "every rank has its place in the plan", "Start as many ranks as the plan names");
  }
  check_sample(spec, problems);
  // Every rank needs a sample of its own.
  const std::uint64_t samples = spec.data->size(Split::train);
  if (samples < static_cast<std::uint64_t>(ranks)) {
    problems.add(fmt::format("{} ranks for {} training samples", ranks, samples),
                 spec.data->description(), "Use fewer ranks or more data");
  }
  problems.throw_if_any();
}

/// Products of float32 on the host take the way that is asked for, or are refused: none is
/// exchanged for another where a processor lacks it.
void check_products(const TrainingSpec& spec) {
  const bool has_choice = !spec.gpu && scalar_type(spec.precision) == at::kFloat;
  if (spec.products == nullptr || !has_choice || has_product_way(ProductWay::onednn)) return;
  if (!spec.products->takes(ProductWay::onednn)) return;
  throw SystemError("this machine has no products by onednn",
                    "LibTorch lacks them, or has them for processors with AVX-512 alone",
                    "Use --set engine.products=own, mkl or auto", ErrorKind::environment);
}

/// A number that differs where two ranks were given different trainings.
std::uint64_t digest(const TrainingSpec& spec) {
  const OptimizerRecipe& r = spec.recipe;
  Hash128 hash("training");
  hash.update(spec.graph.hash()).update(spec.data->fingerprint()).update(spec.precision);
  hash.update(plan_text(spec.plan())).update(spec.seed);
  hash.update(spec.products != nullptr ? spec.products->text() : std::string());
  hash.update(r.kind).update(r.learning_rate).update(r.momentum).update(r.weight_decay);
  hash.update(r.decay_matrices_only).update(r.beta1).update(r.beta2).update(r.epsilon);
  hash.update(r.schedule).update(r.warmup_steps).update(r.total_steps).update(r.final_fraction);
  return hash.update(r.clip_norm).low();
}

/// Collective. The smallest and the largest digest of all ranks are equal where all agree.
void check_agreement(const TrainingSpec& spec, Communicator& group) {
  const auto value = static_cast<std::int64_t>(digest(spec) >> 1);
  std::array<std::int64_t, 2> bounds{value, -value};
  group.all_reduce(std::span<std::int64_t>(bounds), Reduction::min);
  if (bounds[0] == -bounds[1]) return;
  throw UserError("the ranks were given different trainings",
                  "model, data, recipe, plan or seed differ",
                  "Start every rank with the same arguments and the same files");
}

/// The share of a value that another rounding changes: the last digit of the stored value, and of
/// bf16, whose operators read a rounding of the float32 values, the last digit of one in four.
double rounding_of(Precision precision) {
  if (precision == Precision::bf16) return std::ldexp(1.0, -9);
  return std::ldexp(1.0, precision == Precision::fp64 ? -52 : -23);
}

/// The training itself. Members are built in this order and destroyed in the opposite one: the
/// runner and the stages use all that stands above them.
class PlanSession final : public TrainingSession {
 public:
  PlanSession(const TrainingSpec& spec, Communicator& world, Communicator* devices,
              RankMemory memory, Accelerator* accelerator);

  StepReport step(ObservedOperations* observed) override;
  EvaluationReport evaluate(std::uint64_t samples, std::uint64_t first) override;
  StepOperations operations() const override { return stages_.operations(); }
  void trace_to(std::vector<LaneSpan>* lanes) override { runner_.trace_to(lanes); }
  std::optional<PacingReport> pacing() const override { return runner_.pacing(); }
  double peak_activations() const override { return runner_.peak_activations(); }
  std::string parameter_fingerprint() const override { return store_.fingerprint(); }
  MemoryUse memory() const override {
    return spec_.gpu ? accelerator_->memory(*spec_.gpu) : memory_.use();
  }
  void rest() override { memory_.trim(); }
  CheckpointReport save(const std::string& folder) override;
  void restore(const std::string& folder) override;
  MoveReport take_over(TrainingSession& previous) override;

 private:
  /// Every call of the session runs inside one: charged to this rank, without autograd.
  struct Scope {
    explicit Scope(const PlanSession& session)
        : charged(session.memory_), products(session.spec_.products.get()) {
      use_threads(session.spec_.threads);
      if (session.spec_.gpu) session.accelerator_->select(*session.spec_.gpu);
    }
    MemoryScope charged;
    ProductScope products;
    c10::InferenceMode no_tape;
  };

  std::vector<TensorPiece> pieces(std::span<const ArenaRange> ranges, HostCopies& host) const {
    return stored_arenas(spec_.graph, store_, optimizer_.states(), ranges, host);
  }
  std::vector<TensorPiece> all_pieces(HostCopies& host) const;
  void go_on(std::uint64_t step, std::uint64_t updates);

  TrainingSpec spec_;
  Communicator& world_;
  RankMemory memory_;
  Accelerator* accelerator_;  ///< null: the host computes
  RankShare share_;
  ParameterStore store_;
  GradientReducer reducer_;
  RankStages stages_;
  Optimizer optimizer_;
  StepRunner runner_;
  std::uint64_t step_ = 0;
};

PlanSession::PlanSession(const TrainingSpec& spec, Communicator& world, Communicator* devices,
                         RankMemory memory, Accelerator* accelerator)
    : spec_(spec),
      world_(world),
      memory_(std::move(memory)),
      accelerator_(accelerator),
      share_(rank_share(spec_.graph, spec_.ready->staged, spec_.plan(),
                        spec_.ready->roles.at(world.rank().index()))),
      store_(spec_.graph, share_.parameters, spec_.precision, spec_.seed,
             spec_.gpu ? cuda_device(*spec_.gpu) : at::Device(at::kCPU)),
      reducer_(world, spec_.graph, spec_.ready->staged, spec_.plan(), share_, store_,
               {.memory = memory_, .devices = devices}),
      stages_(spec_, share_, world, devices, store_, reducer_, accelerator),
      optimizer_(spec_.recipe, store_, reducer_.owned()),
      runner_(spec_, share_, world, stages_, reducer_, optimizer_, accelerator) {
  if (spec_.moved) store_.move(rounding_of(spec_.precision));
}

StepReport PlanSession::step(ObservedOperations* observed) {
  std::optional<OperationObserver> observer;
  if (observed != nullptr) observer.emplace();
  const Scope scope(*this);
  const StepReport report = runner_.run(step_);
  ++step_;
  if (observer) *observed = observer->observed();
  return report;
}

EvaluationReport PlanSession::evaluate(std::uint64_t samples, std::uint64_t first) {
  const Scope scope(*this);
  return heteroperf::evaluate(spec_, world_, stages_, first, samples);
}

// The mean of the running statistics stands for all replicas: each goes on linearly from it.
CheckpointReport PlanSession::save(const std::string& folder) {
  const Scope scope(*this);
  CheckpointState state;
  state.graph_hash = spec_.graph.hash();
  state.seed = spec_.seed;
  state.step = step_;
  state.optimizer_step = optimizer_.updates();
  state.data_position = step_ * spec_.plan().samples_per_step();
  const AveragedStatistics averaged(spec_, world_, stages_);
  HostCopies host;
  std::vector<TensorPiece> stored = pieces(reducer_.counted(), host);
  for (const RankStages::Buffers& part : stages_.buffers()) {
    if (part.replica == 0 && part.tensor_index == 0) store_buffers(part.named, host, stored);
  }
  return save_checkpoint(world_, folder, state, stored);
}

/// All that this rank holds, owned or not.
std::vector<TensorPiece> PlanSession::all_pieces(HostCopies& host) const {
  const ArenaRange all{0, store_.elements()};
  std::vector<TensorPiece> held = pieces(std::span(&all, 1), host);
  for (const auto& part : stages_.buffers()) store_buffers(part.named, host, held);
  return held;
}

/// After the state of a training has been put into this session's memory.
void PlanSession::go_on(std::uint64_t step, std::uint64_t updates) {
  step_ = step;
  optimizer_.restore_updates(updates);
  store_.publish();
}

// The checkpoint's boxes are read into all that this rank holds, owned or not, so that replicas
// need no exchange.
void PlanSession::restore(const std::string& folder) {
  const Scope scope(*this);
  const CheckpointReader reader(folder);
  reader.expect_graph(spec_.graph.hash());
  HostCopies host;
  reader.read(all_pieces(host));
  host.put_back();
  go_on(reader.state().step, reader.state().optimizer_step);
  if (spec_.moved) store_.move(rounding_of(spec_.precision));
}

// Replicas hold the same parameters and optimizer states, so what a rank keeps need not move.
MoveReport PlanSession::take_over(TrainingSession& previous) {
  auto* const from = dynamic_cast<PlanSession*>(&previous);
  HETEROPERF_EXPECT(from != nullptr && from != this);
  const Scope scope(*this);
  HostCopies given, taken;
  const std::vector<TensorPiece> wanted = all_pieces(taken);
  const AveragedStatistics averaged(from->spec_, from->world_, from->stages_);
  const MoveReport report = move_pieces(world_, from->all_pieces(given), wanted);
  taken.put_back();
  go_on(from->step_, from->optimizer_.updates());
  return report;
}

}  // namespace

std::unique_ptr<TrainingSession> start_training(const TrainingSpec& spec, Communicator& group,
                                                Communicator* devices) {
  check_spec(spec, group.size());
  check_products(spec);
  check_agreement(spec, group);
  const RankMemory memory;
  use_threads(spec.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  Accelerator* const accelerator = spec.gpu ? &use_cuda(*spec.gpu) : nullptr;
  if (accelerator != nullptr) accelerator->reset_peak(*spec.gpu);
  return std::make_unique<PlanSession>(spec, group, devices, memory, accelerator);
}

}  // namespace heteroperf
