#include "suite/run/run_recorder.hpp"

#include "results/sha256.hpp"
#include "runners/cluster/shared_module.hpp"
#include "suite/run/run_config_json.hpp"
#include "suite/run/run_documents_json.hpp"
#include "suite/version.hpp"
#include "workloads/model_graph_json.hpp"

namespace heteroperf {
namespace {

RunFiles make_folder(const RunName& name, const std::filesystem::path& folder) {
  return create_run_folder(folder.empty() ? std::filesystem::path("results") / name.run_id
                                          : folder);
}

WorkloadFamily family_of(const Workload& workload) {
  return workload.unit == "token" ? WorkloadFamily::language_model : WorkloadFamily::classifier;
}

WorkloadEvent workload_event(const RunConfig& config, const Workload& workload, int ranks,
                             int groups) {
  const bool fixed = groups == 0;
  WorkloadEvent event;
  event.name = workload.name;
  event.size = workload.size;
  event.family = family_of(workload);
  event.unit = workload.unit;
  event.precision = to_string(workload.precision);
  event.units_per_sample = static_cast<std::uint64_t>(workload.units_per_sample);
  event.graph_hash = workload.graph.hash();
  if (fixed) {
    event.samples_per_step =
        static_cast<std::uint64_t>(workload.micro_batch * workload.micro_batches * ranks);
    event.parameters = workload.graph.parameter_count();
    event.graph.text = graph_to_text(workload.graph);
  }
  event.data = workload.data->description();
  event.data_fingerprint = workload.data->fingerprint();
  event.loss_floor = workload.data->loss_floor();
  event.error_floor = workload.data->error_floor();
  event.quality = family_of(workload) == WorkloadFamily::classifier ? QualityMeasure::accuracy
                                                                    : QualityMeasure::loss;
  if (workload.target) event.quality_target = workload.target->value;
  event.config.text = workload_config_text(workload);
  event.seeds = {{"run", config.seed}};
  return event;
}

}  // namespace

RunRecorder::RunRecorder(const RunConfig& config, const RunIdentity& identity,
                         const std::string& workload, const std::filesystem::path& folder)
    : name_(make_run_name(workload)), files_(make_folder(name_, folder)) {
  journal_ = std::make_unique<JournalWriter>(files_.journal().string());
  StartEvent start;
  start.run_id = name_.run_id;
  start.created_utc = name_.created_utc;
  start.argv = identity.argv;
  start.reproduce = identity.reproduce;
  start.quick = config.quick;
  start.program_version = version_text();
  start.git_commit = git_commit();
  start.build_type = build_text();
  start.binary_sha256 = sha256_file_hex(program_path().string());
  journal_->append(start);
}

RunRecorder::~RunRecorder() = default;

void RunRecorder::describe(const RunConfig& config, const Placement& placement,
                           const Workload& workload, int groups,
                           const std::string& libtorch_version) {
  const int count = std::max(1, groups);
  journal_->append(ConfigEvent{{to_json_text(config)}});
  journal_->append(SystemEvent{{system_text(placement, libtorch_version)}});
  journal_->append(PlanEvent{{plan_text(workload, placement.ranks, count)}});
  ScaleEvent scale;
  scale.ranks = placement.ranks;
  scale.groups = count;
  scale.transport = config.scale.transport;
  scale.devices = {{"cpu", static_cast<std::uint32_t>(placement.ranks),
                    static_cast<std::uint32_t>(placement.threads_per_rank), false}};
  journal_->append(scale);
  journal_->append(workload_event(config, workload, placement.ranks, groups));
}

FinishedRun RunRecorder::finish(RunStatus status, const std::string& reason,
                                std::int32_t exit_code) {
  HETEROPERF_EXPECT(!finished_);
  finished_ = true;
  journal_->append(StopEvent{status, reason, exit_code});
  journal_.reset();
  return finish_run(files_);
}

}  // namespace heteroperf
