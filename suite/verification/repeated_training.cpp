// Repeats the training of a run as its journal describes it, but on one rank of this process.
// Losses are means over the samples of a step, so one rank that takes all of them trains what many
// ranks trained; micro-batches have the size that they had, since the statistics of batch norm are
// theirs.
#include "suite/verification/repeated_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "metrics/base/error.hpp"
#include "results/record/run_folder.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/run/prepare.hpp"
#include "suite/training/group_trainer.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Samples that every micro-batch of the run can be cut into.
std::int64_t micro_batch_of(const fs::path& folder, const RunConfig& config) {
  const fs::path file = RunFiles{folder}.plan();
  if (!fs::exists(file)) return config.batch.micro_batch;
  std::int64_t size = 0;
  for (const PlanStage& stage : read_plan_file(file.string()).stages) {
    for (const StageReplica& replica : stage.replicas) size = std::gcd(size, replica.micro_batch);
  }
  return size;
}

RunConfig on_one_rank(const fs::path& folder, const WorkloadEvent& workload, RunConfig config) {
  const std::int64_t micro_batch = std::max<std::int64_t>(1, micro_batch_of(folder, config));
  config.batch = {micro_batch, static_cast<std::int64_t>(*workload.samples_per_step) / micro_batch};
  config.scale = {.ranks = 1, .device = {}, .bind = CoreBinding::none};
  config.plan = {};
  config.cluster = {};
  config.pace = {};
  config.checkpoint = {};
  config.trace.clear();
  config.rank_logs = config.with_baselines = false;
  return config;
}

}  // namespace

RepeatedTraining::RepeatedTraining(const fs::path& folder, const Journal& journal) {
  const StartEvent& start = *journal.first<StartEvent>();
  const WorkloadEvent& workload = *journal.first<WorkloadEvent>();
  if (journal.last<ConfigEvent>() == nullptr || !start.parent.empty()) {
    throw Error(ErrorKind::not_comparable,
                {{fmt::format("{} cannot be repeated from its first step", start.run_id),
                  start.parent.empty() ? "its journal has no configuration"
                                       : fmt::format("it goes on from {}", start.parent),
                  "Give a run that begins with its training."}});
  }
  const RunConfig recorded = repeated_config(journal);
  std::vector<std::string> names = recorded.scale.device.names;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) devices_.push_back(read_device(name));
  ProblemList problems;
  add_changed_chips(journal, names, problems);
  limit_libraries(devices_);
  const RunConfig config = on_one_rank(folder, workload, recorded);
  Placement placement = choose_placement(config.scale, usable_cores(), 0);
  give_devices(config.scale, placement);
  run_ = std::make_unique<PreparedRun>(prepare_runs(config, {}, placement, 1).front());
  for (const IdentityDifference& difference : differences(
           training_identity(workload),
           training_identity(run_->workload, run_->plan->plan.samples_per_step(), config.seed))) {
    problems.add(fmt::format("{} cannot be repeated here", start.run_id),
                 fmt::format("{} was {}, and is {}", difference.name, difference.a, difference.b));
  }
  if (!problems.problems().empty()) throw Error(ErrorKind::environment, problems.problems());
  engine_ = load_engine();
}

RepeatedTraining::~RepeatedTraining() = default;

template <class Body>
void RepeatedTraining::with_spec(const Body& body) const {
  run_on_threads(1, run_->config.comm, [&](World& world) {
    RankContext context{run_->config, run_->placement, world, *engine_};
    context.products =
        std::make_shared<const ProductChoices>(ProductChoices::parse(run_->config.engine.products));
    body(planned_spec(context, run_->workload, *run_->plan), *world.communicator);
  });
}

NoiseBand RepeatedTraining::band(int runs, std::uint64_t steps) const {
  std::vector<std::vector<double>> losses;
  with_spec([&](const TrainingSpec& spec, Communicator& alone) {
    std::vector<RankDevice> sound = drawn_devices(device(), runs);
    sound.push_back(exact_device());
    for (const RankDevice& device : sound) {
      engine_->use_device(device, {});
      const auto session = engine_->start(spec, alone, nullptr);
      std::vector<double>& of_run = losses.emplace_back();
      for (std::uint64_t n = 0; n < steps; ++n) of_run.push_back(session->step().loss);
    }
  });
  return noise_band(losses);
}

const RankDevice& RepeatedTraining::device() const {
  const auto chip = std::ranges::find_if(
      devices_, [](const RankDevice& device) { return device.chip.has_value(); });
  return chip == devices_.end() ? devices_.front() : *chip;
}

std::optional<FaultOfDevice> RepeatedTraining::locate(const RankDevice& reference, int runs,
                                                      std::uint64_t steps) const {
  std::optional<FaultOfDevice> found;
  with_spec([&](const TrainingSpec& spec, Communicator&) {
    for (const RankDevice& device : devices_) {
      const auto fault = engine_->locate_fault(spec, device, reference, runs, steps);
      if (fault && (!found || fault->step < found->fault.step)) found = {device.name, *fault};
    }
  });
  return found;
}

}  // namespace heteroperf
