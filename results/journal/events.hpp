#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "metrics/base/field_list.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/ops.hpp"

namespace heteroperf {

/// The events of a run, one plain struct per kind of journal line. Everything that record.json
/// says is computed from these, so what is not here cannot be reported.
///
/// All times are nanoseconds on rank 0's monotonic clock: whoever reports a step of another process
/// or host translates its clock first. A group is a set of ranks that trains one model together.
///
/// An event lists its fields without its rank, since every line has that in front of them. A field
/// that older journals lack is a std::optional, a text or a list: these may be absent, and anything
/// else must be there. Enumerations are written by their `value_names`, which stay as they are too.

/// JSON text of one object or array, embedded in the line as it is (key order kept).
struct JsonText {
  std::string text;
  friend bool operator==(const JsonText&, const JsonText&) = default;
};

/// A suite as it was planned before its first workload began.
struct SuitePlan {
  std::string run_id, created_utc;
  std::vector<std::string> workloads;  ///< in their order, each once; also their folders' names
  friend bool operator==(const SuitePlan&, const SuitePlan&) = default;
  HETEROPERF_FIELDS(run_id, created_utc, workloads);
};

/// Swept keys and their values at one point, {"scale.ranks", "2"}, in the order of the axes.
using SweepPoint = std::vector<std::pair<std::string, std::string>>;

/// The place of a run in its sweep. All runs of a sweep say the same of everything up to `axes`.
struct SweepPlace {
  std::string sweep_id, created_utc;           ///< those of the sweep
  std::vector<std::string> command;            ///< words that all of its runs share
  std::vector<std::vector<std::string>> axes;  ///< keys that change together, one list per axis
  SweepPoint point;                            ///< empty where nothing is swept
  std::uint64_t number = 0;                    ///< in the order of the runs, from 1
  std::uint64_t repeat = 0;                    ///< repetition of the point, from 0
  std::uint64_t seed = 0;
  friend bool operator==(const SweepPlace&, const SweepPlace&) = default;
  HETEROPERF_FIELDS(sweep_id, created_utc, command, axes, point, number, repeat, seed);
};

/// First line of every journal.
struct StartEvent {
  std::string run_id, created_utc;  ///< "2026-01-01T10:15:00Z"
  std::vector<std::string> argv;
  std::string reproduce;  ///< the exact command line that repeats the run
  bool quick = false;     ///< a quick run can never be ranked
  std::string program_version, git_commit, build_type, binary_sha256;
  std::string parent;                        ///< run_id this one continues; may be empty
  std::optional<std::uint64_t> parent_step;  ///< steps done in the checkpoint it goes on from
  /// The run moves by turns with another program. Its times leave out what it stood still.
  std::optional<bool> lockstep = {};
  std::optional<SuitePlan> suite = {};   ///< the suite that the run is part of
  std::string suite_workload = {};       ///< which of the suite's workloads it is
  std::optional<SweepPlace> sweep = {};  ///< absent: no sweep started the run
  /// Measured steps between two looks at the plan, which the run may change; absent: it keeps it.
  std::optional<std::uint64_t> adapt_every = {};
  HETEROPERF_FIELDS(run_id, created_utc, argv, reproduce, quick, program_version, git_commit,
                    build_type, binary_sha256, parent, parent_step, lockstep, suite, suite_workload,
                    sweep, adapt_every);
};

/// The request holds all settings of the run, with defaults filled in.
struct ConfigEvent {
  JsonText config;  ///< the effective configuration
  HETEROPERF_FIELDS(config);
};
/// The machine: its hosts and processors, and the CPUs or the GPU that each rank is bound to.
struct SystemEvent {
  JsonText system;
  HETEROPERF_FIELDS(system);
};
/// The bytes that one step sends from a component of the model to others, by a plan.
struct PlannedBorder {
  std::string component;
  std::uint64_t planned_bytes = 0;
  std::uint64_t least_bytes = 0;  ///< no way to send can do with fewer
  friend bool operator==(const PlannedBorder&, const PlannedBorder&) = default;
  HETEROPERF_FIELDS(component, planned_bytes, least_bytes);
};
/// The plan says how the ranks divide the model, or, in a search, which groups they form.
struct PlanEvent {
  JsonText plan;
  std::string summary =
      {};  ///< "pp 2 x tp 1 x dp 1, zb-h1, 8 micro-batches of 4"; empty for a search
  std::vector<PlannedBorder> borders = {};  ///< by component; none where the model has but one
  HETEROPERF_FIELDS(plan, summary, borders);
};

/// A class of devices as the run uses it.
struct DeviceCount {
  std::string device_class;  ///< "cpu"
  std::uint32_t count = 0;
  std::uint32_t threads = 1;  ///< per device
  bool emulated = false;      ///< paced on a modelled timeline; never ranked
  friend bool operator==(const DeviceCount&, const DeviceCount&) = default;
  HETEROPERF_FIELDS_AS("class, count, emulated, threads", device_class, count, emulated, threads);
};
/// The size of the run. A run of one model has one group, whose ranks are all ranks.
struct ScaleEvent {
  std::int32_t ranks = 1, groups = 1;
  std::string transport;
  std::vector<DeviceCount> devices;
  /// Devices that the run holds, those among them that no rank computes on included.
  std::optional<std::int32_t> allocated = {};
  HETEROPERF_FIELDS(ranks, groups, transport, devices, allocated);
};

/// A classifier answers once per image; a language model predicts every token; a contrastive model
/// tells which of many texts belongs to an image, and the reverse; a vision-language model predicts
/// the tokens of an image's text.
enum class WorkloadFamily {
  classifier,
  language_model,
  contrastive_model,
  vision_language_model,
  matching_model
};
constexpr std::array<const char*, 5> value_names(WorkloadFamily) {
  return {"classifier", "language_model", "contrastive_model", "vision_language_model",
          "matching_model"};
}
/// The measure by which a result is good: the accuracy shall be high, the loss low.
enum class QualityMeasure { accuracy, loss };
constexpr std::array<const char*, 2> value_names(QualityMeasure) { return {"accuracy", "loss"}; }

/// The model in training. `graph` is given for workloads with one fixed model; a search names the
/// graph in each trial.
struct WorkloadEvent {
  std::string name, size;
  WorkloadFamily family = WorkloadFamily::classifier;
  std::string unit;  ///< the unit of throughput: "token", "image", "pair" or "sample"
  std::string precision;
  std::uint64_t units_per_sample = 1;
  std::optional<std::uint64_t> samples_per_step;  ///< over the whole group; absent: varies
  std::uint64_t parameters = 0;
  std::string graph_hash;
  JsonText graph;  ///< text empty: no fixed model
  std::string data, data_fingerprint;
  /// Data made from a seed have the fingerprint here that seed 0 would give, equal for repetitions.
  std::string data_kind = {};
  std::optional<double> loss_floor, error_floor;
  QualityMeasure quality = QualityMeasure::accuracy;
  std::optional<double> quality_target;
  JsonText config;  ///< the workload's own settings: optimizer recipe, batches, search space
  std::vector<std::pair<std::string, std::uint64_t>> seeds;
  bool counts_tokens() const { return unit == "token"; }
  /// So many of its units are one sample.
  double units_of_sample() const {
    return static_cast<double>(counts_tokens() && units_per_sample > 0 ? units_per_sample : 1);
  }
  HETEROPERF_FIELDS(name, size, family, unit, precision, units_per_sample, samples_per_step,
                    parameters, graph_hash, graph, data, data_fingerprint, data_kind, loss_floor,
                    error_floor, quality, quality_target, config, seeds);
};

/// The run, or one group of it, enters a phase; the previous one ends. `measure` begins after the
/// warm-up, `finish` after the last training step.
enum class Phase { setup, warmup, measure, evaluate, finish };
constexpr std::array<const char*, 5> value_names(Phase) {
  return {"setup", "warmup", "measure", "evaluate", "finish"};
}
struct PhaseEvent {
  Phase phase = Phase::setup;
  std::optional<std::int32_t> group;  ///< absent: the whole run
  HETEROPERF_FIELDS(phase, group);
};

/// Where the wall time of a step went, mean over the ranks of the group.
struct StepSplit {
  double compute_s = 0, communication_s = 0, bubble_s = 0, data_s = 0, other_s = 0;

  /// Calls `visit(part, part_of_other)` with each part and the same one of another split.
  void with_parts_of(const StepSplit& other, auto&& visit) {
    for (double StepSplit::*part :
         {&StepSplit::compute_s, &StepSplit::communication_s, &StepSplit::bubble_s,
          &StepSplit::data_s, &StepSplit::other_s}) {
      visit(this->*part, other.*part);
    }
  }
  /// Adds the parts of another one, each times `weight`.
  void add(const StepSplit& split, double weight = 1) {
    with_parts_of(split, [&](double& sum, double part) { sum += weight * part; });
  }
  HETEROPERF_FIELDS(compute_s, communication_s, bubble_s, data_s, other_s);
};

/// One optimizer step of one group, training only; in order per group.
struct StepEvent {
  std::int32_t group = 0;
  std::optional<std::uint64_t> trial;
  std::uint64_t n = 0;  ///< 0-based within the trial, or within the run when there are no trials
  std::int64_t t_start_ns = 0, t_end_ns = 0;
  std::uint64_t samples = 0, tokens = 0;  ///< over the whole group
  /// The images of the samples, where these have any number of them.
  std::optional<std::uint64_t> images = {};
  Ops ops_strict;
  double loss = 0, gradient_norm = 0;  ///< may be NaN or infinite
  StepSplit split;
  HETEROPERF_FIELDS(group, trial, n, t_start_ns, t_end_ns, samples, tokens, images, ops_strict,
                    loss, gradient_norm, split);
};

/// The goal of a run that ends once its throughput is known well enough (`PrecisionGoal`).
struct UntilEvent {
  double requested_fraction = 0;
  std::uint64_t fewest_steps = 0;
  double fewest_s = 0;
  std::uint32_t blocks = 0;
  double misses = 0;
  std::optional<std::uint32_t> fewest_blocks = {};  ///< absent: as many as `blocks`
  HETEROPERF_FIELDS(requested_fraction, fewest_steps, fewest_s, blocks, misses, fewest_blocks);
};

/// The throughput was looked at after the last step before this line.
struct LookEvent {
  std::int64_t t_start_ns = 0, t_end_ns = 0;  ///< the steady window then
  bool settled = true;                        ///< its steps did not become faster any more
  HETEROPERF_FIELDS(t_start_ns, t_end_ns, settled);
};

/// A trial is `running` on its first line. On its last it has trained through all rungs
/// (`completed`), was cut as one of the worse (`stopped`), had a loss that is not finite
/// (`diverged`), met an error (`failed`), or the search ended first (`truncated`).
enum class TrialStatus { running, completed, stopped, diverged, failed, truncated };
constexpr std::array<const char*, 6> value_names(TrialStatus) {
  return {"running", "completed", "stopped", "diverged", "failed", "truncated"};
}

/// A trial starts (`running`) or reaches an outcome; each once.
struct TrialEvent {
  std::uint64_t id = 0;
  std::optional<std::uint64_t> parent;
  std::int32_t group = 0;
  std::string morph;  ///< the change that made the graph from the parent's
  std::string graph_hash;
  /// Always given by the caller; the writer keeps it on the first line that names this hash.
  JsonText graph;
  JsonText hyper_parameters;
  std::uint32_t rung = 0;
  std::uint64_t steps = 0;  ///< so far
  Ops ops;                  ///< strict, training, so far
  std::optional<double> quality, loss;
  TrialStatus state = TrialStatus::running;
  std::string reason;
  std::int64_t t_start_ns = 0;
  std::optional<std::int64_t> t_end_ns;  ///< absent while it runs
  HETEROPERF_FIELDS(id, parent, group, morph, graph_hash, graph, hyper_parameters, rung, steps, ops,
                    quality, loss, state, reason, t_start_ns, t_end_ns);
};

/// Loss and accuracy on held-out samples. Its operations are never part of OPS.
///
/// The final one is made after the last training step, of the model that a training ended with or
/// of the best one that a search found: quality target and regulated score go by it.
struct EvalEvent {
  std::int32_t group = 0;
  std::optional<std::uint64_t> trial;
  std::uint64_t samples = 0;
  std::optional<std::uint64_t> images = {};  ///< as of steps
  double loss = 0, accuracy = 0;
  Ops ops_strict;
  std::int64_t t_start_ns = 0, t_end_ns = 0;
  std::optional<bool> is_final = {};  ///< "final" in the journal
  HETEROPERF_FIELDS_AS(
      "group, trial, samples, images, loss, accuracy, ops_strict, t_start_ns, t_end_ns, final",
      group, trial, samples, images, loss, accuracy, ops_strict, t_start_ns, t_end_ns, is_final);
};

/// One observed step as seen by one rank's dispatcher.
struct ObservedEvent {
  std::int32_t rank = 0, group = 0;
  std::optional<std::uint64_t> trial;
  std::uint64_t n = 0;              ///< number of the StepEvent that was observed
  Ops executed, strict, recompute;  ///< this rank's; `strict` from the graph and its samples
  std::uint64_t calls = 0;
  std::vector<std::string> unknown;  ///< tensor operators outside the fixed list
  HETEROPERF_FIELDS(group, trial, n, executed, strict, recompute, calls, unknown);
};

/// A rank tells at its end the most memory that it held at once.
struct MemoryEvent {
  std::int32_t rank = 0;
  std::uint64_t peak_bytes = 0;
  HETEROPERF_FIELDS(peak_bytes);
};

/// Place of a rank in the plan of a fixed model, and what the plan says that it holds.
struct RankPlanEvent {
  std::int32_t rank = 0;
  std::int32_t position = 0;         ///< in the pipeline
  std::vector<std::int32_t> stages;  ///< in the order of the schedule's segments
  std::int32_t tensor_index = 0, tensor_degree = 1;
  std::string device_class;
  std::uint64_t weights_bytes = 0, gradients_bytes = 0, optimizer_bytes = 0, activations_bytes = 0,
                buffers_bytes = 0;
  std::optional<std::uint64_t> limit_bytes;  ///< memory of its device class
  std::optional<double> busy_s;              ///< predicted computing of one step, modelled
  /// All that the rank holds at its fullest moment.
  std::uint64_t total_bytes() const {
    return weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes + buffers_bytes;
  }
  HETEROPERF_FIELDS(position, stages, tensor_index, tensor_degree, device_class, weights_bytes,
                    gradients_bytes, optimizer_bytes, activations_bytes, buffers_bytes, limit_bytes,
                    busy_s);
};

/// The prediction of the simulator for the plan, on the modelled time of emulated devices.
struct PredictionEvent {
  double step_time_s = 0;
  double samples_per_s = 0;
  double bubble_rate = 0;           ///< 1 − Σ busy / (ranks · step_time_s)
  double pipeline_bubble_rate = 0;  ///< bubble of the schedule alone, over its makespan
  HETEROPERF_FIELDS(step_time_s, samples_per_s, bubble_rate, pipeline_bubble_rate);
};

/// A rank's work for one component of the model, over its steps of the measured phase.
struct ComponentTime {
  std::string component;
  /// In its passes. Absent where a stage has several components and the host does not compute.
  std::optional<double> compute_s;
  Ops strict, recompute;
  std::uint64_t border_bytes = 0;  ///< sent to other components
  friend bool operator==(const ComponentTime&, const ComponentTime&) = default;
  HETEROPERF_FIELDS(component, compute_s, strict, recompute, border_bytes);
};
/// Where the wall time of one rank went, over its steps of the measured phase.
struct RankTimeEvent {
  std::int32_t rank = 0, group = 0;
  std::uint64_t first_step = 0, steps = 0;
  double wall_s = 0;  ///< first start to last end; what lies between steps is `other_s`
  StepSplit split;    ///< sums
  Ops strict, recompute;
  std::vector<ComponentTime> components = {};  ///< none where the model has but one
  HETEROPERF_FIELDS(group, first_step, steps, wall_s, split, strict, recompute, components);
};

/// The computing time of one rank in each step of the measured phase.
struct RankStepsEvent {
  std::int32_t rank = 0, group = 0;
  std::uint64_t first_step = 0, steps = 0;
  std::uint64_t steps_per_value = 1;     ///< a value is the mean of so many; the last of fewer
  std::vector<std::int64_t> compute_ns;  ///< [step]
  HETEROPERF_FIELDS(group, first_step, steps, steps_per_value, compute_ns);
};

/// The lateness of an emulated rank against its modelled timeline, since the start.
struct PacingEvent {
  std::int32_t rank = 0;
  double dilation = 1;  ///< real seconds per modelled second
  std::uint64_t operations = 0, late = 0;
  double worst_lateness_s = 0;
  HETEROPERF_FIELDS(dilation, operations, late, worst_lateness_s);
};

/// The device of a rank that does not compute as its host's best would.
struct DeviceEvent {
  std::int32_t rank = 0;
  std::string device;                   ///< "cpu:avx2"
  std::string kernels;                  ///< "avx2", "exact", or "fastest" of an emulated chip
  std::optional<bool> emulated = {};    ///< another chip's numerics; never ranked
  std::string products = {};            ///< the format of their operands
  std::uint64_t sum_order = 0;          ///< above 0: terms change places by it
  std::vector<std::string> lacks = {};  ///< patterns of operators
  HETEROPERF_FIELDS(device, kernels, emulated, products, sum_order, lacks);
};
/// An operator that a rank's device lacks, and what the host's reference took in its place.
struct SubstitutionEvent {
  std::int32_t rank = 0;
  std::string name;  ///< "layer_norm"
  std::uint64_t calls = 0, bytes = 0;
  double seconds = 0;
  double steps_s = 0;  ///< all of the rank's steps took so long
  HETEROPERF_FIELDS(name, calls, bytes, seconds, steps_s);
};

/// A class of a mixed cluster alone: what its own best plan was predicted to do, and did where it
/// ran. Throughput in samples, on modelled time where the devices are emulated.
struct BaselineEvent {
  std::string device_class;
  std::uint32_t count = 0;
  std::string plan;  ///< "pp 2 x tp 1 x dp 1, 1f1b, 8 micro-batches of 4"
  std::optional<double> planned_samples_per_s, samples_per_s;
  /// Mean over the common steps of |loss_mix − loss_alone| / |loss_alone|.
  std::optional<double> loss_difference = {};
  std::string folder, record_sha256;  ///< its own run's, below this one's folder
  std::string reason;                 ///< why a number is missing
  HETEROPERF_FIELDS(device_class, count, plan, planned_samples_per_s, samples_per_s,
                    loss_difference, folder, record_sha256, reason);
};

/// Fingerprint of a rank's parameters; equal on all ranks of a group that hold the same share at
/// the same step.
struct ChecksumEvent {
  std::int32_t rank = 0, group = 0;
  std::optional<std::uint64_t> trial;
  std::uint64_t n = 0;  ///< steps done
  std::string fingerprint;
  std::string share = {};  ///< "stages 0,2; tensor 1 of 2"; empty: the whole model
  HETEROPERF_FIELDS(group, trial, n, share, fingerprint);
};

/// Wall time the run has spent on counting, clocks and journal, on its busiest rank; a later line
/// replaces an earlier one.
struct OverheadEvent {
  double measurement_s = 0;
  HETEROPERF_FIELDS(measurement_s);
};

/// Other load on the logical CPUs that the ranks of one host may use, from the first step
/// to the end of the last evaluation. One line per host, from the first rank on it.
struct HostLoadEvent {
  double seconds = 0;
  std::uint64_t cpus = 0;
  double other_cpus = 0;  ///< busy with other processes, or taken by a hypervisor; mean
  std::optional<std::uint64_t> thermal_events;
  std::optional<double> thermal_throttled_s;    ///< summed over the CPUs
  std::optional<double> quota_throttled_s;      ///< by the control group's limit, summed
  std::string host = {};                        ///< empty in journals of one unnamed host
  std::optional<std::int32_t> first_rank = {};  ///< first on the host
  /// The kernel's mean over a minute (proc_loadavg(5)), the run's own processes included.
  std::optional<double> load_before = {}, load_after = {};
  HETEROPERF_FIELDS(seconds, cpus, other_cpus, thermal_events, thermal_throttled_s,
                    quota_throttled_s, host, first_rank, load_before, load_after);
};

/// For how long a rank's GPU was held below its clocks from the first step to the last evaluation,
/// as its driver counts it; ranks that share a GPU tell the same.
struct GpuSlowdownEvent {
  std::string host;
  std::string gpu;  ///< PCI bus id
  std::int32_t rank = 0;
  double seconds = 0;
  std::optional<double> thermal_s, power_s;  ///< slowed by heat, by its power limit
  HETEROPERF_FIELDS(host, gpu, seconds, thermal_s, power_s);
};

/// `rule` names the ruleset's rule this bears on; may be empty.
struct WarningEvent {
  std::string text, rule;
  HETEROPERF_FIELDS(text, rule);
};

/// The rate that all ranks together reach with the fastest product of each, over one interval.
/// Measured before the first step and again after the last; see measured_peak().
struct PeakEvent {
  double ops_per_second = 0;
  std::string precision, source = "measured";
  std::optional<double> memory_bytes_per_second = {};  ///< reads and writes of a triad
  std::string memory_reason = {};                      ///< why that is not told
  std::vector<std::string> products = {};              ///< repeated ones, "aten::mm 512x512x512"
  std::vector<std::string> tried = {};                 ///< ways to multiply that work on rank 0
  std::optional<double> mm_ops_per_second = {};  ///< best calls of aten::mm, added over the ranks
  /// While it was measured, at most: the share of a host's CPUs that others had, or of the time
  /// that a rank had no CPU.
  std::optional<double> other_load = {};
  HETEROPERF_FIELDS(ops_per_second, precision, source, memory_bytes_per_second, memory_reason,
                    products, tried, mm_ops_per_second, other_load);
};

/// The seconds of a way's fastest call, in the mean over the ranks.
struct WayTime {
  std::string way;
  double seconds = 0;
  friend bool operator==(const WayTime&, const WayTime&) = default;
  HETEROPERF_FIELDS(way, seconds);
};
/// A product of matrices or a pass of a convolution that was timed before the first step, by the
/// ways that every rank has. Large ones are timed by smaller ones of their kind.
struct MeasuredProduct {
  /// "2048x256x768nt": rows, inner extent, columns; n or t for either operand. suite/README.md
  /// says how convolutions are written.
  std::string shape;
  std::string way;  ///< the one that is taken
  std::vector<WayTime> ways = {};
  /// 0: no such way was timed.
  double seconds_of(const std::string& name) const;
  friend bool operator==(const MeasuredProduct&, const MeasuredProduct&) = default;
  HETEROPERF_FIELDS(shape, way, ways);
};
/// True for the letters of a choice: "mkl:64x64x64nn/own:2048x256x768nt".
bool is_product_choice(const std::string& text);
/// The ways in which products of float32 on CPUs are made. What a configuration left open was
/// measured, in this run or in an earlier one on the same machine.
struct ProductsEvent {
  std::string choice;  ///< as the key `engine.products` has it
  std::vector<MeasuredProduct> measured = {};
  HETEROPERF_FIELDS(choice, measured);
};

/// The cost of the search's master, once no group asks any more.
struct SearchEvent {
  std::uint64_t proposals = 0;
  std::uint64_t duplicates = 0;  ///< architectures drawn again and rejected
  std::uint64_t answers = 0;     ///< to requests and reports
  std::uint64_t groups_lost = 0;
  double proposal_p50_s = 0, proposal_p99_s = 0;  ///< making one proposal
  double idle_s = 0;  ///< groups' waiting at the master, arrival to answer, summed
  HETEROPERF_FIELDS(proposals, duplicates, answers, groups_lost, proposal_p50_s, proposal_p99_s,
                    idle_s);
};

/// A checkpoint is whole and on disk.
struct CheckpointEvent {
  std::uint64_t n = 0;      ///< steps done; its folder is checkpoints/step-<n>
  std::uint64_t bytes = 0;  ///< in all its files
  double seconds = 0;       ///< in which the ranks did not train, on rank 0
  HETEROPERF_FIELDS(n, bytes, seconds);
};

/// The end of a look at the plan of a training: the devices compute as planned; they do not,
/// but no other plan gains enough; a new plan is in force from the next step on.
enum class AdaptDecision { as_planned, no_gain, new_plan };
constexpr std::array<const char*, 3> value_names(AdaptDecision) {
  return {"as_planned", "no_gain", "new_plan"};
}
/// Seconds of a step in which a rank computes, modelled where emulated: as planned with all that is
/// known, and the median of the steps since the look before.
struct RankComputing {
  std::int32_t rank = 0;
  double planned_s = 0, measured_s = 0;
  friend bool operator==(const RankComputing&, const RankComputing&) = default;
  HETEROPERF_FIELDS(rank, planned_s, measured_s);
};
/// The same in the mean over the ranks of a device class, without the sums of tensor-parallel
/// ranks.
struct ClassComputing {
  std::string device_class;
  std::int32_t ranks = 0;
  double planned_s = 0, measured_s = 0;
  friend bool operator==(const ClassComputing&, const ClassComputing&) = default;
  HETEROPERF_FIELDS_AS("class, ranks, planned_s, measured_s", device_class, ranks, planned_s,
                       measured_s);
};
/// A training that adapts has looked at its plan between two steps. All seconds of steps are
/// modelled ones where devices are emulated.
struct AdaptEvent {
  std::uint64_t n = 0;  ///< steps done
  AdaptDecision decision = AdaptDecision::as_planned;
  double threshold = 0;  ///< gain that a new plan must exceed
  double planned_step_s = 0,
         measured_step_s = 0;  ///< by the plan in force; median since the look before
  /// No plan can gain more than this by what the classes' computing changed: (b / a) − 1, a and b
  /// the least and the largest of 1 and measured / planned over the classes.
  double deviation = 0;
  std::vector<ClassComputing> classes;
  std::vector<RankComputing> ranks;
  std::optional<double> search_s;           ///< the ranks waited so long; absent: none was searched
  std::optional<std::uint64_t> candidates;  ///< that the search scored
  std::optional<double> kept_step_s;  ///< predicted with what was learned, by the plan in force
  std::optional<double> new_step_s;   ///< the same, by the best plan that was found
  std::optional<double> gain;         ///< kept_step_s / new_step_s − 1
  std::string reason;                 ///< why there is nothing to compare with
  JsonText plan;                      ///< the new one
  std::string summary;                ///< the new plan in a line
  std::vector<PlannedBorder> borders = {};   ///< as the `plan` line has them, of the new plan
  std::optional<double> move_s;              ///< the ranks did not train so long, search apart
  std::optional<std::uint64_t> moved_bytes;  ///< between ranks, over all of them
  HETEROPERF_FIELDS(n, decision, threshold, planned_step_s, measured_step_s, deviation, classes,
                    ranks, search_s, candidates, kept_step_s, new_step_s, gain, reason, plan,
                    summary, borders, move_s, moved_bytes);
};

/// The outcome of a run: it did what was asked for, it was interrupted, or it met an error.
enum class RunStatus { complete, partial, failed };
constexpr std::array<const char*, 3> value_names(RunStatus) {
  return {"complete", "partial", "failed"};
}
/// This is the last line of every journal that ended in order.
struct StopEvent {
  RunStatus status = RunStatus::complete;
  std::string reason;
  std::int32_t exit_code = 0;
  HETEROPERF_FIELDS(status, reason, exit_code);
};

/// Every kind of journal line. The index of a kind is its place in the table of names
/// (events_json.cpp).
using Event =
    std::variant<StartEvent, ConfigEvent, SystemEvent, PlanEvent, ScaleEvent, WorkloadEvent,
                 PhaseEvent, StepEvent, UntilEvent, LookEvent, TrialEvent, EvalEvent, ObservedEvent,
                 MemoryEvent, ChecksumEvent, RankPlanEvent, PredictionEvent, RankTimeEvent,
                 RankStepsEvent, PacingEvent, BaselineEvent, OverheadEvent, HostLoadEvent,
                 GpuSlowdownEvent, WarningEvent, PeakEvent, ProductsEvent, SearchEvent,
                 CheckpointEvent, AdaptEvent, DeviceEvent, SubstitutionEvent, StopEvent>;

/// "start", "config", … as in the journal.
const char* kind_name(const Event& event);

}  // namespace heteroperf
