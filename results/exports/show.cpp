// Shows a stored record or suite: the table at the end of a run, and its forms in CSV and Markdown.
// A row is a label, a place in the record's JSON and a function that writes what is there; where
// nothing is, or the function has nothing to say and returns an empty text, the row is left out. So
// one table of rows serves records of all workloads and of earlier versions. Metrics are taken from
// the run's digest, which finds them by the table of metrics. Records may be a stranger's: every
// text is cleaned before it is printed, and a document that lacks a key it must have is a UserError
// with its path.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/exports/run_export.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

/// Adds a line of the table; an empty value says that the record has nothing to say.
void add_row(Document& rows, std::string label, std::string value) {
  rows.field("", std::move(label), Unit::none, std::move(value));
}

// ---------------------------------------------------------------- numbers

/// "48.12 ± 0.31 Gop/s", the half width of the 95 % interval in the same prefix.
std::string rate_text(double value, const std::optional<Interval>& ci95, const std::string& unit) {
  if (!ci95) return with_prefix(value, unit) + " (too short for an interval)";
  const Scaled scaled = scale_of(value);
  return fmt::format("{:.4g} ± {:.2g} {} (95 % CI {:.4g} to {:.4g})", value / scaled.factor,
                     (ci95->high - ci95->low) / 2 / scaled.factor, prefixed(scaled, unit),
                     ci95->low / scaled.factor, ci95->high / scaled.factor);
}

/// Writes the operations per second of a suite or of one of its workloads.
std::string suite_rate(const Json& json) {
  if (json.is_null()) return {};
  std::optional<Interval> ci95;
  if (json.contains("ci95")) ci95 = {json.at("ci95").at(0), json.at("ci95").at(1)};
  return rate_text(json.at("value"), ci95, operations_unit);
}

/// Returns a text without its quotes, any other value as JSON, and nothing for an absent one.
std::string shown_text(const Json& json) {
  if (json.is_null()) return {};
  return json.is_string() ? json.get<std::string>() : json.dump();
}

/// These return a value of an object as a number, or as it stands in the JSON.
double number(const Json& json, const char* key) { return json.at(key).get<double>(); }
std::string digits(const Json& json, const char* key) { return json.at(key).dump(); }
/// The value of a metric; a record that has other parts of it but no value is refused.
double value_of(const RunDigest& run, const char* metric) {
  const auto value = run.number(metric);
  if (!value) throw UserError(fmt::format("{} has no value", metric));
  return *value;
}

// ---------------------------------------------------------------- rows of a record

constexpr std::size_t most_digits = 30;  // longer counts get no prefix

/// Writes a row such as "llm nano, 123 k parameters, fp32".
std::string workload(const Json& json) {
  const std::string name = shown_text(value_at(json, "/name"));
  if (name.empty()) return {};
  const std::string size = shown_text(value_at(json, "/size"));
  const std::string count = shown_text(value_at(json, "/parameters"));
  const bool counted = is_whole_count(count) && count.size() <= most_digits;
  const std::string parameters =
      count.empty() ? ""
                    : ", " + (counted ? with_prefix(std::stod(count), "") : count) + " parameters";
  return fmt::format("{}{}{}{}, {}", name, size.empty() ? "" : " ", size, parameters,
                     shown_text(value_at(json, "/precision")));
}

/// Writes a row such as "2 ranks, 2 × cpu with 1 thread, transport mpi".
std::string scale(const Json& json) {
  const Json ranks = value_at(json, "/ranks");
  if (ranks.is_null()) return {};
  std::string line = fmt::format("{} rank{}", ranks.dump(), ranks == 1 ? "" : "s");
  for (const Json& device : value_at(json, "/devices")) {
    line += fmt::format(", {} × {} with {} thread{}{}", digits(device, "count"),
                        shown_text(device.at("class")), digits(device, "threads"),
                        device.at("threads") == 1 ? "" : "s",
                        device.at("emulated") == true ? " (emulated)" : "");
  }
  return line + ", transport " + shown_text(value_at(json, "/transport"));
}

/// Writes samples or tokens per second, with their interval.
std::string throughput(const RunDigest& run) {
  return rate_text(value_of(run, "throughput"), run.ci95("throughput"), run.unit);
}

/// Writes "12.4 pair/s on each of 4 active devices, 6.2 pair/s on each of 8 allocated".
std::string per_device(const Json& record) {
  const Json throughput = value_at(record, "/metrics/throughput");
  const Json scale = value_at(record, "/scale");
  if (!throughput.contains("per_allocated_device") || !scale.contains("allocated")) return {};
  const std::string unit = shown_text(throughput.at("unit"));
  return fmt::format(
      "{} on each of {} active, {} on each of {} allocated",
      with_prefix(number(throughput, "per_active_device"), unit), digits(scale, "ranks"),
      with_prefix(number(throughput, "per_allocated_device"), unit), digits(scale, "allocated"));
}

std::string ops(const RunDigest& run) {
  return rate_text(value_of(run, "ops_per_second"), run.ci95("ops_per_second"), operations_unit);
}

/// Writes the rate as a share of the measured peak.
std::string utilization(const Json& json, const RunDigest& run) {
  return fmt::format("{:.1f} % of {} ({} peak)", 100 * value_of(run, "utilization"),
                     with_prefix(number(json, "peak_ops_per_second"), operations_unit),
                     shown_text(json.at("peak_source")));
}

/// The interval is of the error, from which the score follows.
std::string regulated(const Json& json, const RunDigest& run) {
  const std::string value = with_prefix(value_of(run, "regulated_score"), "");
  if (!json.contains("error_ci95")) return value;  // as written before ruleset 1.8
  const Json& error = json.at("error_ci95");
  return fmt::format("{} (error {:.3g} to {:.3g}: {} of {} answers wrong)", value,
                     error.at(0).get<double>(), error.at(1).get<double>(), digits(json, "wrong"),
                     digits(json, "answers"));
}

/// The measure, its value, the samples behind it, and the target where there is one.
std::string quality(const Json& json, const RunDigest& run) {
  std::string line = fmt::format("{} {:.4f}", run.quality_name, value_of(run, "quality"));
  if (json.contains("samples")) line += " on " + digits(json, "samples") + " samples";
  if (!json.contains("target")) return line;
  return line + fmt::format(" (target {:.6g}: {})", number(json, "target"),
                            json.at("met") == true ? "met" : "not met");
}

/// Writes the steps of the window, its length, and the time of one step.
std::string steps(const Json& metrics, const RunDigest& run) {
  if (!run.number("steps")) return {};
  std::string line = fmt::format("{} in {} after {} of warm-up", value_of(run, "steps"),
                                 seconds_text(run.number("window_s").value_or(0)),
                                 shown_text(value_at(metrics, "/warmup_steps")));
  if (!run.number("step_time_s")) return line;
  return line + fmt::format(", median {}, p95 {}", seconds_text(value_of(run, "step_time_s")),
                            seconds_text(value_of(run, "step_time_p95_s")));
}

/// The progress of a run that was to end once its throughput is known well enough.
std::string until(const Json& json) {
  const Json& looks = json.at("looks");
  const std::string when = fmt::format(
      "look {} at {}", looks.size(), seconds_text(number(looks.at(looks.size() - 1), "window_s")));
  const double asked = 100 * number(json, "requested_fraction");
  if (!json.contains("half_width_fraction")) {
    return fmt::format("± {:.3g} % not reached: too few steps for an interval ({})", asked, when);
  }
  const double half_width = 100 * number(json, "half_width_fraction");
  if (json.at("reached") == true) {
    return fmt::format("± {:.3g} % reached: ± {:.2g} % at {}", asked, half_width, when);
  }
  const std::string missed =
      fmt::format("± {:.3g} % not reached: ± {:.2g} % at {}", asked, half_width, when);
  if (!json.contains("needed_s")) return missed + ", whose steps still became faster";
  const double needed_s = std::ceil(number(json, "needed_s"));
  constexpr double longest_s = 30 * 86400.0;  // the most that --duration takes
  if (needed_s > longest_s) {
    return fmt::format("{}; it takes longer than a run may (30 days)", missed);
  }
  return fmt::format("{}; it takes {} {:.0f} s (--duration {:.0f})", missed,
                     json.at("needed_at_least") == true ? "at least" : "some", needed_s, needed_s);
}

/// Writes "own (12 of 15 shapes; 1.08 x LibTorch's)": the way that most products take, and how much
/// faster one of each is than by LibTorch's own ways, the product of its BLAS and its convolution.
std::string products(const Json& json) {
  const std::string choice = shown_text(json.at("choice"));
  if (!json.contains("measured")) return choice;
  const Json& measured = json.at("measured");
  std::map<std::string, std::size_t> counts;
  double usual_s = 0, taken_s = 0;
  for (const Json& product : measured) {
    const std::string way = shown_text(product.at("way"));
    ++counts[way];
    const Json& seconds = product.at("seconds");
    usual_s += number(seconds, seconds.contains("libtorch") ? "libtorch" : "mkl");
    taken_s += number(seconds, way.c_str());
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  if (most == counts.end() || !(taken_s > 0)) return choice;
  return fmt::format("{} ({} of {} shapes; {:.2f} x LibTorch's)", most->first, most->second,
                     measured.size(), usual_s / taken_s);
}

/// Counts the trials by their outcome.
std::string search(const Json& json) {
  return fmt::format("{} trials of {} graphs: {} completed, {} stopped, {} diverged, {} failed",
                     digits(json, "trials"), digits(json, "unique_graphs"),
                     digits(json, "completed"), digits(json, "stopped"), digits(json, "diverged"),
                     digits(json, "failed"));
}

/// Tells what the search's master did and how long groups waited for it.
std::string master(const Json& json) {
  std::string line = fmt::format("{} proposals, median {}, p99 {}", digits(json, "proposals"),
                                 seconds_text(number(json.at("proposal_s"), "median")),
                                 seconds_text(number(json.at("proposal_s"), "p99")));
  if (!json.contains("idle_fraction")) return line;
  return line +
         fmt::format("; groups waited {:.2f} % of their time", 100 * number(json, "idle_fraction"));
}

/// Writes the memory of the fullest rank, and the greatest error of the plan.
std::string memory(const Json& json, const RunDigest& run) {
  if (!json.contains("max")) return {};
  const std::string line =
      rounded_byte_size(value_of(run, "peak_memory_bytes")) + " at most per rank";
  if (!json.contains("worst_error_fraction")) return line;
  return line + fmt::format(" ({:+.1f} % against the plan where that is worst)",
                            100 * number(json, "worst_error_fraction"));
}

std::string overhead(const RunDigest& run) {
  return fmt::format("{:.2f} % of wall time", 100 * value_of(run, "measurement_overhead_fraction"));
}

/// Writes HSR, the ratio of the mix to the sum of its classes alone, and the gain over the best
/// one.
std::string figures(const Json& json) {
  return fmt::format("HSR {:.3f}, {:.2f} x {} alone", number(json, "hsr"), number(json, "gain"),
                     shown_text(json.at("best_class")));
}

/// The ranks' time without computing, predicted and measured. Nothing for one rank, which waits for
/// nobody.
std::string bubble(const Json& record) {
  const Json measured = value_at(record, "/prediction/measured/bubble_rate");
  const Json predicted = value_at(record, "/prediction/bubble_rate");
  if (!measured.is_null() && !predicted.is_null()) {
    return fmt::format("{:.1f} % not computing (predicted {:.1f} %)", 100 * measured.get<double>(),
                       100 * predicted.get<double>());
  }
  const Json ranks = value_at(record, "/time_split_s/per_rank");
  if (!ranks.is_array() || ranks.size() < 2) return {};
  double wall_s = 0, compute_s = 0, bubble_s = 0;
  for (const Json& rank : ranks) {
    wall_s += number(rank, "wall");
    compute_s += number(rank, "compute");
    bubble_s += number(rank, "bubble");
  }
  if (wall_s <= 0) return {};
  return fmt::format("{:.1f} % not computing, {:.1f} % waiting for other ranks",
                     100 * (1 - compute_s / wall_s), 100 * bubble_s / wall_s);
}

std::string prediction(const Json& json) {
  std::string line = fmt::format("step {} predicted", seconds_text(number(json, "step_time_s")));
  const Json measured = value_at(json, "/measured/step_time_s");
  if (measured.is_null() || !json.contains("error_fraction")) return line;
  return line + fmt::format(", {} measured ({:+.1f} %)", seconds_text(measured.get<double>()),
                            100 * number(json, "error_fraction"));
}

/// The looks at the plan, and the last new one with its outcome.
std::string adaptation(const Json& json) {
  const Json& looks = json.at("looks");
  std::string line =
      fmt::format("plan changed {} times in {} looks, {} without training",
                  digits(json, "plan_changes"), looks.size(), seconds_text(number(json, "away_s")));
  for (auto look = looks.rbegin(); look != looks.rend(); ++look) {
    if (!look->contains("outcome")) continue;
    return line + fmt::format("; step {} predicted, {} measured after step {}",
                              seconds_text(number(*look, "new_step_s")),
                              seconds_text(number(look->at("outcome"), "step_time_s")),
                              digits(*look, "n"));
  }
  return line;
}

std::string pacing(const Json& json) {
  return fmt::format("modelled time x {:.4g}, {:.2f} % of {} operations late",
                     number(json, "dilation"), 100 * number(json, "late_fraction"),
                     digits(json, "operations"));
}

/// The figures, and how far the mix's losses are from those of each class alone.
std::string hetero(const Json& json) {
  std::string line;
  if (json.contains("hsr")) line = figures(json);
  if (json.contains("planned")) {
    const std::string planned = figures(json.at("planned"));
    line = line.empty() ? "planned " + planned : line + " (planned " + planned + ")";
  }
  std::string apart;
  for (const Json& alone : json.at("baselines")) {
    if (!alone.contains("loss_difference")) continue;
    apart += fmt::format("{} {:.2e} from {} alone", apart.empty() ? "; losses" : ",",
                         number(alone, "loss_difference"), shown_text(alone.at("device_class")));
  }
  return line + apart;
}

/// A count of operations with its prefix; one that is no number is written as it stands.
std::string count_text(const Json& json, const char* key) {
  const std::string count = shown_text(json.at(key));
  const bool counted = is_whole_count(count) && count.size() <= most_digits;
  return counted ? with_prefix(std::stod(count), "op") : count;
}

/// Writes the work of a step for one component, its part of the time and the bytes that leave it.
std::string component(const Json& json) {
  std::string line =
      fmt::format("{}: {} a step", shown_text(json.at("name")), count_text(json, "strict"));
  if (json.contains("recompute")) line += fmt::format(", {} again", count_text(json, "recompute"));
  line += fmt::format(", {} on padding", count_text(json, "padding"));
  if (json.contains("time_fraction")) {
    line += fmt::format("; {:.1f} % of the computing", 100 * number(json, "time_fraction"));
  }
  if (!json.contains("border_bytes")) return line;
  const Json& bytes = json.at("border_bytes");
  return line + fmt::format("; sends {} (planned {}, at least {})",
                            rounded_byte_size(number(bytes, "measured")),
                            rounded_byte_size(number(bytes, "planned")),
                            rounded_byte_size(number(bytes, "least")));
}

/// A complete run has no such row.
std::string status(const Json& record) {
  const std::string name = shown_text(value_at(record, "/status"));
  if (name == "complete") return {};
  return name + ": " + shown_text(value_at(record, "/status_reason"));
}

/// The class of the run; only `closed` runs are rankable.
void add_validity(const Json& r, Document& rows) {
  const std::string name = shown_text(value_at(r, "/validity/class"));
  const bool rankable = value_at(r, "/validity/rankable") == true;
  rows.field("", "validity", Unit::none,
             Datum(fmt::format("{}, {}", name, rankable ? "rankable" : "not rankable"))
                 .judged(name == "closed"    ? Tone::good
                         : name == "invalid" ? Tone::bad
                                             : Tone::doubtful));
}

/// A row of the table, made of the part of a record at `pointer` and of the metrics of its run;
/// left out where that part is absent.
struct RowRule {
  const char* label;
  const char* pointer;
  std::string (*value)(const Json& part, const RunDigest& run);
};
/// Rows that need the one or the other.
template <std::string (*text)(const Json&)>
std::string part_row(const Json& part, const RunDigest&) {
  return text(part);
}
template <std::string (*text)(const RunDigest&)>
std::string metric_row(const Json&, const RunDigest& run) {
  return text(run);
}
/// The rows are shown in this order.
constexpr std::array record_table{
    RowRule{"workload", "/workload", part_row<workload>},
    RowRule{"scale", "/scale", part_row<scale>},
    RowRule{"plan", "/plan_summary", part_row<shown_text>},
    RowRule{"status", "", part_row<status>},
    RowRule{"throughput", "/metrics/throughput", metric_row<throughput>},
    RowRule{"per device", "", part_row<per_device>},
    RowRule{"OPS", "/metrics/ops_per_second", metric_row<ops>},
    RowRule{"utilization", "/metrics/utilization", utilization},
    RowRule{"products", "/products", part_row<products>},
    RowRule{"quality", "/metrics/quality", quality},
    RowRule{"regulated score", "/metrics/regulated_score", regulated},
    RowRule{"steps", "/metrics", steps},
    RowRule{"until", "/metrics/until", part_row<until>},
    RowRule{"prediction", "/prediction", part_row<prediction>},
    RowRule{"adaptation", "/adaptation", part_row<adaptation>},
    RowRule{"bubble", "", part_row<bubble>},
    RowRule{"mixed classes", "/metrics/hetero", part_row<hetero>},
    RowRule{"pacing", "/pacing", part_row<pacing>},
    RowRule{"search", "/search", part_row<search>},
    RowRule{"search master", "/search/master", part_row<master>},
    RowRule{"peak memory", "/metrics/peak_memory_bytes", memory},
    RowRule{"measuring", "/metrics/measurement_overhead_fraction", metric_row<overhead>}};

/// A suite's rule `workload` names in `parameter` which of them it is about.
std::string rule_name(const Json& reason) {
  const std::string rule = shown_text(reason.at("rule"));
  return rule == "workload" ? rule + " " + shown_text(reason.at("parameter")) : rule;
}

/// Adds a line per broken rule: what was expected, what was found, and a hint.
void add_reasons(const Json& document, Document& rows) {
  for (const Json& reason : value_at(document, "/validity/reasons")) {
    add_row(rows, "",
            fmt::format("{} ({}): expected {}, found {}. {}", rule_name(reason),
                        shown_text(reason.at("severity")), shown_text(reason.at("expected")),
                        shown_text(reason.at("actual")), shown_text(reason.at("hint"))));
  }
}

/// True when a warning on the way is among the reasons at the end.
bool is_reason(const Json& rule, const Json& record) {
  const Json reasons = value_at(record, "/validity/reasons");
  return std::any_of(reasons.begin(), reasons.end(),
                     [&](const Json& reason) { return reason.at("rule") == rule; });
}

Document record_rows(const Json& record, const RunDigest& run, const std::string& folder) {
  Document rows{record_format};
  for (const RowRule& rule : record_table) {
    const Json part = value_at(record, rule.pointer);
    if (!part.is_null()) add_row(rows, rule.label, rule.value(part, run));
  }
  for (const Json& part : value_at(record, "/components")) {
    add_row(rows, "component", component(part));
  }
  add_validity(record, rows);
  add_reasons(record, rows);
  for (const Json& warning : value_at(record, "/warnings")) {
    if (!is_reason(value_at(warning, "/rule"), record)) {
      add_row(rows, "warning", shown_text(warning.at("text")));
    }
  }
  add_row(rows, "record", (std::filesystem::path(folder) / "record.json").string());
  add_row(rows, "reproduce", shown_text(value_at(record, "/reproduce")));
  return rows;
}

Document suite_rows(const Json& suite, const std::string& folder) {
  Document rows{record_format};
  for (const Json& part : suite.at("workloads")) {
    const std::string score = suite_rate(value_at(part, "/ops_per_second"));
    add_row(rows, shown_text(part.at("folder")),
            fmt::format("{}, {}, {}", score.empty() ? "no score" : score,
                        shown_text(value_at(part, "/status")),
                        part.contains("class") ? shown_text(part.at("class")) : "no record"));
  }
  add_row(rows, "suite OPS", suite_rate(value_at(suite, "/metrics/ops_per_second")));
  add_validity(suite, rows);
  add_reasons(suite, rows);
  add_row(rows, "record", (std::filesystem::path(folder) / "suite.json").string());
  return rows;
}

// ---------------------------------------------------------------- layouts

/// Columns of the CSV form, raw values in base units: metrics by their names, other values by their
/// places in the record.
constexpr std::array csv_columns{"/run_id",
                                 "/created_utc",
                                 "/status",
                                 "/validity/class",
                                 "/validity/rankable",
                                 "/workload/name",
                                 "/workload/size",
                                 "/workload/precision",
                                 "/scale/ranks",
                                 "/scale/transport",
                                 "ops_per_second",
                                 "/metrics/ops_per_second/ci95/0",
                                 "/metrics/ops_per_second/ci95/1",
                                 "throughput",
                                 "/metrics/throughput/ci95/0",
                                 "/metrics/throughput/ci95/1",
                                 "/metrics/throughput/unit",
                                 "regulated_score",
                                 "/metrics/quality/name",
                                 "quality",
                                 "step_time_s",
                                 "step_time_p95_s",
                                 "steps",
                                 "/metrics/warmup_steps",
                                 "window_s",
                                 "utilization",
                                 "peak_memory_bytes",
                                 "operations_strict"};

std::string pointer_of(const char* column) {
  return *column == '/' ? column : record_metrics()[metric_place(column)].pointer;
}

/// Column names are the record's paths with dots.
std::string csv_header() {
  std::string line;
  for (const char* column : csv_columns) {
    std::string name = pointer_of(column).substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    line += (line.empty() ? "" : ",") + name;
  }
  return line + '\n';
}

std::string csv_line(const Json& record) {
  std::string line;
  for (const char* column : csv_columns) {
    if (column != csv_columns.front()) line += ',';
    line += csv_cell(shown_text(value_at(record, pointer_of(column))));
  }
  return line + '\n';
}

/// A suite's CSV has a line per workload that has a record.
std::string suite_csv(const Json& suite, const std::filesystem::path& folder) {
  std::string lines = csv_header();
  for (const Json& part : suite.at("workloads")) {
    const RunFiles files{part_of(folder, shown_text(part.at("folder")))};
    if (!std::filesystem::exists(files.record())) continue;
    lines += csv_line(read_stored_document(files.record(), record_format));
  }
  return lines;
}

}  // namespace

std::string show_record(const std::string& record_text, const std::string& folder,
                        DocumentForm form, const TextStyle& style) {
  const std::string origin = (std::filesystem::path(folder) / "record.json").string();
  const Json record = parse_stored_document(record_text, origin, record_format);
  if (form == DocumentForm::json) return record_text;
  const RunDigest run = parse_run_digest(record_text, origin);
  return of_document(origin, record_format, [&] {
    if (form == DocumentForm::csv) return csv_header() + csv_line(record);
    return document_text(record_rows(record, run, folder), form, style);
  });
}

std::string show(const std::filesystem::path& path, DocumentForm form, const TextStyle& style) {
  const RunFiles files = open_run_folder(path);
  if (!std::filesystem::exists(files.suite())) {
    return show_record(read_run_file(files.record()), files.folder.string(), form, style);
  }
  const std::string suite_text = read_regular_file(files.suite());
  const Json suite = parse_stored_document(suite_text, files.suite().string(), suite_format);
  if (form == DocumentForm::json) return suite_text;
  return of_document(files.suite(), suite_format, [&] {
    if (form == DocumentForm::csv) return suite_csv(suite, files.folder);
    return document_text(suite_rows(suite, files.folder.string()), form, style);
  });
}

}  // namespace heteroperf
