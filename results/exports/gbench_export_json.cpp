// Exports runs in the form of Google Benchmark, so that its compare.py can hold two sets of runs
// against each other. There a *family* is a benchmark with a name, and its *repetitions* are
// independent measurements of it. A run is one repetition: the steps of a run follow each other and
// are no independent samples, so a run gives one number, the median step, and the U test of
// compare.py needs several runs of one name. The name is made of workload, size, precision and
// devices. Fields that Google's library fills and a record does not know are 0.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "metrics/base/strict_json.hpp"
#include "metrics/statistics.hpp"
#include "results/exports/run_export.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr double milliseconds = 1e3;

/// A value of the record as text; empty where it is absent.
std::string utf8_at(const Json& record, const char* pointer) {
  const Json value = value_at(record, pointer);
  if (value.is_null()) return {};
  return utf8_text(value.is_string() ? value.get<std::string>() : value.dump());
}

/// "llm/nano/fp32/2xcpu": slashes part families, as in Google's own names.
std::string name_of_run(const Json& record) {
  std::string name = utf8_at(record, "/workload/name");
  for (const char* pointer : {"/workload/size", "/workload/precision"}) {
    const std::string part = utf8_at(record, pointer);
    if (!part.empty()) name += '/' + part;
  }
  const std::string classes =
      joined(value_at(record, "/scale/devices"), "+", [](const Json& device) {
        return fmt::format("{}x{}", device.at("count").dump(),
                           utf8_text(device.at("class").get<std::string>()));
      });
  return name + (classes.empty() ? "" : "/") + classes;
}

/// Logical CPUs to one of `count` caches; 0: unknown.
std::int64_t sharing(const Json& record, std::int64_t count) {
  const Json cpus = value_at(record, "/system/cpu/logical_cpus/value");
  if (!cpus.is_number_integer() || count <= 0) return 0;
  const auto all = whole_number<std::int64_t>(cpus);
  return all % count == 0 ? all / count : 0;
}

/// The caches of the host by Google's words for them.
Json caches_of(const Json& record) {
  Json caches = Json::array();
  const std::map<std::string, std::string> types{
      {"data", "Data"}, {"instruction", "Instruction"}, {"unified", "Unified"}};
  for (const Json& cache : value_at(record, "/system/cpu/caches/value")) {
    const auto type = types.find(cache.value("kind", ""));
    caches.push_back(
        {{"type", type == types.end() ? "Unified" : type->second},
         {"level", whole_number_or_0<int>(cache, "level")},
         {"size", whole_number_or_0<std::int64_t>(cache, "size_bytes")},
         {"num_sharing", sharing(record, whole_number_or_0<std::int64_t>(cache, "count"))}});
  }
  return caches;
}

/// The machine and the program; of several runs those of the newest one.
Json context_of(const Json& record) {
  const Json cpus = value_at(record, "/system/cpu/logical_cpus/value");
  const Json randomised = value_at(record, "/system/facts/address_randomisation/value");
  const Json load = value_at(record, "/system/facts/load_average_1min/value");
  const std::string governor = utf8_at(record, "/system/cpu/governor/value");
  // Google Benchmark has an offset in place of the Z: "2026-01-01T10:15:00+00:00".
  std::string date = utf8_at(record, "/created_utc");
  if (date.ends_with('Z')) date.replace(date.size() - 1, 1, "+00:00");
  Json context{
      {"date", date},
      {"host_name", utf8_at(record, "/system/host/value")},
      {"executable", "heteroperf"},
      {"num_cpus", cpus.is_number() ? cpus : Json(0)},
      {"mhz_per_cpu", 0},
      {"cpu_scaling_enabled", !governor.empty() && governor != "performance"},
      {"aslr_enabled", randomised.is_number() && randomised != 0},
      {"caches", caches_of(record)},
      {"load_avg", Json::array()},
      {"library_version", "heteroperf " + utf8_at(record, "/program/version")},
      {"library_build_type",
       utf8_at(record, "/program/build_type").starts_with("Release") ? "release" : "debug"},
      {"json_schema_version", 1}};
  if (load.is_number()) context["load_avg"].push_back(load);
  for (const auto& [key, pointer] : {std::pair("heteroperf_git_commit", "/program/git_commit"),
                                     std::pair("heteroperf_ruleset", "/validity/ruleset")}) {
    context[key] = utf8_at(record, pointer);
  }
  return context;
}

/// The share of the window's time that was computing, from 0 to 1; 1 where it is not known.
double computing_share(const Json& record) {
  const Json compute = value_at(record, "/time_split_s/compute");
  const Json window = value_at(record, "/metrics/window_s");
  if (!compute.is_number() || !window.is_number() || !(window.get<double>() > 0)) return 1;
  return std::clamp(compute.get<double>() / window.get<double>(), 0.0, 1.0);
}

/// Numbers beside the times, by Google's names where it has one.
void put_counters(const Json& record, Json& entry) {
  const auto put = [&](const char* name, const char* pointer) {
    const Json value = value_at(record, pointer);
    if (value.is_number()) entry[name] = value;
  };
  put("items_per_second", "/metrics/throughput/value");
  put("ops_per_second", "/metrics/ops_per_second/value");
  put("utilization", "/metrics/utilization/value");
  put("peak_memory_bytes", "/metrics/peak_memory_bytes/max");
}

/// The records of the runs of one name.
struct Family {
  std::string name;
  std::vector<Json> repetitions;
};

/// The fields that iterations and aggregates share.
Json entry_head(const Family& family, std::size_t index, const std::string& name,
                const char* type) {
  const Json threads = value_at(family.repetitions.front(), "/scale/devices/0/threads");
  return {{"name", name},
          {"family_index", index},
          {"per_family_instance_index", 0},
          {"run_name", family.name},
          {"run_type", type},
          {"repetitions", family.repetitions.size()},
          {"threads", threads.is_number() ? threads : Json(1)}};
}

/// One run. A run without a measured step, or an invalid one, has `error_occurred` with the reason,
/// and times of 0.
Json iteration_entry(const Family& family, std::size_t index, std::size_t repetition) {
  const Json& record = family.repetitions[repetition];
  Json entry = entry_head(family, index, family.name, "iteration");
  entry["repetition_index"] = repetition;
  entry["iterations"] = value_at(record, "/metrics/steps");
  const Json step = value_at(record, "/metrics/step_time_s/median");
  const bool invalid = value_at(record, "/validity/class") == "invalid";
  if (!step.is_number() || invalid) {
    entry["error_occurred"] = true;
    const std::string reason = utf8_at(record, "/validity/reasons/0/actual");
    entry["error_message"] = reason.empty() ? "no step was measured" : reason;
  }
  const double real_ms = step.is_number() && !invalid ? step.get<double>() * milliseconds : 0;
  entry["real_time"] = real_ms;
  entry["cpu_time"] = real_ms * computing_share(record);
  entry["time_unit"] = "ms";
  put_counters(record, entry);
  entry["label"] = utf8_at(record, "/run_id");
  return entry;
}

struct Aggregate {
  const char* name;
  const char* unit;
  std::function<double(const std::vector<double>&)> of;
};

/// Adds mean, median, stddev and cv over the good repetitions, each as an entry whose name has the
/// suffix that Google's library appends. A number that one of them lacks has no aggregate.
void add_aggregates(const Family& family, std::size_t index, const Json& iterations, Json& list) {
  const Aggregate aggregates[] = {
      {"mean", "time", [](const auto& values) { return mean(values); }},
      {"median", "time", [](const auto& values) { return median(values); }},
      {"stddev", "time", [](const auto& values) { return standard_deviation(values); }},
      {"cv", "percentage", [](const auto& values) {
         const double centre = mean(values);
         return centre > 0 ? standard_deviation(values) / centre : 0;
       }}};
  for (const Aggregate& aggregate : aggregates) {
    Json entry = entry_head(family, index, family.name + '_' + aggregate.name, "aggregate");
    entry["aggregate_name"] = aggregate.name;
    entry["aggregate_unit"] = aggregate.unit;
    entry["iterations"] = iterations.size();
    for (const char* key : {"real_time", "cpu_time", "items_per_second", "ops_per_second"}) {
      std::vector<double> values;
      for (const Json& iteration : iterations) {
        if (iteration.contains(key)) values.push_back(iteration.at(key).get<double>());
      }
      if (values.size() == iterations.size()) entry[key] = aggregate.of(values);
    }
    entry["time_unit"] = "ms";
    list.push_back(std::move(entry));
  }
}

/// Families in the order in which their first run comes.
std::vector<Family> families_of(const std::vector<ExportedRun>& runs) {
  std::vector<Family> families;
  for (const ExportedRun& run : runs) {
    Json record = Json::parse(run.record);
    const std::string name = name_of_run(record);
    auto same_name = std::ranges::find(families, name, &Family::name);
    if (same_name == families.end()) same_name = families.insert(families.end(), Family{name, {}});
    same_name->repetitions.push_back(std::move(record));
  }
  return families;
}

}  // namespace

std::string gbench_export_text(const std::vector<ExportedRun>& runs) {
  const std::vector<Family> families = families_of(runs);
  Json document{{"context", context_of(Json::parse(runs.back().record))},
                {"benchmarks", Json::array()}};
  for (std::size_t index = 0; index < families.size(); ++index) {
    // Runs with an error are listed, but no mean is made of them.
    Json iterations = Json::array(), good = Json::array();
    for (std::size_t i = 0; i < families[index].repetitions.size(); ++i) {
      iterations.push_back(iteration_entry(families[index], index, i));
      if (!iterations.back().contains("error_occurred")) good.push_back(iterations.back());
    }
    for (const Json& entry : iterations) document["benchmarks"].push_back(entry);
    if (good.size() >= 2) add_aggregates(families[index], index, good, document["benchmarks"]);
  }
  return json_indented(document);
}

}  // namespace heteroperf
