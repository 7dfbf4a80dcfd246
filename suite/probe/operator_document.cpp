// The report of `ops` as a document, which is also its record. The fields of a row stand in one
// table each, by which they are written and read: of several devices each is looked at by a process
// of its own, and the one that asked joins what the others printed.
//
// Beside the rows stand the sections that the record of a run has (who, on which machine, by which
// program, the throughput), in the same places, so that `compare` and `gate` read both alike. The
// throughput counts how often per second all operators do the work of one micro-batch, of every
// workload, device and precision, one after another, in the fastest turn of the measurement.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "metrics/base/strict_json.hpp"
#include "metrics/score.hpp"
#include "results/record/ruleset.hpp"
#include "results/text/sha256.hpp"
#include "results/text/text_escapes.hpp"
#include "runners/cluster/machine.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/config/run_documents_json.hpp"
#include "suite/probe/operator_report.hpp"
#include "suite/program/version.hpp"

namespace heteroperf {
namespace {

// ---------------------------------------------------------------- fields of rows

/// A list, absent where it is empty.
template <class T>
Datum datum_of(const std::vector<T>& list) {
  return list.empty() ? Datum() : Datum(list);
}
template <class T>
Datum datum_of(const T& value) {
  return value;
}

void take(const Json& json, Interval& interval) {
  interval = {json.at(0).get<double>(), json.at(1).get<double>()};
}
template <class T>
void take(const Json& json, T& value) {
  value = json.get<T>();
}
template <class T>
void take(const Json& json, std::optional<T>& value) {
  take(json, value.emplace());
}

/// A column of a table and how a row gets its value back.
template <class Row>
struct RowField {
  ColumnOf<Row> column;
  std::function<void(const Json&, Row&)> read;
};

template <class Row, class T>
RowField<Row> field(T Row::*member, TableColumn column) {
  const std::string key = column.key;
  return {{std::move(column), [member](const Row& row) { return datum_of(row.*member); }},
          [member, key](const Json& json, Row& row) {
            if (json.contains(key)) take(json.at(key), row.*member);
          }};
}

template <class Row>
Table table_by(const char* key, const std::vector<Row>& rows,
               const std::vector<RowField<Row>>& fields) {
  std::vector<ColumnOf<Row>> columns;
  for (const RowField<Row>& one : fields) columns.push_back(one.column);
  return table_of(key, rows, columns);
}

template <class Row>
void read_rows(const Json& document, const char* key, const std::vector<RowField<Row>>& fields,
               std::vector<Row>& rows) {
  if (!document.contains(key)) return;
  for (const Json& json : document.at(key)) {
    Row& row = rows.emplace_back();
    for (const RowField<Row>& one : fields) one.read(json, row);
  }
}

constexpr Audience programs = Audience::programs;

Tone tone_of(const std::string& status) {
  if (status == "native") return Tone::good;
  return status == "substituted" ? Tone::doubtful : Tone::bad;
}

std::vector<RowField<OperatorRow>> operator_fields() {
  using Row = OperatorRow;
  using enum Unit;
  std::vector<RowField<Row>> fields{
      field(&Row::name, {"name", "operator", none}),
      field(&Row::device, {"device", "device", none}),
      field(&Row::precision, {"precision", "precision", none}),
      field(&Row::status, {"status", "status", none}),
      field(&Row::ops_per_second, {"ops_per_second", "rate", operations_per_second}),
      field(&Row::efficiency, {"efficiency", "of the best", fraction}),
      field(&Row::roofline_efficiency, {"roofline_efficiency", "of the roofline", fraction}),
      field(&Row::seconds, {"seconds", "time", Unit::seconds}),
      field(&Row::least_s, {"least_s", "least time", Unit::seconds, programs}),
      field(&Row::worst_error, {"worst_error", "worst error", ratio}),
      field(&Row::factor, {"factor", "c", ratio}),
      field(&Row::absolute_error, {"absolute_error", "largest absolute", none}),
      field(&Row::relative_error, {"relative_error", "largest relative", none}),
      field(&Row::nmse, {"nmse", "NMSE", none}),
      field(&Row::bias, {"bias", "standard errors of the mean", ratio, programs}),
      field(&Row::cases, {"cases", "cases", count}),
      field(&Row::results, {"results", "results", count, programs}),
      field(&Row::units,
            {"units_in_last_place", "off by 0, to .5, 1, 2, 4, 16, 256, more units", count}),
      field(&Row::repeatable, {"repeatable", "same bits again", none}),
      field(&Row::substituted, {"substituted", "by the host", none}),
      field(&Row::wrong, {"wrong", "wrong", none, programs})};
  fields[3].column.value = [](const Row& row) {
    return Datum(row.status).judged(tone_of(row.status));
  };
  return fields;
}

std::vector<RowField<DeviceEfficiency>> device_fields() {
  using Row = DeviceEfficiency;
  using enum Unit;
  return {field(&Row::workload, {"workload", "workload", none}),
          field(&Row::device, {"device", "device", none}),
          field(&Row::precision, {"precision", "precision", none}),
          field(&Row::efficiency, {"efficiency", "of the best", fraction}),
          field(&Row::roofline_efficiency, {"roofline_efficiency", "of the roofline", fraction}),
          field(&Row::compared, {"compared", "LibTorch has too", fraction})};
}

std::vector<RowField<OperatorTiming>> timing_fields() {
  using Row = OperatorTiming;
  using enum Unit;
  return {field(&Row::workload, {"workload", "workload", none}),
          field(&Row::device, {"device", "device", none}),
          field(&Row::precision, {"precision", "precision", none}),
          field(&Row::name, {"operator", "operator", none}),
          field(&Row::shape, {"shape", "shape", none}),
          field(&Row::pass, {"pass", "pass", none}),
          field(&Row::count, {"count", "times in a micro-batch", Unit::count}),
          field(&Row::least_s, {"least_s", "least", seconds}),
          field(&Row::ci95, {"ci95", "95 % interval", seconds}),
          field(&Row::samples_s, {"samples_s", "turns", seconds})};
}

// ---------------------------------------------------------------- sections of a record

/// The same value in a document.
Datum datum_of(const Json& json) {
  if (json.is_object()) {
    std::vector<Member> members;
    for (const auto& [key, value] : json.items()) members.push_back({key, datum_of(value)});
    return members;
  }
  if (json.is_array()) {
    std::vector<Datum> list;
    for (const Json& value : json) list.push_back(datum_of(value));
    return list;
  }
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  return json.is_number() ? Datum(json.get<std::int64_t>()) : Datum(json.get<std::string>());
}

/// The machine as the record of a run tells it, with a place for each device.
Datum machine_datum(const OperatorsRequest& request, const OperatorReport& report) {
  Placement placement;
  for (const std::string& name : request.devices) {
    RankBinding& binding = placement.bindings.emplace_back();
    binding = {host_name(), usable_cores().cpus, "", name};
    if (!read_device(name).on_gpu) continue;
    binding.gpu = 0;
    binding.device = report.gpu;
  }
  return datum_of(Json::parse(system_text(placement, report.libtorch)));
}

void add_throughput(const OperatorReport& report, Document& document) {
  if (report.timings.empty()) return;
  const auto greatest = [](std::span<const double> rates) {
    return *std::ranges::max_element(rates);
  };
  std::vector<TimedPass> passes;
  for (const OperatorTiming& timing : report.timings) {
    passes.push_back({timing.count, timing.samples_s});
  }
  const std::vector<double> rates = micro_batch_rates(passes);
  const auto say = [&](const char* key, const char* label, Datum value) {
    document.data(key, label, Unit::work_per_second, std::move(value));
  };
  say("metrics.throughput.value", "throughput of the fastest turn", greatest(rates));
  if (rates.size() > 1) {
    say("metrics.throughput.ci95", "95 % interval", bootstrap_interval(rates, greatest));
  }
  document.data("metrics.throughput.unit", "unit", Unit::none, "micro-batch/s");
}

/// Times of operators are no training, and a ranking is of trainings.
std::vector<Datum> reasons() {
  return {std::vector<Member>{{"rule", "operators"},
                              {"severity", "open"},
                              {"expected", "a training"},
                              {"actual", "times of single operators"}}};
}

void add_identity(const OperatorsRequest& request, const OperatorReport& report,
                  Document& document) {
  using enum Unit;
  const auto say = [&](const char* key, const char* label, Unit unit, Datum value) {
    document.data(key, label, unit, std::move(value));
  };
  const std::string sizes = fmt::format("{}", fmt::join(request.sized_workloads(), "+"));
  say("run_id", "report", none, report.name.run_id);
  say("created_utc", "date", none, report.name.created_utc);
  say("status", "status", none, "complete");
  say("reproduce", "command", none, "heteroperf" + request.words());
  say("program.version", "version", none, version_text());
  say("program.git_commit", "commit", none, git_commit());
  say("program.build_type", "build", none, build_text());
  say("workload.name", "what was measured", none, "operators");
  say("workload.size", "workloads", none, sizes);
  say("workload.precision", "precisions", none,
      fmt::format("{}", fmt::join(request.named_precisions(), "+")));
  say("workload.hash", "hash of the workloads", none, sha256_hex(sizes));
  say("validity.class", "validity", none, "open");
  say("validity.rankable", "can be ranked", none, false);
  say("validity.ruleset", "ruleset", none, ruleset_version);
  say("validity.reasons", "reasons", none, reasons());
  std::vector<Datum> devices;
  bool emulated = false;
  for (const std::string& name : request.devices) {
    const RankDevice device = read_device(name);
    emulated |= device.chip.has_value();
    devices.emplace_back(std::vector<Member>{{"class", device.name},
                                             {"count", 1},
                                             {"threads", request.usable_threads()},
                                             {"emulated", device.chip.has_value()}});
  }
  say("scale.ranks", "processes at a time", count, 1);
  say("scale.devices", "devices", none, std::move(devices));
  say("scale.emulated", "emulated", none, emulated);
  say("system", "machine", none, machine_datum(request, report));
  if (emulated) document.line("emulated numerics: the times are the host's, and no ranking");
}

}  // namespace

Document operators_document(const OperatorsRequest& request, const OperatorReport& report) {
  Document document{"heteroperf-operators"};
  document.data("checked", "checked", Unit::none, request.check);
  document.data("seed", "seed", Unit::count, request.seed);
  add_identity(request, report, document);
  Table table = table_by("operators", report.operators, operator_fields());
  // A score is one number and the devices' table.
  if (request.score) table.audience = Audience::programs;
  document.table(std::move(table));
  if (request.check) {
    for (const OperatorRow& row : report.operators) {
      for (const std::string& how : row.wrong) {
        document.line(fmt::format("wrong on {} in {}: {}", row.device, row.precision, how));
      }
    }
    return document;
  }
  document.table(table_by("devices", report.devices, device_fields()));
  Table timings = table_by("timings", report.timings, timing_fields());
  timings.audience = programs;
  document.table(std::move(timings));
  add_throughput(report, document);
  struct OfDevices {
    std::vector<std::optional<double>> best, roofline;
    bool has_roofline = true;  ///< where there are times, they were held to it
  };
  std::map<std::pair<std::string, std::string>, OfDevices> efficiencies;
  for (const DeviceEfficiency& device : report.devices) {
    OfDevices& known = efficiencies[{device.workload, device.precision}];
    known.best.push_back(device.efficiency);
    known.roofline.push_back(device.roofline_efficiency);
    known.has_roofline &= !device.efficiency || device.roofline_efficiency;
  }
  std::optional<double> least;
  Table by_workload{"scores",
                    "",
                    {{"workload", "workload", Unit::none},
                     {"precision", "precision", Unit::none},
                     {"score", "portability", Unit::fraction},
                     {"roofline_score", "of the roofline", Unit::fraction}}};
  for (const auto& [key, of_devices] : efficiencies) {
    const double score = performance_portability(of_devices.best).value();
    const auto roofline = performance_portability(of_devices.roofline);
    by_workload.add(
        {key.first, key.second, score, of_devices.has_roofline ? Datum(roofline) : Datum()});
    least = std::min(least.value_or(score), score);
  }
  document.table(std::move(by_workload));
  document.field("score", "performance portability", Unit::fraction, Datum(least),
                 "the least of the workloads' in a precision");
  return document;
}

void add_operators(const std::string& json, const std::string& where, OperatorReport& report) {
  const Json document = parse_strict_json(json, where, "heteroperf-operators", run_file_limits);
  read_rows(document, "operators", operator_fields(), report.operators);
  read_rows(document, "devices", device_fields(), report.devices);
  read_rows(document, "timings", timing_fields(), report.timings);
  take(document.at("system").at("libtorch"), report.libtorch);
  for (const Json& binding : document.at("system").at("binding")) {
    if (binding.contains("gpu_name")) take(binding.at("gpu_name"), report.gpu);
  }
}

std::string operators_junit(const OperatorReport& report) {
  std::string cases;
  std::size_t failures = 0, skipped = 0;
  for (const OperatorRow& row : report.operators) {
    std::string content;
    if (row.status == "wrong") {
      ++failures;
      content = fmt::format("    <failure message=\"{}\"/>\n",
                            html_text(fmt::format("{}", fmt::join(row.wrong, "; "))));
    } else if (row.status == "missing") {
      ++skipped;
      content = "    <skipped message=\"the device lacks it\"/>\n";
    }
    cases += fmt::format("  <testcase classname=\"heteroperf.ops.{}.{}\" name=\"{}\"",
                         html_text(row.device), row.precision, html_text(row.name));
    cases += content.empty() ? "/>\n" : fmt::format(">\n{}  </testcase>\n", content);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"heteroperf ops\" tests=\"{}\" failures=\"{}\" errors=\"0\" "
      "skipped=\"{}\">\n{}</testsuite>\n",
      report.operators.size(), failures, skipped, cases);
}

}  // namespace heteroperf
