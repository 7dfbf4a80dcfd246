// Reads the documents in a journal's opening lines (configuration, system, plan, the workload's own
// settings) as far as other lines depend on them. A document is addressed by JSON pointers,
// "/scale/ranks", and keys that no check needs are not looked at, so that documents may gain keys.
// The first document that does not fit ends the reading, and its fault is kept as text: a check
// tells it, while the other checks go by what was read until then.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "metrics/base/strict_json.hpp"
#include "results/journal_checks/run_outline.hpp"
#include "results/record/stored_document_json.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t most_listed_cpus = 1 << 16;  // a host has no more, from 0 on

/// Reads values out of one document by their JSON pointers, and notes those that do not fit.
class PointerReader {
 public:
  PointerReader(const char* document, const Json& json) : problems_(document), json_(json) {}

  /// Reads a value; leaves `out` as it is where the key is absent.
  template <class Value>
  void may(const std::string& pointer, Value& out) {
    const Json value = value_at(json_, pointer);
    if (!value.is_null()) read_value(value, pointer, out, problems_);
  }
  /// As may(), but a key that is absent is a fault.
  template <class Value>
  void must(const std::string& pointer, Value& out) {
    if (value_at(json_, pointer).is_null()) problems_.add(pointer + " is missing");
    may(pointer, out);
  }
  void throw_if_any() { problems_.throw_if_any(); }

 private:
  DocumentProblems problems_;
  const Json& json_;
};

/// Either key of `model`, `name` or `size`, names what is trained. A run ends by steps or else by
/// time.
AskedRun asked_by(const Json& config) {
  PointerReader reader("the configuration", config);
  AskedRun asked;
  std::string format;
  reader.must("/_format", format);
  reader.must("/workload", asked.workload);
  reader.must("/quick", asked.quick);
  reader.may("/model/name", asked.size);
  reader.may("/model/size", asked.size);
  reader.may("/model/sequence_length", asked.sequence_length);
  reader.may("/model/images", asked.images);
  reader.may("/model/freeze", asked.freeze);
  reader.must("/model/precision", asked.precision);
  reader.must("/data/source", asked.data);
  reader.must("/scale/ranks", asked.ranks);
  reader.must("/scale/threads_per_rank", asked.threads_per_rank);
  reader.must("/scale/transport", asked.transport);
  reader.may("/cluster/file", asked.cluster_file);
  reader.may("/plan/schedule", asked.schedule);
  reader.may("/plan/layout", asked.layout);
  reader.may("/batch/micro_batch", asked.micro_batch);
  reader.may("/batch/micro_batches", asked.micro_batches);
  reader.may("/measure/steps", asked.steps);
  if (asked.steps == 0) reader.must("/measure/duration_s", asked.duration_s);
  reader.may("/measure/until_percent", asked.until_percent);
  reader.may("/measure/until_after_s", asked.until_after_s);
  reader.must("/measure/warmup_steps", asked.warmup_steps);
  reader.may("/measure/evaluation_samples", asked.evaluation_samples);
  reader.may("/automl/evaluation_samples", asked.evaluation_samples);
  reader.may("/pace/dilation", asked.dilation);
  reader.may("/adapt/every_steps", asked.adapt_every);
  reader.may("/adapt/replan_threshold", asked.replan_threshold);
  reader.may("/automl/group_ranks", asked.group_ranks);
  reader.may("/automl/rungs", asked.rungs);
  reader.throw_if_any();
  const Json seed = value_at(config, "/seed");
  asked.seed = seed.is_string() ? seed.get<std::string>() : seed.dump();
  if (format != "heteroperf-config") {
    throw UserError("the configuration is of no format that this program knows");
  }
  return asked;
}

/// The binding has an entry per rank, in their order.
std::vector<RankHome> homes_in(const Json& system) {
  const Json binding = value_at(system, "/binding");
  if (!binding.is_array()) throw UserError("the system does not say where the ranks run");
  std::vector<RankHome> homes;
  for (std::size_t rank = 0; rank < binding.size(); ++rank) {
    PointerReader reader("the system's binding", binding[rank]);
    RankHome& home = homes.emplace_back();
    std::uint64_t number = 0;
    std::string cpus;
    reader.must("/rank", number);
    reader.must("/host", home.host);
    reader.must("/cpus", cpus);
    reader.must("/device", home.device);
    reader.throw_if_any();
    if (number != rank) throw UserError(fmt::format("the binding names rank {} twice", number));
    home.has_gpu = binding[rank].contains("gpu");
    add_listed_cpus(cpus, home.cpus);
  }
  return homes;
}

/// Settings that the configuration and the workload's own settings both have. The trials of a
/// search have learning rates of their own, so that rate is not among a search's.
std::vector<SharedSetting> shared_settings(const Json& config, const Json& stated, bool search) {
  std::vector<SharedSetting> settings;
  const auto add = [&](const std::string& pointer) {
    const Json asked = value_at(config, pointer);
    const std::string where = pointer.starts_with("/batch/") ? pointer.substr(6) : pointer;
    settings.push_back({pointer.substr(1), asked.dump(), value_at(stated, where).dump()});
  };
  for (const char* name : {"name", "schedule", "weight_decay", "clip_norm", "warmup_steps"}) {
    add(std::string("/optimizer/") + name);
  }
  if (!search) add("/optimizer/learning_rate");
  // A rate decays to the last step that was asked for; 0: there is none.
  const Json steps = value_at(config, "/measure/steps");
  const Json last = value_at(stated, "/optimizer/total_steps");
  if (!search && !last.is_null()) {
    settings.push_back(
        {"optimizer/total_steps", steps.is_null() ? "0" : steps.dump(), last.dump()});
  }
  if (search) add("/batch/micro_batch");
  if (search) add("/batch/micro_batches");
  return settings;
}

/// The workload's settings are read last, since it takes the plan to know which of them are shared.
void read_documents(const Journal& journal, RunOutline& outline) {
  const auto* config = journal.first<ConfigEvent>();
  const auto* system = journal.first<SystemEvent>();
  const auto* plan = journal.first<PlanEvent>();
  const auto* workload = journal.first<WorkloadEvent>();
  if (config != nullptr) outline.asked = asked_by(parsed(config->config));
  if (system != nullptr) outline.homes = homes_in(parsed(system->system));
  if (plan != nullptr) outline.plan = read_plan_outline(plan->plan.text);
  if (workload == nullptr || config == nullptr || plan == nullptr) return;
  const Json stated = parsed(workload->config);
  outline.settings = shared_settings(parsed(config->config), stated, outline.plan->of_search);
  PointerReader reader("the workload's settings", stated);
  reader.must("/size", outline.stated_size);
  reader.must("/model", outline.stated_model);
  if (outline.plan->of_search) reader.must("/micro_batches", outline.trial_micro_batches);
  reader.throw_if_any();
}

}  // namespace

RunOutline read_run_outline(const Journal& journal) {
  RunOutline outline;
  try {
    read_documents(journal, outline);
  } catch (const Error& error) {
    outline.problem = error.what();
  }
  return outline;
}

std::uint64_t batch_of_trial(const JsonText& hyper_parameters) {
  const Json batch = value_at(parsed(hyper_parameters), "/batch");
  return batch.is_number_unsigned() ? batch.get<std::uint64_t>() : 0;
}

/// A key that is absent is within the space: a trial has only the hyper-parameters that it needs.
std::string outside_space(const JsonText& hyper_parameters, const SearchSpace& space) {
  const Json json = parsed(hyper_parameters);
  const auto within = [&](const char* name, double least, double most) {
    const Json value = value_at(json, std::string("/") + name);
    return value.is_null() || (value.is_number() && value >= least && value <= most);
  };
  const auto among = [&](const char* name, const std::vector<std::int64_t>& choices) {
    const Json value = value_at(json, std::string("/") + name);
    const auto is = [&](std::int64_t choice) { return value == choice; };
    return value.is_null() || std::any_of(choices.begin(), choices.end(), is);
  };
  if (!within("dropout", space.dropout_min, space.dropout_max)) return "dropout";
  if (!within("learning_rate", space.learning_rate_min, space.learning_rate_max)) {
    return "learning_rate";
  }
  if (!among("kernel", space.kernels)) return "kernel";
  return among("batch", space.batches) ? "" : "batch";
}

void add_listed_cpus(const std::string& list, CpuRanges& cpus) {
  std::istringstream ranges(list);
  std::uint64_t first = 0;
  while (ranges >> first) {
    std::uint64_t last = first;
    if (ranges.peek() == '-') ranges.ignore() >> last;
    cpus.emplace_back(first, last);
    ranges.ignore();  // the comma
  }
}

/// Goes through the sorted ranges and counts the part of each that lies beyond those before it.
std::uint64_t count_cpus(CpuRanges cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::uint64_t count = 0, next = 0;  // the first one that is not counted yet
  for (const auto& [from, to] : cpus) {
    const std::uint64_t first = std::max(from, next);
    const std::uint64_t end = std::min(to, most_listed_cpus - 1) + 1;
    if (first >= end) continue;
    count += end - first;
    next = end;
  }
  return count;
}

}  // namespace heteroperf
