#pragma once

#include "results/journal/events.hpp"

namespace heteroperf::detail {

/// The journal's fields, one list per kind, in the order in which they are written. `visit` serves
/// writer and reader alike: `v(name, member)` for each, where the name is the key in the JSON.
///
/// A list has all members but the rank, which the line has in front of them. Stored journals are
/// read by these names, so a name is never changed or given to something else. A field that older
/// journals lack is a std::optional, a text or a list: these may be absent, and anything else must
/// be there.
template <class E>
struct Fields;

/// This one and the next are objects within a `start` line.
template <>
struct Fields<SuitePlan> {
  static void visit(auto& e, auto&& v) {
    v("run_id", e.run_id);
    v("created_utc", e.created_utc);
    v("workloads", e.workloads);
  }
};

template <>
struct Fields<SweepPlace> {
  static void visit(auto& e, auto&& v) {
    v("sweep_id", e.sweep_id);
    v("created_utc", e.created_utc);
    v("command", e.command);
    v("axes", e.axes);
    v("point", e.point);
    v("number", e.number);
    v("repeat", e.repeat);
    v("seed", e.seed);
  }
};

/// `_format` and `_version` stand in front of these fields, as the writer adds them itself.
template <>
struct Fields<StartEvent> {
  static void visit(auto& e, auto&& v) {
    v("run_id", e.run_id);
    v("created_utc", e.created_utc);
    v("argv", e.argv);
    v("reproduce", e.reproduce);
    v("quick", e.quick);
    v("program_version", e.program_version);
    v("git_commit", e.git_commit);
    v("build_type", e.build_type);
    v("binary_sha256", e.binary_sha256);
    v("parent", e.parent);
    v("parent_step", e.parent_step);
    v("lockstep", e.lockstep);
    v("suite", e.suite);
    v("suite_workload", e.suite_workload);
    v("sweep", e.sweep);
  }
};

template <>
struct Fields<ConfigEvent> {
  static void visit(auto& e, auto&& v) { v("config", e.config); }
};

template <>
struct Fields<SystemEvent> {
  static void visit(auto& e, auto&& v) { v("system", e.system); }
};

template <>
struct Fields<PlanEvent> {
  static void visit(auto& e, auto&& v) {
    v("plan", e.plan);
    v("summary", e.summary);
  }
};

/// This is an entry of the list `devices` in a `scale` line.
template <>
struct Fields<DeviceCount> {
  static void visit(auto& e, auto&& v) {
    v("class", e.device_class);
    v("count", e.count);
    v("emulated", e.emulated);
    v("threads", e.threads);
  }
};

template <>
struct Fields<ScaleEvent> {
  static void visit(auto& e, auto&& v) {
    v("ranks", e.ranks);
    v("groups", e.groups);
    v("transport", e.transport);
    v("devices", e.devices);
  }
};

template <>
struct Fields<WorkloadEvent> {
  static void visit(auto& e, auto&& v) {
    v("name", e.name);
    v("size", e.size);
    v("family", e.family);
    v("unit", e.unit);
    v("precision", e.precision);
    v("units_per_sample", e.units_per_sample);
    v("samples_per_step", e.samples_per_step);
    v("parameters", e.parameters);
    v("graph_hash", e.graph_hash);
    v("graph", e.graph);
    v("data", e.data);
    v("data_fingerprint", e.data_fingerprint);
    v("data_kind", e.data_kind);
    v("loss_floor", e.loss_floor);
    v("error_floor", e.error_floor);
    v("quality", e.quality);
    v("quality_target", e.quality_target);
    v("config", e.config);
    v("seeds", e.seeds);
  }
};

template <>
struct Fields<PhaseEvent> {
  static void visit(auto& e, auto&& v) {
    v("phase", e.phase);
    v("group", e.group);
  }
};

/// This is an object within `step` and `rank_time` lines.
template <>
struct Fields<StepSplit> {
  static void visit(auto& e, auto&& v) {
    v("compute_s", e.compute_s);
    v("communication_s", e.communication_s);
    v("bubble_s", e.bubble_s);
    v("data_s", e.data_s);
    v("other_s", e.other_s);
  }
};

template <>
struct Fields<StepEvent> {
  static void visit(auto& e, auto&& v) {
    v("group", e.group);
    v("trial", e.trial);
    v("n", e.n);
    v("t_start_ns", e.t_start_ns);
    v("t_end_ns", e.t_end_ns);
    v("samples", e.samples);
    v("tokens", e.tokens);
    v("ops_strict", e.ops_strict);
    v("loss", e.loss);
    v("gradient_norm", e.gradient_norm);
    v("split", e.split);
  }
};

template <>
struct Fields<UntilEvent> {
  static void visit(auto& e, auto&& v) {
    v("requested_fraction", e.requested_fraction);
    v("fewest_steps", e.fewest_steps);
    v("fewest_s", e.fewest_s);
    v("blocks", e.blocks);
    v("misses", e.misses);
    v("fewest_blocks", e.fewest_blocks);
  }
};

template <>
struct Fields<LookEvent> {
  static void visit(auto& e, auto&& v) {
    v("t_start_ns", e.t_start_ns);
    v("t_end_ns", e.t_end_ns);
    v("settled", e.settled);
  }
};

template <>
struct Fields<TrialEvent> {
  static void visit(auto& e, auto&& v) {
    v("id", e.id);
    v("parent", e.parent);
    v("group", e.group);
    v("morph", e.morph);
    v("graph_hash", e.graph_hash);
    v("graph", e.graph);
    v("hyper_parameters", e.hyper_parameters);
    v("rung", e.rung);
    v("steps", e.steps);
    v("ops", e.ops);
    v("quality", e.quality);
    v("loss", e.loss);
    v("state", e.state);
    v("reason", e.reason);
    v("t_start_ns", e.t_start_ns);
    v("t_end_ns", e.t_end_ns);
  }
};

template <>
struct Fields<EvalEvent> {
  static void visit(auto& e, auto&& v) {
    v("group", e.group);
    v("trial", e.trial);
    v("samples", e.samples);
    v("loss", e.loss);
    v("accuracy", e.accuracy);
    v("ops_strict", e.ops_strict);
    v("t_start_ns", e.t_start_ns);
    v("t_end_ns", e.t_end_ns);
    v("final", e.is_final);
  }
};

template <>
struct Fields<ObservedEvent> {
  static void visit(auto& e, auto&& v) {
    v("group", e.group);
    v("trial", e.trial);
    v("n", e.n);
    v("executed", e.executed);
    v("strict", e.strict);
    v("recompute", e.recompute);
    v("calls", e.calls);
    v("unknown", e.unknown);
  }
};

template <>
struct Fields<MemoryEvent> {
  static void visit(auto& e, auto&& v) { v("peak_bytes", e.peak_bytes); }
};

template <>
struct Fields<ChecksumEvent> {
  static void visit(auto& e, auto&& v) {
    v("group", e.group);
    v("trial", e.trial);
    v("n", e.n);
    v("share", e.share);
    v("fingerprint", e.fingerprint);
  }
};

template <>
struct Fields<RankPlanEvent> {
  static void visit(auto& e, auto&& v) {
    v("position", e.position);
    v("stages", e.stages);
    v("tensor_index", e.tensor_index);
    v("tensor_degree", e.tensor_degree);
    v("device_class", e.device_class);
    v("weights_bytes", e.weights_bytes);
    v("gradients_bytes", e.gradients_bytes);
    v("optimizer_bytes", e.optimizer_bytes);
    v("activations_bytes", e.activations_bytes);
    v("buffers_bytes", e.buffers_bytes);
    v("limit_bytes", e.limit_bytes);
    v("busy_s", e.busy_s);
  }
};

template <>
struct Fields<PredictionEvent> {
  static void visit(auto& e, auto&& v) {
    v("step_time_s", e.step_time_s);
    v("samples_per_s", e.samples_per_s);
    v("bubble_rate", e.bubble_rate);
    v("pipeline_bubble_rate", e.pipeline_bubble_rate);
  }
};

template <>
struct Fields<RankTimeEvent> {
  static void visit(auto& e, auto&& v) {
    v("group", e.group);
    v("first_step", e.first_step);
    v("steps", e.steps);
    v("wall_s", e.wall_s);
    v("split", e.split);
    v("strict", e.strict);
    v("recompute", e.recompute);
  }
};

template <>
struct Fields<RankStepsEvent> {
  static void visit(auto& e, auto&& v) {
    v("group", e.group);
    v("first_step", e.first_step);
    v("steps", e.steps);
    v("steps_per_value", e.steps_per_value);
    v("compute_ns", e.compute_ns);
  }
};

template <>
struct Fields<PacingEvent> {
  static void visit(auto& e, auto&& v) {
    v("dilation", e.dilation);
    v("operations", e.operations);
    v("late", e.late);
    v("worst_lateness_s", e.worst_lateness_s);
  }
};

/// The key of the class is `device_class` here and `class` within `scale`.
template <>
struct Fields<BaselineEvent> {
  static void visit(auto& e, auto&& v) {
    v("device_class", e.device_class);
    v("count", e.count);
    v("plan", e.plan);
    v("planned_samples_per_s", e.planned_samples_per_s);
    v("samples_per_s", e.samples_per_s);
    v("folder", e.folder);
    v("record_sha256", e.record_sha256);
    v("reason", e.reason);
  }
};

template <>
struct Fields<OverheadEvent> {
  static void visit(auto& e, auto&& v) { v("measurement_s", e.measurement_s); }
};

template <>
struct Fields<HostLoadEvent> {
  static void visit(auto& e, auto&& v) {
    v("seconds", e.seconds);
    v("cpus", e.cpus);
    v("other_cpus", e.other_cpus);
    v("thermal_events", e.thermal_events);
    v("thermal_throttled_s", e.thermal_throttled_s);
    v("quota_throttled_s", e.quota_throttled_s);
    v("host", e.host);
    v("first_rank", e.first_rank);
    v("load_before", e.load_before);
    v("load_after", e.load_after);
  }
};

template <>
struct Fields<GpuSlowdownEvent> {
  static void visit(auto& e, auto&& v) {
    v("host", e.host);
    v("gpu", e.gpu);
    v("seconds", e.seconds);
    v("thermal_s", e.thermal_s);
    v("power_s", e.power_s);
  }
};

template <>
struct Fields<WarningEvent> {
  static void visit(auto& e, auto&& v) {
    v("text", e.text);
    v("rule", e.rule);
  }
};

template <>
struct Fields<PeakEvent> {
  static void visit(auto& e, auto&& v) {
    v("ops_per_second", e.ops_per_second);
    v("precision", e.precision);
    v("source", e.source);
    v("memory_bytes_per_second", e.memory_bytes_per_second);
    v("memory_reason", e.memory_reason);
    v("products", e.products);
    v("tried", e.tried);
    v("mm_ops_per_second", e.mm_ops_per_second);
    v("other_load", e.other_load);
  }
};

template <>
struct Fields<SearchEvent> {
  static void visit(auto& e, auto&& v) {
    v("proposals", e.proposals);
    v("duplicates", e.duplicates);
    v("answers", e.answers);
    v("groups_lost", e.groups_lost);
    v("proposal_p50_s", e.proposal_p50_s);
    v("proposal_p99_s", e.proposal_p99_s);
    v("idle_s", e.idle_s);
  }
};

template <>
struct Fields<CheckpointEvent> {
  static void visit(auto& e, auto&& v) {
    v("n", e.n);
    v("bytes", e.bytes);
    v("seconds", e.seconds);
  }
};

template <>
struct Fields<StopEvent> {
  static void visit(auto& e, auto&& v) {
    v("status", e.status);
    v("reason", e.reason);
    v("exit_code", e.exit_code);
  }
};

}  // namespace heteroperf::detail
