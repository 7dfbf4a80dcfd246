// Writes record.json. A record is a pure function of the journal: summarize() computes its numbers,
// the ruleset judges them, and this file gives each its key, one function per section, in the order
// in which they stand. `verify` makes the record again and compares bytes, so nothing here may
// depend on the time, the machine or a locale. A value that does not exist is left out, never null
// or NaN; operation counts are decimal strings, since they exceed 2^53. An invalid run gets no
// scores, so that none can be quoted.

#include <algorithm>

#include "metrics/base/strict_json.hpp"
#include "results/record/line_rules.hpp"
#include "results/record/plan_sections_json.hpp"
#include "results/record/record.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

/// A section without any key is left out.
void put_section(Json& json, const char* key, Json section) {
  if (!section.empty()) json[key] = std::move(section);
}

/// Returns the document of the last line of a kind; an empty text where the journal has none.
template <class E>
JsonText text_of(const Journal& journal, JsonText E::*member) {
  const E* event = journal.last<E>();
  return event == nullptr ? JsonText() : event->*member;
}

/// Identity of what is trained: equal for runs that may be compared. Repetitions whose seeds differ
/// may be, so data from a seed count by their kind; their target is left out, as it follows from a
/// floor that the seed moves.
std::string workload_hash(const WorkloadEvent& workload) {
  const bool of_seed = !workload.data_kind.empty();
  Json key{{"name", workload.name},
           {"size", workload.size},
           {"unit", workload.unit},
           {"precision", workload.precision},
           {"graph_hash", workload.graph_hash},
           {"data_fingerprint", of_seed ? workload.data_kind : workload.data_fingerprint},
           {"config", parsed(workload.config)}};
  put(key, "samples_per_step", workload.samples_per_step);
  if (!of_seed) put(key, "quality_target", workload.quality_target);
  return sha256_hex(json_compact(key.dump(), "the workload's key"));
}

/// The facts of what was trained. Its hash is what other records are compared by.
Json workload_section(const WorkloadEvent& workload) {
  Json json;
  put(json, "name", workload.name);
  put(json, "size", workload.size);
  json["hash"] = workload_hash(workload);
  put(json, "graph_hash", workload.graph_hash);
  json["family"] = to_string(workload.family);
  if (workload.parameters > 0) json["parameters"] = std::to_string(workload.parameters);
  put(json, "precision", workload.precision);
  json["units_per_sample"] = workload.units_per_sample;
  put(json, "samples_per_step", workload.samples_per_step);
  put(json, "data", workload.data);
  put(json, "data_fingerprint", workload.data_fingerprint);
  put(json, "data_kind", workload.data_kind);
  put(json, "loss_floor", workload.loss_floor);
  put(json, "error_floor", workload.error_floor);
  put_section(json, "config", parsed(workload.config));
  return json;
}

/// `emulated` tells at once what may stand in any entry of `devices`.
Json scale_section(const ScaleEvent& scale) {
  Json devices = Json::array();
  bool emulated = false;
  for (const DeviceCount& device : scale.devices) {
    devices.push_back({{"class", device.device_class},
                       {"count", device.count},
                       {"emulated", device.emulated},
                       {"threads", device.threads}});
    emulated = emulated || device.emulated;
  }
  Json json{{"ranks", scale.ranks},
            {"groups", scale.groups},
            {"transport", scale.transport},
            {"devices", devices},
            {"emulated", emulated}};
  put(json, "allocated", scale.allocated);
  return json;
}

/// The throughput per device that computes, and per device that the run holds.
void put_per_device(Json& json, double throughput, const ScaleEvent* scale) {
  if (scale == nullptr || !scale->allocated || scale->ranks < 1 || *scale->allocated < 1) return;
  json["per_active_device"] = throughput / scale->ranks;
  json["per_allocated_device"] = throughput / *scale->allocated;
}

/// Scores must not be printed for an invalid run. An interval is absent where there were too few
/// steps; the convention, the unit or the formula stands beside each value.
void put_scores(Json& json, const Journal& journal, const RunSummary& summary) {
  if (const auto& ops = summary.ops_per_second) {
    json["ops_per_second"] = {{"value", ops->value}};
    put(json["ops_per_second"], "ci95", ops->ci95);
    json["ops_per_second"]["convention"] = "strict";
  }
  if (const auto& throughput = summary.throughput) {
    json["throughput"] = {{"value", throughput->value}};
    put(json["throughput"], "ci95", throughput->ci95);
    json["throughput"]["unit"] = journal.first<WorkloadEvent>()->unit + "/s";
    put_per_device(json["throughput"], throughput->value, journal.last<ScaleEvent>());
  }
  if (const auto& score = summary.regulated_score) {
    json["regulated_score"] = {{"value", score->value},
                               {"answers", score->answers},
                               {"wrong", score->wrong},
                               {"error_ci95", {score->error_ci95.low, score->error_ci95.high}},
                               {"formula", "-ln(error) * ops_per_second"}};
  }
}

/// A utilization says little without its peak, so the peak stands beside it.
void put_utilization(Json& json, const Journal& journal, const RunSummary& summary) {
  if (!summary.utilization) return;
  const PeakEvent peak = measured_peak(journal).value();
  Json& utilization = json["utilization"];
  utilization = {{"value", *summary.utilization},
                 {"peak_ops_per_second", peak.ops_per_second},
                 {"peak_source", peak.source}};
  if (!peak.products.empty()) utilization["peak_products"] = peak.products;
  if (!peak.tried.empty()) utilization["peak_tried"] = peak.tried;
  put(utilization, "peak_other_load", peak.other_load);
}

/// The end of a run that was to end once its throughput is known well enough: every look, and what
/// it would have taken where the goal was not reached.
Json until_section(const UntilSummary& until) {
  Json json{{"requested_fraction", until.requested_fraction},
            {"reached", until.reached()},
            {"looks", Json::array()}};
  for (const PrecisionLook& look : until.looks) {
    Json& entry = json["looks"].emplace_back(Json{{"steps", look.steps},
                                                  {"window_s", look.window.seconds()},
                                                  {"settled", look.settled},
                                                  {"coverage", look.coverage}});
    put(entry, "half_width_fraction", look.half_width_fraction);
  }
  put(json, "half_width_fraction", until.looks.back().half_width_fraction);
  put(json, "needed_s", until.needed_s);
  if (until.needed_s) json["needed_at_least"] = until.needed_at_least;
  return json;
}

/// Times and counts stand in every record, scores only in one that is not invalid.
Json metrics_section(const Journal& journal, const RunSummary& summary, const Validity& validity) {
  Json json;
  const bool scored = validity.severity != Severity::invalid;
  if (scored) put_scores(json, journal, summary);
  if (const auto& quality = summary.quality) {
    json["quality"] = {{"name", to_string(quality->measure)}, {"value", quality->value}};
    if (quality->samples > 0) json["quality"]["samples"] = quality->samples;
    json["quality"]["final"] = quality->is_final;
    put(json["quality"], "target", quality->target);
    put(json["quality"], "met", quality->met);
  }
  if (summary.until) json["until"] = until_section(*summary.until);
  if (const auto& time = summary.step_time) {
    json["step_time_s"] = {{"median", time->median_s}, {"p95", time->p95_s}};
    put(json["step_time_s"], "ci95", time->median_ci95);
  }
  if (summary.loss_fingerprint) {
    json["loss_fingerprint"] = {{"steps", fingerprint_steps}, {"value", *summary.loss_fingerprint}};
  }
  put(json, "measurement_overhead_fraction", summary.measurement_overhead_fraction);
  json["steps"] = summary.steps;
  json["warmup_steps"] = summary.warmup_steps;
  json["total_steps"] = summary.total_steps;
  if (summary.window) json["window_s"] = summary.window->seconds();
  json["measured_s"] = summary.measured_s;
  json["wall_s"] = summary.wall_s;
  if (scored) put_utilization(json, journal, summary);
  if (!summary.peak_bytes.empty()) {
    json["peak_memory_bytes"] = {
        {"max", *std::max_element(summary.peak_bytes.begin(), summary.peak_bytes.end())},
        {"per_rank", summary.peak_bytes}};
    put_planned_memory(json["peak_memory_bytes"], summary);
  }
  if (scored && summary.plan.hetero) {
    json["hetero"] = hetero_section(journal, *summary.plan.hetero);
  }
  return json;
}

/// Counts are decimal strings. A count that is not known is left out, which is no 0.
Json operations_section(const OperationTotals& totals) {
  Json json{{"strict", totals.strict.to_string()}, {"window_strict", totals.window.to_string()}};
  put(json, "aiperf", totals.aiperf);
  put(json, "padding", totals.padding);
  put(json, "executed", totals.executed);
  put(json, "recompute", totals.recompute);
  json["evaluation_strict"] = totals.evaluation.to_string();
  Json per_step;
  put(per_step, "strict", totals.per_step_strict);
  put(per_step, "executed", totals.per_step_executed);
  put_section(json, "per_step", std::move(per_step));
  return json;
}

/// The ways of products: the choice, and for each product that was measured the way and the seconds
/// of all ways that every rank has.
Json products_section(const Journal& journal) {
  const auto* products = journal.last<ProductsEvent>();
  if (products == nullptr) return {};
  Json json{{"choice", products->choice}};
  for (const MeasuredProduct& product : products->measured) {
    Json& entry =
        json["measured"].emplace_back(Json{{"shape", product.shape}, {"way", product.way}});
    Json& seconds = entry["seconds"] = Json::object();
    for (const WayTime& timed : product.ways) seconds[timed.way] = timed.seconds;
  }
  return json;
}

/// The ranks on devices that do not compute as their hosts' best would.
Json devices_section(const Journal& journal) {
  Json list = Json::array();
  for (const DeviceEvent* device : journal.all<DeviceEvent>()) {
    Json& entry = list.emplace_back(
        Json{{"rank", device->rank}, {"device", device->device}, {"kernels", device->kernels}});
    if (!device->emulated.value_or(false)) continue;
    entry.update({{"emulated", true},
                  {"products", device->products},
                  {"sum_order", device->sum_order},
                  {"lacks", device->lacks}});
  }
  return list.empty() ? Json() : list;
}

/// The work of the host's reference for devices that lack operators, rank by rank.
Json substitution_section(const Journal& journal) {
  Json list = Json::array();
  for (const SubstitutionEvent* event : journal.all<SubstitutionEvent>()) {
    list.push_back({{"rank", event->rank},
                    {"name", event->name},
                    {"calls", event->calls},
                    {"bytes", event->bytes},
                    {"seconds", event->seconds}});
  }
  if (list.empty()) return {};
  return {{"time_fraction", substituted_share(journal)}, {"operators", std::move(list)}};
}

/// The command that repeats the run, with the ways of products that it chose for itself. A choice
/// of other letters than ours is a forger's and never part of a command.
std::string reproduce_of(const Journal& journal, const StartEvent& start) {
  const auto* products = journal.last<ProductsEvent>();
  if (start.reproduce.empty() || products == nullptr || products->measured.empty()) {
    return start.reproduce;
  }
  if (!is_product_choice(products->choice)) return start.reproduce;
  return start.reproduce + " --set engine.products=" + products->choice;
}

/// The work of the search's master, and its cost to the groups.
Json master_section(const SearchEvent& master, const SearchSummary& search) {
  Json json{{"proposals", master.proposals},
            {"duplicates", master.duplicates},
            {"answers", master.answers},
            {"groups_lost", master.groups_lost},
            {"proposal_s", {{"median", master.proposal_p50_s}, {"p99", master.proposal_p99_s}}},
            {"idle_s", master.idle_s}};
  put(json, "idle_fraction", search.idle_fraction);
  return json;
}

/// Counts of trials by their last state, the master's cost, and the last line of the best trial.
Json search_section(const Journal& journal, const SearchSummary& search) {
  using enum TrialStatus;
  Json json{{"trials", search.trials}, {"unique_graphs", search.unique_graphs}};
  for (const TrialStatus state : {completed, stopped, diverged, failed, truncated}) {
    json[to_string(state)] = search.ended.contains(state) ? search.ended.at(state) : 0;
  }
  if (const auto* master = journal.last<SearchEvent>()) {
    json["master"] = master_section(*master, search);
  }
  if (const auto& trial = search.best) {
    Json& best = json["best"] = {{"id", trial->id}, {"graph_hash", trial->graph_hash}};
    put(best, "quality", trial->quality);
    put(best, "loss", trial->loss);
    best["steps"] = trial->steps;
    put_section(best, "hyper_parameters", parsed(trial->hyper_parameters));
  }
  return json;
}

/// Writes the parts of the window's seconds, then the same per rank, stage and device class.
Json time_section(const TimeShares& time, const PlanSummary& plan) {
  Json json{{"compute", time.compute_s},       {"communication_exposed", time.communication_s},
            {"bubble", time.bubble_s},         {"data", time.data_s},
            {"evaluation", time.evaluation_s}, {"other", time.other_s}};
  put_rank_times(json, plan);
  return json;
}

/// The run whose checkpoint this one goes on from.
Json parent_section(const StartEvent& start) {
  Json json;
  put(json, "run_id", start.parent);
  put(json, "step", start.parent_step);
  return json;
}

/// The section is empty for a run that saved none.
Json checkpoints_section(const Journal& journal) {
  const auto saved = journal.all<CheckpointEvent>();
  if (saved.empty()) return {};
  double seconds = 0;
  for (const CheckpointEvent* checkpoint : saved) seconds += checkpoint->seconds;
  return {{"count", saved.size()},
          {"last_step", saved.back()->n},
          {"last_bytes", saved.back()->bytes},
          {"seconds", seconds}};
}

/// An event whose section has the keys and the order of its line.
template <WithFields E>
Json event_json(const E& event) {
  Json json;
  visit_fields(event, [&](const std::string& key, const auto& value) { put(json, key, value); });
  return json;
}

/// The other load on the CPUs of rank 0's host, then of every host by its name.
Json host_load_section(const Journal& journal) {
  const auto loads = host_loads(journal);
  if (loads.empty()) return {};
  Json json = event_json(*loads.front());
  json.erase("host");
  json.erase("first_rank");
  for (const HostLoadEvent* load : loads) {
    if (load->host.empty()) continue;
    Json host{{"host", load->host}};
    put(host, "first_rank", load->first_rank);
    host.update(event_json(*load));
    json["hosts"].push_back(std::move(host));
  }
  return json;
}

/// The slowdown of every GPU that tells it, by host and bus id.
Json gpu_slowdown_section(const Journal& journal) {
  Json json;
  for (const GpuSlowdownEvent* gpu : gpu_slowdowns(journal)) {
    // An empty name has its key here, too.
    Json& entry = json.emplace_back(Json{{"host", gpu->host}, {"gpu", gpu->gpu}});
    entry.update(event_json(*gpu));
  }
  return json;
}

/// Writes the seeds by name; a run without a workload line has none.
Json seeds_section(const Journal& journal) {
  Json json = Json::object();
  if (const auto* workload = journal.first<WorkloadEvent>()) {
    for (const auto& [name, seed] : workload->seeds) json[name] = seed;
  }
  return json;
}

/// One hash over all graph texts in the order of the journal, each with a line feed behind it;
/// empty where there is no graph.
std::string graphs_hash(const Journal& journal) {
  Sha256 hash;
  bool any = false;
  const auto add = [&](const JsonText& graph) {
    if (graph.text.empty()) return;
    hash.update(graph.text).update("\n");
    any = true;
  };
  for (const JournalLine& line : journal.lines) {
    if (const auto* workload = std::get_if<WorkloadEvent>(&line.event)) add(workload->graph);
    if (const auto* trial = std::get_if<TrialEvent>(&line.event)) add(trial->graph);
  }
  return any ? hash.finish() : "";
}

/// Writes the hashes by which other files and runs refer to this one.
Json hashes_section(const Journal& journal, const StartEvent& start) {
  Json json{{"journal_head", journal.head}, {"journal", journal.sha256}};
  const JsonText config = text_of(journal, &ConfigEvent::config);
  if (!config.text.empty()) json["config"] = sha256_hex(config.text);
  put(json, "graph", graphs_hash(journal));
  put(json, "binary", start.binary_sha256);
  return json;
}

Json journal_section(const Journal& journal) {
  Json json{{"lines", journal.lines.size()}, {"bytes", journal.bytes}};
  if (journal.torn_bytes > 0) json["torn_bytes"] = journal.torn_bytes;
  return json;
}

Json warnings_section(const Journal& journal) {
  Json json = Json::array();
  for (const WarningEvent* warning : journal.all<WarningEvent>()) {
    Json& entry = json.emplace_back(Json{{"text", warning->text}});
    put(entry, "rule", warning->rule);
  }
  return json;
}

Json program_section(const StartEvent& start) {
  Json json;
  put(json, "version", start.program_version);
  put(json, "git_commit", start.git_commit);
  put(json, "build_type", start.build_type);
  if (!start.argv.empty()) json["argv"] = start.argv;
  return json;
}

/// A run without a stop line has no exit code.
void put_status(Json& json, const Journal& journal, const RunSummary& summary) {
  json["status"] = to_string(summary.status);
  put(json, "status_reason", summary.reason);
  if (const auto* stop = journal.last<StopEvent>()) json["exit_code"] = stop->exit_code;
}

/// These are the journal's own documents, as they stand there.
void put_environment(Json& json, const Journal& journal) {
  put_section(json, "system", parsed(text_of(journal, &SystemEvent::system)));
  if (const auto* plan = journal.last<PlanEvent>()) put(json, "plan_summary", plan->summary);
  put_section(json, "plan", parsed(text_of(journal, &PlanEvent::plan)));
  put_section(json, "config", parsed(text_of(journal, &ConfigEvent::config)));
}

}  // namespace

std::string build_record(const Journal& journal) {
  const RunSummary summary = summarize(journal);
  return build_record(journal, summary, judge(journal, summary));
}

std::string build_record(const Journal& journal, const RunSummary& summary,
                         const Validity& validity) {
  const auto* start = journal.first<StartEvent>();
  HETEROPERF_EXPECT(start != nullptr);
  const auto* workload = journal.first<WorkloadEvent>();
  const auto* scale = journal.last<ScaleEvent>();
  Json json = new_document(record_format);
  put(json, "run_id", start->run_id);
  put_section(json, "parent", parent_section(*start));
  put(json, "created_utc", start->created_utc);
  put_status(json, journal, summary);
  json["validity"] = validity_json(validity, validity.rankable(), ruleset_version);
  if (workload != nullptr) json["workload"] = workload_section(*workload);
  if (scale != nullptr) json["scale"] = scale_section(*scale);
  json["metrics"] = metrics_section(journal, summary, validity);
  json["operations"] = operations_section(summary.operations);
  if (summary.search) json["search"] = search_section(journal, *summary.search);
  put_section(json, "checkpoints", checkpoints_section(journal));
  if (summary.time) json["time_split_s"] = time_section(*summary.time, summary.plan);
  put_section(json, "components", components_section(summary.components));
  put_section(json, "prediction", prediction_section(summary.plan));
  put_section(json, "adaptation", adaptation_section(journal, summary.plan));
  put_section(json, "pacing", pacing_section(summary.plan));
  put_section(json, "devices", devices_section(journal));
  put_section(json, "substitution", substitution_section(journal));
  put_section(json, "products", products_section(journal));
  put_section(json, "host_load", host_load_section(journal));
  put_section(json, "gpu_slowdown", gpu_slowdown_section(journal));
  put_section(json, "seeds", seeds_section(journal));
  put_section(json, "program", program_section(*start));
  put_environment(json, journal);
  put_section(json, "warnings", warnings_section(journal));
  json["journal"] = journal_section(journal);
  json["hashes"] = hashes_section(journal, *start);
  put(json, "reproduce", reproduce_of(journal, *start));
  return json_indented(json);
}

}  // namespace heteroperf
