#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/cluster/rank_device.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/products.hpp"
#include "runners/plan/plan.hpp"
#include "suite/config/training_identity.hpp"
#include "suite/program/catalog.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

struct PrecisionGoal;

/// `model.*`: what is trained.
struct ModelConfig {
  std::string size = "auto";      ///< llm: a ladder name, or auto: the scaling rule
  std::string name = "resnet18";  ///< image: a name of `list models`
  Precision precision = Precision::fp32;
  std::int64_t sequence_length = 0;  ///< tokens; 0: the size's own
  std::int64_t images = 0;           ///< most of a sample; 0: the size's own
  std::string freeze;                ///< components, with commas between
};

/// `data.*`
struct DataConfig {
  std::string source =
      "generated";  ///< generated | idx:DIR | cifar10:DIR | pairs:DIR | text:FILE | tokens:FILE
};

/// Where ranks compute, by the names of devices: one for all ranks, or one per rank.
struct DeviceList {
  std::vector<std::string> names{"cpu"};
  friend bool operator==(const DeviceList&, const DeviceList&) = default;
};
/// As `scale.device` has them: "cpu", or by rank "cuda,cpu".
std::string to_string(const DeviceList& devices);

/// Gives ranks cores where ranks times threads fit them, or never.
enum class CoreBinding { automatic, none };
constexpr std::array<const char*, 2> value_names(CoreBinding) { return {"auto", "none"}; }

/// `scale.*`: who works.
struct ScaleConfig {
  int ranks = 0;             ///< 0: one per usable core, or the launcher's world
  int threads_per_rank = 0;  ///< 0: usable cores / ranks
  Transport transport = Transport::threads;
  DeviceList device;
  CoreBinding bind = CoreBinding::automatic;

  bool uses_gpus() const;
};

/// `batch.*`; 0: the workload's own.
struct BatchConfig {
  std::int64_t micro_batch = 0;    ///< samples per replica and micro-batch
  std::int64_t micro_batches = 0;  ///< per step; own: the more, the fewer replicas the ranks make
};

/// The value of `plan.file` with which the planner makes the plan.
inline constexpr const char* planned_plan = "auto";
/// `plan.*`: who computes which piece of a fixed model, in which order.
struct PlanConfig {
  int pipeline = 1;               ///< positions of the pipeline
  int tensor = 1;                 ///< ranks that share every layer
  int context = 1;                ///< ranks that share every sequence
  int data = 0;                   ///< replicas; 0: what is left of the ranks
  int chunks = 0;                 ///< stages per position; 0: the schedule's own
  std::string schedule = "1f1b";  ///< a name of `list schedules`
  Recomputation recompute = Recomputation::none;
  int zero_stage = 0;              ///< 1: optimizer states are spread over the replicas
  bool sequence_parallel = false;  ///< norms and sums of tensor-parallel ranks by rows
  std::string layout;              ///< every component's degrees, in place of these; see Layouts
  std::string file;                ///< a plan, in place of all the others and of `batch.*`

  bool is_searched() const { return file == planned_plan; }
  /// Ranks that hold the model together and share its samples.
  std::int64_t ranks_of_copy() const { return std::int64_t{pipeline} * tensor * context; }
};

/// `cluster.*`
struct ClusterConfig {
  std::string file;  ///< or the name of a shipped description; empty: this machine
};

/// A class of emulated devices becomes slower in mid-run. Written "CLASS:STEP:FACTOR".
struct Slowdown {
  std::string device_class;     ///< empty: none does
  std::uint64_t from_step = 0;  ///< number of the first slower step
  double factor = 1;            ///< times as long as its description says
  friend bool operator==(const Slowdown&, const Slowdown&) = default;
};
/// Empty for none.
std::string to_string(const Slowdown& slowdown);

/// `pace.*`: emulated devices.
struct PaceConfig {
  double dilation = 0;  ///< real seconds per modelled one; 0: measured in the first step
  Slowdown slow;
};

/// `adapt.*`: a training that changes its plan where devices are not as planned.
struct AdaptConfig {
  std::uint64_t every_steps = 0;   ///< measured steps between two looks at the plan; 0: none
  double replan_threshold = 0.05;  ///< gain in throughput from which a new plan is taken
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

/// The value of `engine.products` with which a run measures the ways and chooses.
inline constexpr const char* automatic_products = "auto";
/// `engine.*`: how the numbers of a training are computed.
struct EngineConfig {
  /// A text of ProductChoices; auto: measured before the first step.
  std::string products = automatic_products;
  std::string fallback = "warn";  ///< a text of FallbackRules
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
  AdaptConfig adapt;
  OptimizerRequest optimizer;
  MeasureConfig measure;
  AutomlConfig automl;
  EngineConfig engine;
  CommConfig comm;
  CheckpointConfig checkpoint;
  std::optional<ParentRun> parent;
};

/// The values that a key may have, both ends included; every number where nothing is said.
struct KeyRange {
  static constexpr double unlimited = std::numeric_limits<double>::max();

  double low = -unlimited, high = unlimited;
  bool limits() const { return low > -unlimited; }
};
/// A key's row says this of it beside its path and its meaning.
struct KeyTraits {
  std::string_view flag = {};        ///< an option of `run`: "--ranks"
  std::string_view comm_flag = {};   ///< an option of `comm`
  std::string_view value_name = {};  ///< help pages write it for a text: FILE; else NAME
  std::string_view open = {};        ///< stands for the choice where nothing, or 0, is chosen
  std::string_view read_by = {};     ///< the only workloads that read the key; empty: all do
  KeyRange range = {};
  bool joins = false;  ///< the flag may be given several times; its texts stand one after another
  std::vector<std::string> (*choices)() = nullptr;  ///< the names that a text may have
};
/// One key of the tree, as parsing, checks, flags, help and README know it.
struct KeyInfo : KeyTraits {
  const char *path, *help;
};
std::vector<std::string> schedule_names();

/// Calls visit(member, KeyInfo) for every key, in the order of documents. A new key is a member of
/// one of the structs above and a row here, and nothing else: reading, writing, checks, flags and
/// the help walk this list.
template <class Config, class Visitor>
void visit_keys(Config& c, Visitor&& visit) {
  const auto row = [&](auto& member, const char* path, const char* help, KeyTraits traits = {}) {
    visit(member, KeyInfo{traits, path, help});
  };
// A key's path is the way to its member.
#define KEY(member, ...) row(c.member, #member, __VA_ARGS__)
  // Limits lie far beyond any machine: they catch typing errors and overflows.
  constexpr double many = 1e9, large = 1e6, longest_s = 30 * 86400.0;
  constexpr KeyRange at_least_0{0, KeyRange::unlimited},
      above_0{std::numeric_limits<double>::min(), KeyRange::unlimited};
  constexpr const char *workload_has = "the workload's",
                       *fixed = "image llm two-tower vlm co-attention", *search = "automl-image";
  KEY(workload, "what is run: a name of `list workloads`",
      {.open = "those of a suite", .choices = workload_names});
  KEY(quick, "set by --quick alone");
  KEY(seed, "of weights, order of samples, dropout and search", {.flag = "--seed"});
  KEY(out, "run folder, new or empty",
      {.flag = "--out", .value_name = "DIR", .open = "results/<UTC>-<workload>-<id>"});
  KEY(rank_logs,
      "a log of every rank in the run folder, rank-0.log and on: phases, progress, warnings, "
      "errors",
      {.flag = "--rank-logs"});
  KEY(trace, "write where the time of 3 steps went on every rank, for Perfetto",
      {.flag = "--trace", .value_name = "FILE", .open = "none", .read_by = fixed});
  KEY(with_baselines, "also run each class of a mixed --cluster alone, and compare",
      {.flag = "--with-baselines", .read_by = fixed});
  KEY(model.size,
      "of llm, two-tower, vlm and co-attention a size of `list models`, of automl-image w16 to "
      "w512; auto: fits "
      "the machine",
      {.flag = "--size", .read_by = "automl-image llm two-tower vlm co-attention"});
  KEY(model.name, "a classifier of `list models`", {.flag = "--model", .read_by = "image"});
  KEY(model.precision, "number format of the model; fp64 is never ranked", {.flag = "--precision"});
  KEY(model.sequence_length, "tokens of a sample",
      {.open = "the size's", .read_by = "llm two-tower vlm co-attention", .range = {0, large}});
  KEY(model.images, "images of a sample: from none to so many",
      {.flag = "--images",
       .value_name = "N",
       .open = "the size's",
       .read_by = "vlm",
       .range = {0, 4096}});
  KEY(model.freeze, "components whose weights stay as they are, with commas between",
      {.flag = "--freeze", .value_name = "COMPONENTS", .open = "none", .read_by = fixed});
  KEY(data.source, "generated[:PIXELS], idx:DIR, cifar10:DIR, pairs:DIR, text:FILE or tokens:FILE",
      {.flag = "--data", .value_name = "SOURCE"});
  KEY(scale.ranks, "ranks to start",
      {.flag = "--ranks", .open = "one per usable core", .range = {0, large}});
  KEY(scale.threads_per_rank, "threads inside a rank",
      {.flag = "--threads-per-rank", .open = "cores / ranks", .range = {0, 4096}});
  KEY(scale.transport,
      "what joins the ranks; threads is one process, the others start mpirun themselves",
      {.flag = "--transport"});
  KEY(scale.device,
      "of all ranks, or a list by rank as cuda,cpu; a NAME is a device file, or a shipped chip of "
      "`list devices`",
      {.flag = "--device"});
  KEY(scale.bind, "of ranks to cores; none leaves their placement to the system");
  KEY(batch.micro_batch, "samples per replica and micro-batch",
      {.flag = "--micro-batch", .open = workload_has, .range = {0, large}});
  KEY(batch.micro_batches, "micro-batches per step",
      {.flag = "--micro-batches", .open = workload_has, .range = {0, large}});
  KEY(plan.pipeline, "positions of the pipeline",
      {.flag = "--pp", .read_by = fixed, .range = {1, large}});
  KEY(plan.tensor, "ranks that share every layer (tensor parallelism)",
      {.flag = "--tp", .read_by = fixed, .range = {1, large}});
  KEY(plan.context, "ranks that share every sequence (context parallelism)",
      {.flag = "--cp", .read_by = fixed, .range = {1, large}});
  KEY(plan.data, "replicas",
      {.flag = "--dp", .open = "what is left of the ranks", .read_by = fixed, .range = {0, large}});
  KEY(plan.chunks, "stages per position",
      {.flag = "--chunks", .open = "the schedule's", .read_by = fixed, .range = {0, large}});
  KEY(plan.layout,
      "degrees and ranks of one component of the model, as vision=tp2,dp2@0-3; once for each",
      {.flag = "--layout",
       .value_name = "COMPONENT=AXES[@RANKS]",
       .open = "none",
       .read_by = fixed,
       .joins = true});
  KEY(plan.schedule, "of the pipeline: a name of `list schedules`, or auto",
      {.flag = "--schedule", .read_by = fixed, .choices = schedule_names});
  KEY(plan.recompute, "which activations are computed again; selective: those of attention",
      {.read_by = fixed});
  KEY(plan.zero_stage, "1 spreads optimizer states over replicas",
      {.read_by = fixed, .range = {0, 1}});
  KEY(plan.sequence_parallel, "norms and sums of tensor-parallel ranks by rows",
      {.read_by = fixed});
  KEY(plan.file,
      "a plan in place of the other plan.* and batch.*; auto: the planner's, for the --cluster",
      {.flag = "--plan", .value_name = "FILE|auto", .open = "none", .read_by = fixed});
  KEY(cluster.file,
      "a cluster description, or the name of a shipped one; its paced classes are emulated",
      {.flag = "--cluster",
       .value_name = "FILE",
       .open = "the plan's, or this machine",
       .read_by = fixed});
  KEY(pace.dilation, "real seconds per modelled one of emulated devices",
      {.open = "measured", .read_by = fixed, .range = {0, many}});
  KEY(pace.slow, "an emulated class takes FACTOR times as long from step STEP on",
      {.value_name = "CLASS:STEP:FACTOR", .open = "none", .read_by = fixed});
  KEY(adapt.every_steps,
      "measured steps after which planned and measured times are compared; a better plan is taken "
      "in mid-run",
      {.flag = "--adapt", .open = "never", .read_by = fixed, .range = {0, many}});
  KEY(adapt.replan_threshold, "relative gain in throughput from which a new plan is taken",
      {.flag = "--replan-threshold", .read_by = fixed, .range = {0, large}});
  KEY(optimizer.name, "update rule", {.open = workload_has});
  KEY(optimizer.schedule, "course of the learning rate; constant in a training by time",
      {.open = workload_has});
  KEY(optimizer.learning_rate, "a search chooses its own",
      {.open = workload_has, .read_by = fixed, .range = above_0});
  KEY(optimizer.weight_decay, "of the weights, per step",
      {.open = workload_has, .range = at_least_0});
  KEY(optimizer.clip_norm, "largest norm of the gradient; 0: no clipping",
      {.open = workload_has, .range = at_least_0});
  KEY(optimizer.warmup_steps, "the rate grows from 0 over them",
      {.open = workload_has, .range = {0, many}});
  KEY(measure.duration_s, "length of the measured phase",
      {.flag = "--duration", .range = {0.1, longest_s}});
  KEY(measure.steps, "optimizer steps per group of ranks, instead of a duration",
      {.flag = "--steps", .open = "by duration", .range = {0, many}});
  KEY(measure.until_percent,
      "ends the phase earlier, once half of the throughput's 95 % interval is within so many "
      "percent of it",
      {.flag = "--until", .open = "none", .read_by = fixed, .range = {0.1, 50}});
  KEY(measure.until_after_s, "measured before that interval is looked at",
      {.read_by = fixed, .range = {0, longest_s}});
  KEY(measure.warmup_steps, "at least; the steady-window rule may cut more", {.range = {1, many}});
  KEY(measure.evaluation_samples,
      "of the validation split, at the end; of a classifier at least, until 100 were wrong",
      {.range = {1, many}});
  KEY(measure.peak_s, "measuring the peak of products, before a run and after it; 0: not",
      {.range = {0, 60}});
  KEY(measure.replay_steps, "of a group, after which the run ends without a result",
      {.open = "never"});
  KEY(measure.replay_moved, "of a replay: from values moved by as much as rounding may");
  KEY(automl.group_ranks, "ranks that train one trial together",
      {.read_by = search, .range = {1, large}});
  KEY(automl.first_rung_steps, "steps to the first comparison of trials",
      {.read_by = search, .range = {1, many}});
  KEY(automl.reduction, "a rung keeps one in so many", {.read_by = search, .range = {2, 100}});
  KEY(automl.rungs, "comparisons up to a trial's end", {.read_by = search, .range = {1, 20}});
  KEY(automl.evaluation_samples, "per rung; at the end at least",
      {.read_by = search, .range = {1, many}});
  KEY(automl.history, "a run folder whose trials the search starts from",
      {.value_name = "DIR", .open = "none", .read_by = search});
  KEY(engine.products,
      "who makes products, convolutions and attention of fp32 on CPUs: auto measures, or mkl, "
      "onednn, own, libtorch, or a list by shape as a record has it",
      {.value_name = "WAYS"});
  KEY(engine.fallback,
      "what happens where a device lacks an operator: deny, warn or allow that the host's "
      "reference "
      "computes it; PATTERN=deny behind a comma is for some of them",
      {.flag = "--fallback", .value_name = "RULES"});
  KEY(comm.timeout_s, "a wait fails when its peer shows no sign of life so long",
      {.comm_flag = "--timeout", .range = {1, 86400}});
  KEY(comm.heartbeat_s, "between two signs of life", {.range = {0.01, 60}});
  KEY(comm.join_timeout_s, "until all ranks of the launcher have come",
      {.comm_flag = "--join-timeout", .range = {1, 86400}});
  KEY(comm.host_path, "the fastest way inside a host that MPI may take",
      {.comm_flag = "--host-path"});
  KEY(comm.check, "ranks that disagree about an operation are found and named; slower");
  KEY(checkpoint.every_steps, "a checkpoint after every so many steps",
      {.open = "none", .read_by = fixed, .range = {0, many}});
  KEY(checkpoint.every_s, "a checkpoint when the last is so many seconds old",
      {.open = "none", .read_by = fixed, .range = {0, longest_s}});
  KEY(checkpoint.keep, "newest checkpoints that stay; 0: all",
      {.read_by = fixed, .range = {0, large}});
  KEY(checkpoint.at_end, "a checkpoint after the last step", {.read_by = fixed});
#undef KEY
}

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

/// The last of `settings` that changes `path`; null without one.
const Setting* last_of(const std::vector<Setting>& settings, const std::string& path);

/// Names a setting for a message: "--ranks 4" where the user typed a flag, else "scale.ranks =
/// '4'".
std::string shown(const Setting& setting);
/// Shows the value of `path` as the user gave it: the last of `settings` counts.
std::string shown_value(const std::vector<Setting>& settings, const std::string& path,
                        const std::string& value);

/// The parts of a text between the separators, empty ones too, so that they can be refused.
std::vector<std::string> split(const std::string& text, char separator);

/// Adds a problem unless `ranks` ranks can have these degrees.
void check_degrees(const PlanConfig& plan, int ranks, ProblemList& problems);

/// Adds every value out of range, at odds with another or without meaning for the workload.
/// `settings` tell which flags the user typed.
void validate(const RunConfig& config, const std::vector<Setting>& settings, ProblemList& problems);
/// `comm.*` alone.
void validate(const CommConfig& config, const std::vector<Setting>& settings,
              ProblemList& problems);

}  // namespace heteroperf
