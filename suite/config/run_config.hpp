#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/world.hpp"
#include "runners/plan/plan.hpp"
#include "suite/config/training_identity.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

struct PrecisionGoal;

/// `model.*`: what is trained.
struct ModelConfig {
  std::string size = "auto";      ///< llm: a ladder name, or auto: the scaling rule
  std::string name = "resnet18";  ///< image: a name of `list models`
  Precision precision = Precision::fp32;
  std::int64_t sequence_length = 0;  ///< tokens; 0: the size's own
};

/// `data.*`
struct DataConfig {
  std::string source =
      "generated";  ///< generated | idx:DIR | cifar10:DIR | text:FILE | tokens:FILE
};

/// Where a rank computes.
enum class RankDevice { cpu, cuda };
constexpr std::array<const char*, 2> value_names(RankDevice) { return {"cpu", "cuda"}; }
/// As `scale.device` has them: "cpu", or by rank "cuda,cpu".
std::string to_string(const std::vector<RankDevice>& devices);

/// Gives ranks cores where ranks times threads fit them, or never.
enum class CoreBinding { automatic, none };
constexpr std::array<const char*, 2> value_names(CoreBinding) { return {"auto", "none"}; }

/// `scale.*`: who works.
struct ScaleConfig {
  int ranks = 0;             ///< 0: one per usable core, or the launcher's world
  int threads_per_rank = 0;  ///< 0: usable cores / ranks
  Transport transport = Transport::threads;
  std::vector<RankDevice> device{RankDevice::cpu};  ///< one for all ranks, or one per rank
  CoreBinding bind = CoreBinding::automatic;

  bool uses_gpus() const;
  bool uses_only_gpus() const;
};

/// `batch.*`; 0: the workload's own.
struct BatchConfig {
  std::int64_t micro_batch = 0;    ///< samples per replica and micro-batch
  std::int64_t micro_batches = 0;  ///< per step; own: the more, the fewer replicas the ranks make
};

/// `plan.*`: who computes which piece of a fixed model, in which order.
struct PlanConfig {
  int pipeline = 1;               ///< positions of the pipeline
  int tensor = 1;                 ///< ranks that share every layer
  int data = 0;                   ///< replicas; 0: what is left of the ranks
  int chunks = 0;                 ///< stages per position; 0: the schedule's own
  std::string schedule = "1f1b";  ///< a name of `list schedules`
  Recomputation recompute = Recomputation::none;
  int zero_stage = 0;              ///< 1: optimizer states are spread over the replicas
  bool sequence_parallel = false;  ///< norms and sums of tensor-parallel ranks by rows
  std::string file;                ///< a plan, in place of all the others and of `batch.*`
};

/// `cluster.*`
struct ClusterConfig {
  std::string file;  ///< or the name of a shipped description; empty: this machine
};

/// `pace.*`: emulated devices.
struct PaceConfig {
  double dilation = 0;  ///< real seconds per modelled one; 0: measured in the first step
};

/// `optimizer.*`: absent: the workload's own.
struct OptimizerConfig {
  std::optional<OptimizerKind> name;
  std::optional<LearningRateSchedule> schedule;
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;
  std::optional<double> clip_norm;  ///< 0: no clipping
  std::optional<std::int64_t> warmup_steps;
};

/// Read as "1%" or "1".
struct Percent {
  double value = 0;
  friend bool operator==(const Percent&, const Percent&) = default;
};

/// `measure.*`: how long, and what around it.
struct MeasureConfig {
  double duration_s = 60;          ///< length of the measured phase
  std::uint64_t steps = 0;         ///< optimizer steps per group; 0: by duration
  Percent until_percent;           ///< half width of the throughput's interval that ends the phase
                                   ///< before its duration; 0: none does
  double until_after_s = 20;       ///< measured before it is looked at for that
  std::uint64_t warmup_steps = 2;  ///< at least; the steady-window rule may cut more
  std::uint64_t evaluation_samples = 512;
  double peak_s = 0.5;             ///< measuring the peak of products, twice; 0: not measured
  std::uint64_t replay_steps = 0;  ///< after which a replay ends, as if interrupted; 0: it is none
  bool replay_moved = false;       ///< in a replay: TrainingSpec::moved
};

/// `automl.*`
struct AutomlConfig {
  int group_ranks = 1;  ///< ranks that train one trial together
  std::uint64_t first_rung_steps = 40;
  std::uint32_t reduction = 3;  ///< a rung keeps one in so many
  std::uint32_t rungs = 3;
  std::uint64_t evaluation_samples = 256;
  std::string history;  ///< a run folder whose trials the search starts from
};

/// `checkpoint.*`: when a training of one model is saved, in `<run>/checkpoints/step-<n>`.
struct CheckpointConfig {
  std::uint64_t every_steps = 0;  ///< 0: not by steps
  double every_s = 0;             ///< wall time since the last one; 0: not by time
  std::uint64_t keep = 2;         ///< the newest that stay; 0: all
  bool at_end = false;            ///< after the last step, also of a run that is interrupted

  bool any() const { return every_steps > 0 || every_s > 0 || at_end; }
};

/// The run that `resume` goes on from. No configuration key: the journal's first line names it.
struct ParentRun {
  std::string run_id;
  std::string checkpoint;     ///< its folder
  std::uint64_t step = 0;     ///< steps done in it
  TrainingIdentity training;  ///< must be the same here
};

/// The effective configuration of a run: stored in every record.
struct RunConfig {
  std::string workload;  ///< empty: every workload of the suite
  bool quick = false;
  std::uint64_t seed = 1;
  std::string out;  ///< empty: results/<UTC>-<workload>-<id>
  bool rank_logs = false;
  std::string trace;            ///< a file for some steps of all ranks; empty: none
  bool with_baselines = false;  ///< also run each class of a mixed cluster alone
  ModelConfig model;
  DataConfig data;
  ScaleConfig scale;
  BatchConfig batch;
  PlanConfig plan;
  ClusterConfig cluster;
  PaceConfig pace;
  OptimizerConfig optimizer;
  MeasureConfig measure;
  AutomlConfig automl;
  CommConfig comm;
  CheckpointConfig checkpoint;
  std::optional<ParentRun> parent;
};

/// The configuration that `--quick` starts from: every workload answers within seconds, and no
/// result of it can be ranked.
RunConfig quick_config();
/// Nothing where no precision ends the measurement.
std::optional<PrecisionGoal> precision_goal(const MeasureConfig& config);
/// The configuration that `config` was made from: quick_config() or the defaults.
RunConfig base_of(const RunConfig& config);

/// One change to the tree: dotted path and value text ("scale.ranks", "4").
struct Setting {
  std::string path, value;
  std::string flag = {};  ///< as the user typed it ("--ranks"); empty: --set
};

/// "path=value" of --set as one more setting; adds a problem when it is none.
void add_set(const std::string& text, std::vector<Setting>& settings, ProblemList& problems);

/// Names a setting for a message: "--ranks 4" where the user typed a flag, else "scale.ranks =
/// '4'".
std::string shown(const Setting& setting);
/// Shows the value of `path` as the user gave it: the last of `settings` counts.
std::string shown_value(const std::vector<Setting>& settings, const std::string& path,
                        const std::string& value);

/// Adds a problem unless `ranks` ranks can have these degrees.
void check_degrees(const PlanConfig& plan, int ranks, ProblemList& problems);

/// Adds every value out of range, at odds with another or without meaning for the workload.
/// `settings` tell which flags the user typed.
void validate(const RunConfig& config, const std::vector<Setting>& settings, ProblemList& problems);
/// `comm.*` alone.
void validate(const CommConfig& config, const std::vector<Setting>& settings,
              ProblemList& problems);

}  // namespace heteroperf
