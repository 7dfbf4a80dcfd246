// These checks hold the lines that open a journal: `start` (which run, and when), `config` (what
// was asked for), `system` (where it runs), `plan`, `scale` and `workload` (what is trained). All
// of them are made of one request, so each can be held to the others: the scale and the plan to the
// configuration, and the workload to the plan. Two things are made again by the program's own code:
// a model is built by its name and its graph's hash compared, and generated data are described from
// their seed. The documents inside the lines are read as an *outline* (run_outline.hpp), which has
// only the keys that other lines depend on.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/precision_goal.hpp"
#include "results/journal_checks/checked_journal.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

constexpr std::array opening_kinds{"start", "config", "system", "plan", "scale", "workload"};
constexpr double last_digits = 1e-12;  // in which two machines' logarithms may differ

/// True for the kinds of which a journal has one line each, at its begin.
bool opens(const std::string& kind) {
  return std::find(opening_kinds.begin(), opening_kinds.end(), kind) != opening_kinds.end();
}

/// "20260101T101500Z" of "2026-01-01T10:15:00Z".
std::string date_of_run_id(std::string created_utc) {
  std::erase_if(created_utc, [](char c) { return c == '-' || c == ':'; });
  return created_utc;
}

/// True for every run_id that this program gives; one of another form is not held to its date.
bool begins_with_date(const std::string& run_id) {
  constexpr std::string_view form = "00000000T000000Z-";
  return run_id.size() > form.size() &&
         std::equal(form.begin(), form.end(), run_id.begin(), [](char wanted, char c) {
           return wanted == '0' ? c >= '0' && c <= '9' : c == wanted;
         });
}

/// True where the text has nothing but words, quoted as this program quotes them. Readers paste the
/// line into a shell, so a stranger's text must not hold a second command.
bool is_one_command(const std::string& text) {
  constexpr std::string_view plain = "-_./=:,%+@ ";
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'') {
      quoted = !quoted;
    } else if (!quoted && c == '\\' && text.substr(i, 2) == "\\'") {
      ++i;  // a quote that is none
    } else if (!quoted && plain.find(c) == std::string_view::npos &&
               std::isalnum(static_cast<unsigned char>(c)) == 0) {
      return false;
    }
  }
  return !quoted;
}

/// A run's id fits its date and workload. The command that repeats the run names the workload, with
/// --quick exactly where the run was quick.
void hold_start(const CheckedJournal& run, LineCheck& check) {
  const AskedRun& asked = *run.outline.asked;
  const StartEvent& start = *run.start.event;
  check.at(1);
  check.equal("quick", asked.quick, start.quick);
  const bool continues = start.parent_step.has_value();
  check.equal("parent given", continues, !start.parent.empty());
  check.equal("adapt_every", asked.adapt_every, start.adapt_every.value_or(0));
  if (begins_with_date(start.run_id)) {
    check.equal("run_id begins with",
                fmt::format("{}-{}-", date_of_run_id(start.created_utc), asked.workload),
                start.run_id.substr(0, start.run_id.rfind('-') + 1));
  }
  if (start.reproduce.empty()) return;
  const std::string command = "heteroperf run " + asked.workload + (asked.quick ? " --quick" : "");
  const auto begin = start.reproduce.find(command);
  const auto behind = begin == std::string::npos ? begin : begin + command.size();
  // The command's words must end there: "run llm" is not the begin of "run llm-large".
  const bool whole = behind == start.reproduce.size() ||
                     (behind < start.reproduce.size() && start.reproduce[behind] == ' ');
  check.hold(whole && is_one_command(start.reproduce) &&
                 (asked.quick || start.reproduce.find(" --quick") == std::string::npos),
             "{}", "{1}", "reproduce with " + command, start.reproduce);
}

/// Ranks, threads and transport are those of the request. A search divides its ranks into groups; a
/// fixed model is trained by one group.
void hold_scale(const CheckedJournal& run, LineCheck& check) {
  const AskedRun& asked = *run.outline.asked;
  const ScaleEvent& scale = *run.scale.event;
  check.at(run.scale.line);
  check.equal("ranks", asked.ranks, std::int64_t{scale.ranks});
  check.equal("transport", asked.transport, scale.transport);
  check.hold(scale.allocated.value_or(scale.ranks) >= scale.ranks, "{} devices or more allocated",
             "{1}", scale.ranks, scale.allocated.value_or(scale.ranks));
  for (const DeviceCount& device : scale.devices) {
    check.equal("threads", asked.threads_per_rank, std::int64_t{device.threads});
  }
  const bool divides = run.is_search() && asked.group_ranks > 0;
  check.equal("groups", divides ? scale.ranks / asked.group_ranks : 1, std::int64_t{scale.groups});
}

/// The workload repeats keys of the configuration, and its own settings repeat some once more.
void hold_workload(const CheckedJournal& run, LineCheck& check) {
  const AskedRun& asked = *run.outline.asked;
  const WorkloadEvent& workload = *run.workload.event;
  check.at(run.workload.line);
  check.equal("name", asked.workload, workload.name);
  check.equal("size", asked.size, workload.size);
  check.equal("precision", asked.precision, workload.precision);
  std::string seeds;
  for (const auto& [name, seed] : workload.seeds) seeds += fmt::format("{} {} ", name, seed);
  check.equal("seeds", fmt::format("run {} ", asked.seed), seeds);
  check.equal("config/size", workload.size, run.outline.stated_size);
  for (const SharedSetting& setting : run.outline.settings) {
    check.equal(setting.name, setting.asked, setting.stated);
  }
}

/// The goal of a run with --until follows from two settings; its other numbers are constants of the
/// program, so none can be chosen to make the run end early.
void hold_until(const CheckedJournal& run, LineCheck& check) {
  const AskedRun& asked = *run.outline.asked;
  const auto until = run.first<UntilEvent>();
  // It follows the workload at once; a journal that ends there is silent.
  const bool due = run.workload && run.journal.lines.size() > run.workload.line;
  check.at(until ? until.line : run.workload.line + 1);
  if (!until && due) check.equal("until_percent", asked.until_percent, 0.0);
  if (!until) return;
  const PrecisionGoal goal{.fraction = asked.until_percent / 100, .fewest_s = asked.until_after_s};
  check.equal("requested_fraction", goal.fraction, until->requested_fraction);
  check.equal("fewest_s", goal.fewest_s, until->fewest_s);
  check.equal("fewest_steps", goal.fewest_steps, until->fewest_steps);
  check.equal("blocks", goal.blocks, until->blocks);
  check.equal("fewest_blocks", goal.fewest_blocks,
              until->fewest_blocks.value_or(goal.fewest_blocks));
  check.equal("misses", goal.misses, until->misses);
}

/// True where each rank, from 0 on, is in exactly one group.
bool is_every_rank(const std::vector<std::vector<std::int32_t>>& groups, std::int64_t ranks) {
  std::vector<std::int32_t> all;
  for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  std::sort(all.begin(), all.end());
  const auto repeated = std::adjacent_find(all.begin(), all.end());
  return repeated == all.end() && std::ssize(all) == ranks &&
         (all.empty() || (all.front() == 0 && all.back() == ranks - 1));
}

/// All stages see all samples of a micro-batch: those of a stage's replicas add up to the same
/// number everywhere. The replicas of a two-way schedule are summed per direction.
void hold_stages(const PlanOutline& plan, const AskedRun& asked, LineCheck& check) {
  const std::int64_t expected = plan.micro_batch_samples(0, 0);
  if (!asked.layout.empty()) {
    // The component with the most replicas gives each of them the samples that were asked for.
    std::int64_t most = 1;
    for (const auto& stage : plan.stages) {
      const auto copies = std::ranges::count_if(stage, &OutlinedReplica::ends_samples);
      most = std::max<std::int64_t>(most, copies);
    }
    check.equal("micro_batch", asked.micro_batch * most, expected);
  }
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const std::array samples{plan.micro_batch_samples(stage, 0),
                             plan.micro_batch_samples(stage, 1)};
    for (const OutlinedReplica& replica : plan.stages[stage]) {
      check.equal(fmt::format("samples of stage {}", stage), expected,
                  samples.at(replica.direction));
      if (asked.micro_batch == 0 || !asked.layout.empty()) continue;
      check.equal("micro_batch", asked.micro_batch, replica.micro_batch);
    }
  }
}

/// The plan says what is trained by whom; the workload line must name the same model and batch.
void hold_plan_to_workload(const CheckedJournal& run, LineCheck& check) {
  const PlanOutline& plan = *run.outline.plan;
  const WorkloadEvent& workload = *run.workload.event;
  check.at(run.workload.line);
  check.equal("samples_per_step", plan.samples_per_step(), workload.samples_per_step.value_or(0));
  if (!plan.graph_hash.empty()) {
    check.equal("graph_hash", plan.graph_hash, workload.graph_hash);
  }
  check.equal("name", plan.workload, workload.name);
  check.equal("size", plan.size, workload.size);
  check.equal("precision", plan.precision, workload.precision);
  if (run.outline.asked) check.equal("freeze", run.outline.asked->freeze, plan.freeze);
  for (const SharedSetting& setting : run.outline.settings) {
    if (setting.name != "optimizer/name" || plan.optimizer.empty()) continue;
    check.equal(setting.name, fmt::format("\"{}\"", plan.optimizer), setting.stated);
  }
  if (const ModelGraph* graph = run.any_model(); graph != nullptr && plan.sequence_length > 0) {
    check.equal("sequence_length", plan.sequence_length, sample_of(*graph).length);
  }
  if (const ModelGraph* graph = run.any_model(); graph != nullptr && plan.images > 0) {
    check.equal("images", plan.images, sample_of(*graph).images);
  }
}

/// Lists devices as "2 cpu, 1 gpu"; their order counts in a comparison.
std::string counted_devices(const std::vector<DeviceCount>& devices) {
  std::string text;
  for (const DeviceCount& device : devices) {
    text += fmt::format("{} {}, ", device.count, device.device_class);
  }
  return text.substr(0, text.size() - std::min<std::size_t>(2, text.size()));
}

/// Counts the ranks of each class, classes in the order of their first rank. Nothing where the plan
/// does not give the class of every rank.
std::optional<std::vector<DeviceCount>> devices_by_plan(const CheckedJournal& run) {
  std::vector<DeviceCount> devices;
  std::map<std::string, std::size_t> known;
  for (std::int32_t rank = 0; rank < run.ranks(); ++rank) {
    const auto name = run.device_class(rank);
    if (!name) return std::nullopt;
    const auto [place, is_new] = known.emplace(*name, devices.size());
    if (is_new) devices.push_back({*name, 0});
    ++devices[place->second].count;
  }
  return devices;
}

/// Compares two numbers that may both be absent. They come out of logarithms, so the last digits of
/// two machines may differ.
void hold_number(LineCheck& check, const char* field, const std::optional<double>& expected,
                 const std::optional<double>& actual) {
  const bool both = expected && actual;
  const bool equal = both ? std::fabs(*expected - *actual) <= last_digits * std::fabs(*expected)
                          : expected.has_value() == actual.has_value();
  const auto text = [&](const std::optional<double>& value) {
    return value ? fmt::format("{} {}", field, *value) : fmt::format("no {}", field);
  };
  check.hold(equal, "{}", "{1}", text(expected), text(actual));
}

}  // namespace

/// The six opening lines stand in their order, and none of their kinds comes again. An `until` line
/// follows them at once or not at all. A document that cannot be read fails here, and the other
/// checks pass over what it would have said.
void check_opening(const CheckedJournal& run, LineCheck& check) {
  const auto& lines = run.journal.lines;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string kind = kind_name(lines[i].event);
    check.at(i + 1);
    if (i < opening_kinds.size()) {
      check.equal("kind", opening_kinds[i], kind);
    } else if (opens(kind) || (kind == "until" && i > opening_kinds.size())) {
      check.equal("kind", "one that follows the opening lines", kind);
    }
  }
  check.at(1);
  check.hold(run.outline.problem.empty(), "documents that say what runs", "{}",
             run.outline.problem);
}

/// Holds each line that the request determines, as far as the journal has it.
void check_request(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.asked) return;
  if (run.start) hold_start(run, check);
  if (run.scale) hold_scale(run, check);
  if (run.workload) hold_workload(run, check);
  hold_until(run, check);
}

/// Every rank has its place in the plan. The plan of a fixed model also follows the request where
/// that names a schedule or batches; of a search only the groups are known, since batches are the
/// trials'.
void check_plan_line(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.plan || !run.outline.asked) return;
  const PlanOutline& plan = *run.outline.plan;
  const auto line = run.first<PlanEvent>();
  check.at(line.line);
  check.equal("summary", plan.of_search ? "" : plan.shape().line(), line->summary);
  check.hold(is_every_rank(plan.groups, run.outline.asked->ranks), "a place for each of {} ranks",
             "other ranks", run.outline.asked->ranks);
  if (plan.of_search) {
    if (run.scale) {
      check.at(run.scale.line);
      check.equal("groups", plan.groups.size(), static_cast<std::size_t>(run.scale->groups));
    }
    if (run.workload) {
      check.at(run.workload.line);
      check.equal("samples_per_step given", false, run.workload->samples_per_step.has_value());
    }
    return;
  }
  const AskedRun& asked = *run.outline.asked;
  if (!asked.schedule.empty()) check.equal("schedule", asked.schedule, plan.schedule);
  if (asked.micro_batches > 0) {
    check.equal("micro_batches", asked.micro_batches, plan.micro_batches);
  }
  hold_stages(plan, asked, check);
  if (run.workload) hold_plan_to_workload(run, check);
}

/// A rank whose binding names other kernels or another chip's numerics has a `device` line that
/// says so, and no other rank has one.
void hold_rank_devices(const CheckedJournal& run, LineCheck& check) {
  std::map<std::int32_t, std::string> told;
  for (const DeviceEvent* event : run.journal.all<DeviceEvent>()) {
    told[event->rank] = event->device;
    const bool emulated = event->device.starts_with("emulated:");
    check.equal("emulated", emulated, event->emulated.value_or(false));
    check.equal("kernels", emulated ? "fastest" : event->device.substr(event->device.find(':') + 1),
                event->kernels);
    const bool has_numerics =
        !event->products.empty() || event->sum_order > 0 || !event->lacks.empty();
    check.hold(emulated || !has_numerics, "numerics of an emulated chip alone", "{}",
               event->device);
  }
  if (!run.is_complete()) return;
  for (std::size_t rank = 0; rank < run.outline.homes.size(); ++rank) {
    const std::string& device = run.outline.homes[rank].device;
    const bool unlike = device.starts_with("cpu:") || device.starts_with("emulated:");
    check.equal("device", unlike ? device : "", told[static_cast<std::int32_t>(rank)]);
  }
}

/// The devices add up to the ranks, and are those of the plan. All are emulated or none is. Only
/// emulated devices have `pacing` lines, and a complete run on them has some.
void check_devices(const CheckedJournal& run, LineCheck& check) {
  if (!run.scale || !run.outline.asked) return;
  check.at(run.scale.line);
  std::int64_t count = 0;
  bool emulated = false;
  for (const DeviceCount& device : run.scale->devices) {
    count += device.count;
    emulated = device.emulated;
    check.equal("emulated", run.scale->devices.front().emulated, device.emulated);
  }
  check.equal("devices in all", std::int64_t{run.scale->ranks}, count);
  if (const auto devices = devices_by_plan(run)) {
    check.equal("devices", counted_devices(*devices), counted_devices(run.scale->devices));
  }
  hold_rank_devices(run, check);
  const auto pacing = run.first<PacingEvent>();
  if (!pacing && (!emulated || !run.is_complete())) return;
  if (pacing) check.at(pacing.line);
  check.equal("emulated", static_cast<bool>(pacing), emulated);
}

/// Returns the text that `make` gives, or the problem that it throws. No program writes such a
/// problem into a journal, so the comparison with it fails.
template <class Make>
std::string text_or_problem(Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    return error.problems().front().problem;
  }
}

/// Builds the model again by its name, so that nobody lays claim to more operations by another
/// graph.
void hold_fixed_model(const CheckedJournal& run, const ModelGraph& graph, LineCheck& check) {
  const std::string &name = run.outline.asked->size, &freeze = run.outline.asked->freeze;
  const std::string expected = text_or_problem([&] {
    const ModelGraph model = model_for(name, sample_of(graph));
    return (freeze.empty() ? model : with_frozen(model, freeze)).hash();
  });
  check.equal("graph of " + name, expected, run.workload->graph_hash);
}

/// Unit, family, measure of quality and parameters all follow from the samples that the graph
/// takes. A search has no graph of its own; its workload names the hash of the graph that it starts
/// from.
void check_model(const CheckedJournal& run, LineCheck& check) {
  if (!run.workload || !run.outline.plan) return;
  const WorkloadEvent& workload = *run.workload.event;
  check.at(run.workload.line);
  check.equal("graph given", !run.is_search(), !workload.graph.text.empty());
  const ModelGraph* graph = run.any_model();
  if (graph == nullptr) return;
  const SampleKind kind = sample_of(*graph).kind;
  const bool images = kind == SampleKind::images;
  check.equal("units_per_sample", answers_of_sample(*graph), workload.units_per_sample);
  check.equal("unit", unit_of(sample_of(*graph)), workload.unit);
  check.equal("family", family_of(kind), workload.family);
  check.equal("quality", images ? QualityMeasure::accuracy : QualityMeasure::loss,
              workload.quality);
  check.equal("parameters", run.is_search() ? 0 : graph->parameter_count(), workload.parameters);
  if (run.is_search()) {
    check.equal("graph_hash", search_start(workload.size, sample_of(*graph)).hash(),
                workload.graph_hash);
  } else {
    check.equal("config/model", graph->name, run.outline.stated_model);
    if (run.outline.asked) hold_fixed_model(run, *graph, check);
  }
}

/// Describes the shape of a sample for a comparison.
std::string sample_text(const SampleSpec& spec) {
  return fmt::format("{}: {} x {} x {} ({} to {}), {} tokens ({} of an image), {} classes",
                     to_string(spec.kind), spec.channels, spec.height, spec.width,
                     spec.fewest_images, spec.images, spec.length, spec.image_places, spec.classes);
}

/// Generated samples have the shape that the configuration gives. Samples of files are held to it
/// where they are tokens, since they have the model's vocabulary.
void hold_sample(const CheckedJournal& run, const SampleSpec& spec, LineCheck& check) {
  const AskedRun& asked = *run.outline.asked;
  std::optional<std::int64_t> length, images;
  if (asked.sequence_length > 0) length = asked.sequence_length;
  if (asked.images > 0) images = asked.images;
  const std::string expected = text_or_problem([&] {
    const SampleSpec usual = generated_sample(run.is_search() ? "" : asked.size, length, images);
    return sample_text(is_generated(asked.data) ? generated_spec(asked.data, usual) : usual);
  });
  check.equal("sample", expected, sample_text(spec));
}

/// Generated data are described again from their seed: text, fingerprints and floors must be equal.
/// A *floor* is the lowest loss or error that the data allow, and the quality target follows from
/// it. Files are not read again, so their fingerprint is taken as it is, and nobody knows their
/// floors.
void check_data_line(const CheckedJournal& run, LineCheck& check) {
  if (!run.workload || !run.outline.asked) return;
  const WorkloadEvent& workload = *run.workload.event;
  check.at(run.workload.line);
  const bool generated = is_generated(run.outline.asked->data);
  check.equal("data_kind given", generated, !workload.data_kind.empty());
  const ModelGraph* graph = run.any_model();
  if (graph == nullptr || workload.seeds.empty()) return;
  const SampleSpec spec = sample_of(*graph);
  std::optional<double> loss_floor, error_floor;
  if (generated || spec.kind == SampleKind::tokens) hold_sample(run, spec, check);
  if (generated) {
    const auto data = describe_generated(spec, workload.seeds.front().second);
    check.equal("data", data->description(), workload.data);
    check.equal("data_fingerprint", data->fingerprint(), workload.data_fingerprint);
    check.equal("data_kind", describe_generated(spec, 0)->fingerprint(), workload.data_kind);
    loss_floor = data->loss_floor();
    error_floor = data->error_floor();
  }
  hold_number(check, "loss_floor", loss_floor, workload.loss_floor);
  hold_number(check, "error_floor", error_floor, workload.error_floor);
  const auto target = target_on(spec, loss_floor, error_floor);
  hold_number(check, "quality_target", target ? std::optional(target->value) : std::nullopt,
              workload.quality_target);
}

}  // namespace heteroperf
