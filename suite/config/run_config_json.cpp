// Gives every member of RunConfig its dotted path, its meaning, its flag and its range, in one list
// that a *visitor* walks. Writing the document, reading it back, --set, flags, ranges, --help, the
// README's table and the comparison with defaults are all visitors of this list, so a new key is a
// member of RunConfig and one row here.
//
// The document leaves out keys that mean nothing to the configuration, such as a search's keys in a
// training; a reader gives them their defaults. Parsing is strict: unknown keys and values of
// another type are problems that name the nearest key or the expected type. `quick` can be read
// from a document but not be set, because the record marks a quick run as one that is never ranked.
#include "suite/config/run_config_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>

#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/help_page.hpp"

namespace heteroperf {
namespace {

constexpr int config_version = 1;

// Parts of a key's row that only some keys have.
struct Flag {
  const char* name;  ///< an option of `run`: "--ranks"
};
struct ValueName {
  const char* word;  ///< help pages write it for a text: FILE; else NAME
};
struct Open {
  const char* text;  ///< stands for the choice where nothing, or 0, is chosen
};
struct ReadBy {
  const char* workloads;  ///< the only ones that read the key
};
struct Range {
  double low, high;
};
/// The names that a text may have.
using Choices = std::vector<std::string> (*)();

/// One key of the tree, as parsing, checks, flags, help and README know it.
struct KeyInfo {
  template <class... Parts>
  KeyInfo(const char* path_, const char* help_, Parts... given) : path(path_), help(help_) {
    (std::get<std::optional<Parts>>(parts).emplace(given), ...);
  }
  template <class Part>
  const std::optional<Part>& part() const {
    return std::get<std::optional<Part>>(parts);
  }

  const char *path, *help;
  std::tuple<std::optional<Flag>, std::optional<ValueName>, std::optional<Open>,
             std::optional<ReadBy>, std::optional<Range>, std::optional<Choices>>
      parts;
};

/// The generators are the one list of schedules.
std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.emplace_back(generator.name);
  return names;
}

// Limits lie far beyond any machine: they catch typing errors and overflows.
constexpr double many = 1e9, most_ranks = 1e6, most_seconds = 30 * 86400.0;
constexpr double unlimited = std::numeric_limits<double>::max();
constexpr Range at_least_0{0, unlimited}, above_0{std::numeric_limits<double>::min(), unlimited};

// Reading, writing, checks and the help walk the same list of members, so they cannot drift apart.
template <class Visitor>
void visit_members(RunConfig& c, Visitor&& visit) {
  constexpr Open own{"the workload's"};
  constexpr ReadBy fixed{"image llm"}, search{"automl-image"};
  visit(c.workload, {"workload", "what is run: a name of `list workloads`", Open{"all of them"},
                     Choices{workload_names}});
  visit(c.quick, {"quick", "set by --quick alone"});
  visit(c.seed, {"seed", "of weights, order of samples, dropout and search", Flag{"--seed"}});
  visit(c.out, {"out", "run folder, new or empty", Flag{"--out"}, ValueName{"DIR"},
                Open{"results/<UTC>-<workload>-<id>"}});
  visit(c.rank_logs, {"rank_logs",
                      "a log of every rank in the run folder, rank-0.log and on: phases, progress, "
                      "warnings, errors",
                      Flag{"--rank-logs"}});
  visit(c.trace, {"trace", "write where the time of 3 steps went on every rank, for Perfetto",
                  Flag{"--trace"}, ValueName{"FILE"}, Open{"none"}, fixed});
  visit(c.with_baselines,
        {"with_baselines", "also run each class of a mixed --cluster alone, and compare",
         Flag{"--with-baselines"}, fixed});
  visit(c.model.size,
        {"model.size",
         "of llm a size of `list models`, of automl-image w16 to w512; auto: fits the machine",
         Flag{"--size"}, ReadBy{"automl-image llm"}});
  visit(c.model.name,
        {"model.name", "a classifier of `list models`", Flag{"--model"}, ReadBy{"image"}});
  visit(c.model.precision, {"model.precision", "number format of the model; fp64 is never ranked",
                            Flag{"--precision"}});
  visit(c.model.sequence_length, {"model.sequence_length", "tokens of a sample", Open{"the size's"},
                                  ReadBy{"llm"}, Range{0, most_ranks}});
  visit(c.data.source, {"data.source", "generated, idx:DIR, cifar10:DIR, text:FILE or tokens:FILE",
                        Flag{"--data"}, ValueName{"SOURCE"}});
  visit(c.scale.ranks, {"scale.ranks", "ranks to start", Flag{"--ranks"},
                        Open{"one per usable core"}, Range{0, most_ranks}});
  visit(c.scale.threads_per_rank,
        {"scale.threads_per_rank", "threads inside a rank", Flag{"--threads-per-rank"},
         Open{"cores / ranks"}, Range{0, 4096}});
  visit(c.scale.transport,
        {"scale.transport",
         "what joins the ranks; threads is one process, the others start mpirun themselves",
         Flag{"--transport"}});
  visit(c.scale.device,
        {"scale.device", "of all ranks, or a list by rank as cuda,cpu", Flag{"--device"}});
  visit(c.scale.bind,
        {"scale.bind", "of ranks to cores; none leaves their placement to the system"});
  visit(c.batch.micro_batch, {"batch.micro_batch", "samples per replica and micro-batch",
                              Flag{"--micro-batch"}, own, Range{0, most_ranks}});
  visit(c.batch.micro_batches, {"batch.micro_batches", "micro-batches per step",
                                Flag{"--micro-batches"}, own, Range{0, most_ranks}});
  visit(c.plan.pipeline,
        {"plan.pipeline", "positions of the pipeline", Flag{"--pp"}, fixed, Range{1, most_ranks}});
  visit(c.plan.tensor, {"plan.tensor", "ranks that share every layer (tensor parallelism)",
                        Flag{"--tp"}, fixed, Range{1, most_ranks}});
  visit(c.plan.data, {"plan.data", "replicas", Flag{"--dp"}, Open{"what is left of the ranks"},
                      fixed, Range{0, most_ranks}});
  visit(c.plan.chunks, {"plan.chunks", "stages per position", Flag{"--chunks"},
                        Open{"the schedule's"}, fixed, Range{0, most_ranks}});
  visit(c.plan.schedule, {"plan.schedule", "of the pipeline: a name of `list schedules`, or auto",
                          Flag{"--schedule"}, fixed, Choices{schedule_names}});
  visit(c.plan.recompute,
        {"plan.recompute", "which activations are computed again; selective: those of attention",
         fixed});
  visit(c.plan.zero_stage,
        {"plan.zero_stage", "1 spreads optimizer states over replicas", fixed, Range{0, 1}});
  visit(c.plan.sequence_parallel,
        {"plan.sequence_parallel", "norms and sums of tensor-parallel ranks by rows", fixed});
  visit(c.plan.file, {"plan.file", "a plan in place of the other plan.* and batch.*",
                      Flag{"--plan"}, ValueName{"FILE"}, Open{"none"}, fixed});
  visit(c.cluster.file,
        {"cluster.file",
         "a cluster description, or the name of a shipped one; its paced classes are emulated",
         Flag{"--cluster"}, ValueName{"FILE"}, Open{"the plan's, or this machine"}, fixed});
  visit(c.pace.dilation, {"pace.dilation", "real seconds per modelled one of emulated devices",
                          Open{"measured"}, fixed, Range{0, many}});
  visit(c.optimizer.name, {"optimizer.name", "update rule", own});
  visit(c.optimizer.schedule,
        {"optimizer.schedule", "course of the learning rate; constant in a training by time", own});
  visit(c.optimizer.learning_rate,
        {"optimizer.learning_rate", "a search chooses its own", own, fixed, above_0});
  visit(c.optimizer.weight_decay,
        {"optimizer.weight_decay", "of the weights, per step", own, at_least_0});
  visit(c.optimizer.clip_norm,
        {"optimizer.clip_norm", "largest norm of the gradient; 0: no clipping", own, at_least_0});
  visit(c.optimizer.warmup_steps,
        {"optimizer.warmup_steps", "the rate grows from 0 over them", own, Range{0, many}});
  visit(c.measure.duration_s, {"measure.duration_s", "length of the measured phase",
                               Flag{"--duration"}, Range{0.1, most_seconds}});
  visit(c.measure.steps,
        {"measure.steps", "optimizer steps per group of ranks, instead of a duration",
         Flag{"--steps"}, Open{"by duration"}, Range{0, many}});
  visit(c.measure.until_percent, {"measure.until_percent",
                                  "ends the phase earlier, once half of the throughput's 95 % "
                                  "interval is within so many percent of it",
                                  Flag{"--until"}, Open{"none"}, fixed, Range{0.1, 50}});
  visit(c.measure.until_after_s,
        {"measure.until_after_s", "measured before that interval is looked at", fixed,
         Range{0, most_seconds}});
  visit(c.measure.warmup_steps,
        {"measure.warmup_steps", "at least; the steady-window rule may cut more", Range{1, many}});
  visit(c.measure.evaluation_samples,
        {"measure.evaluation_samples",
         "of the validation split, at the end; of a classifier at least, until 100 were wrong",
         Range{1, many}});
  visit(c.measure.peak_s,
        {"measure.peak_s", "measuring the peak of products, before a run and after it; 0: not",
         Range{0, 60}});
  visit(c.measure.replay_steps,
        {"measure.replay_steps", "of a group, after which the run ends without a result",
         Open{"never"}});
  visit(c.measure.replay_moved,
        {"measure.replay_moved", "of a replay: from values moved by as much as rounding may"});
  visit(c.automl.group_ranks, {"automl.group_ranks", "ranks that train one trial together", search,
                               Range{1, most_ranks}});
  visit(c.automl.first_rung_steps,
        {"automl.first_rung_steps", "steps to the first comparison of trials", search,
         Range{1, many}});
  visit(c.automl.reduction,
        {"automl.reduction", "a rung keeps one in so many", search, Range{2, 100}});
  visit(c.automl.rungs, {"automl.rungs", "comparisons up to a trial's end", search, Range{1, 20}});
  visit(c.automl.evaluation_samples,
        {"automl.evaluation_samples", "per rung; at the end at least", search, Range{1, many}});
  visit(c.automl.history, {"automl.history", "a run folder whose trials the search starts from",
                           ValueName{"DIR"}, Open{"none"}, search});
  visit(c.comm.timeout_s,
        {"comm.timeout_s", "a wait fails when its peer shows no sign of life so long",
         Range{1, 86400}});
  visit(c.comm.heartbeat_s, {"comm.heartbeat_s", "between two signs of life", Range{0.01, 60}});
  visit(c.comm.join_timeout_s,
        {"comm.join_timeout_s", "until all ranks of the launcher have come", Range{1, 86400}});
  visit(c.comm.host_path, {"comm.host_path", "the fastest way inside a host that MPI may take"});
  visit(c.comm.check,
        {"comm.check", "ranks that disagree about an operation are found and named; slower"});
  visit(c.checkpoint.every_steps,
        {"checkpoint.every_steps", "a checkpoint after every so many steps", Open{"none"}, fixed,
         Range{0, many}});
  visit(c.checkpoint.every_s,
        {"checkpoint.every_s", "a checkpoint when the last is so many seconds old", Open{"none"},
         fixed, Range{0, most_seconds}});
  visit(c.checkpoint.keep,
        {"checkpoint.keep", "newest checkpoints that stay; 0: all", fixed, Range{0, most_ranks}});
  visit(c.checkpoint.at_end, {"checkpoint.at_end", "a checkpoint after the last step", fixed});
}

template <class T>
T value_in(const T& member);
template <class T>
T value_in(const std::optional<T>& member);
/// The type of a member's value, whether it may be absent or not.
template <class Member>
using ValueOf = decltype(value_in(std::declval<Member>()));

Json to_value(const Percent& percent) { return percent.value; }
Json to_value(const std::vector<RankDevice>& devices) { return to_string(devices); }
template <class T>
Json to_value(const T& value) {
  if constexpr (std::is_enum_v<T>) return to_string(value);
  return value;
}
template <class T>
Json to_value(const std::optional<T>& value) {
  return value ? to_value(*value) : Json();
}

/// An empty member is left out of the document; numbers and truth values are never empty.
bool is_empty(const Json& value) { return value.is_null() || value == ""; }

/// The text that --set would take for this value.
std::string to_words(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// True where the key means something to the configuration.
bool speaks(const RunConfig& config, const KeyInfo& key) {
  const std::string path = key.path;
  if (path == "measure.steps") return config.measure.steps > 0;
  if (path == "measure.duration_s") return config.measure.steps == 0;
  if (path.starts_with("measure.until_") && config.measure.until_percent.value == 0) return false;
  if (path.starts_with("measure.replay_") && config.measure.replay_steps == 0) return false;
  // A plan file says all of these itself.
  const bool in_plan = path.starts_with("plan.") || path.starts_with("batch.");
  if (in_plan && path != "plan.file" && !config.plan.file.empty()) return false;
  if (config.workload.empty()) return true;
  // Trials are judged on automl.evaluation_samples; a suite's settings may still name both.
  if (path == "measure.evaluation_samples" && config.workload == "automl-image") return false;
  const auto having = workloads_with(path);
  return std::find(having.begin(), having.end(), config.workload) != having.end();
}

/// The visitor takes members that can be changed, so it gets a copy.
Json to_tree(const RunConfig& config) {
  Json flat{{"/_format", "heteroperf-config"}, {"/_version", config_version}};
  RunConfig copy = config;
  visit_members(copy, [&](auto& member, const KeyInfo& key) {
    const Json value = to_value(member);
    if (is_empty(value) || !speaks(config, key)) return;
    std::string place = std::string("/") + key.path;
    std::replace(place.begin(), place.end(), '.', '/');
    flat[place] = value;
  });
  return flat.unflatten();
}

/// Lists the paths of all keys that begin with `prefix`.
std::vector<std::string> paths(const std::string& prefix) {
  std::vector<std::string> all;
  RunConfig config;
  visit_members(config, [&](auto&, const KeyInfo& key) {
    if (std::string(key.path).starts_with(prefix)) all.emplace_back(key.path);
  });
  return all;
}

bool is_seconds(const std::string& path) { return path.ends_with("_s"); }

/// The names of a value that is an enum or a list of them; empty for others.
template <class T>
std::vector<std::string> names_of_type() {
  if constexpr (std::is_same_v<T, std::vector<RankDevice>>) return names_of_type<RankDevice>();
  if constexpr (std::is_enum_v<T>) {
    const auto names = value_names(T{});
    return {names.begin(), names.end()};
  }
  return {};
}

/// Says of which type the key's value is.
template <class T>
const char* type_name(const std::string& path) {
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, Percent>) return "a percentage, such as 1% or 0.5";
  if (is_seconds(path)) return "a number of seconds, without a unit";
  if constexpr (std::is_floating_point_v<T>) return "a finite number";
  return std::is_unsigned_v<T> ? "a whole number of at least 0" : "a whole number";
}

std::string to_text(const Range& range, const char* unit) {
  if (range.high < unlimited) return fmt::format("{} to {}{}", range.low, range.high, unit);
  return range.low > 0 ? "above 0" : "at least 0";
}

/// Says which values the key takes: a range, names, or what a text stands for.
template <class T>
std::string values_of(const KeyInfo& key) {
  const char* unit = std::is_same_v<T, Percent> ? " %" : is_seconds(key.path) ? " s" : "";
  if (key.part<Range>()) return to_text(*key.part<Range>(), unit);
  if (key.part<ValueName>()) return key.part<ValueName>()->word;
  if (key.part<Choices>()) return fmt::format("{}", fmt::join((*key.part<Choices>())(), ", "));
  if (!names_of_type<T>().empty()) return fmt::format("{}", fmt::join(names_of_type<T>(), ", "));
  if (std::is_same_v<T, std::string>) return "NAME";
  return std::is_same_v<T, bool> ? "true, false" : "at least 0";
}

/// Names the value of the key's flag for a help page; a switch has none.
template <class T>
std::string value_name_of(const KeyInfo& key) {
  if constexpr (std::is_same_v<T, bool>) return "";
  if constexpr (std::is_same_v<T, Percent>) return "PCT";
  if constexpr (std::is_arithmetic_v<T>) return is_seconds(key.path) ? "S" : "N";
  return key.part<ValueName>() ? key.part<ValueName>()->word : "NAME";
}

/// Says what a flag takes that refuses 0, because nobody means "choose for me" who types a number.
template <class T>
std::string least_of_flag(const KeyInfo& key) {
  if (std::is_same_v<T, Percent>) return values_of<T>(key);
  const bool refuses = key.part<Range>() && (key.part<Open>() || key.part<Range>()->low > 0);
  if (!refuses) return "";
  return is_seconds(key.path) ? "above 0 seconds" : "at least 1";
}

bool parse_text(const std::string& text, std::string& out) {
  out = text;
  return true;
}

bool parse_text(const std::string& text, bool& out) {
  out = text == "true" || text == "1";
  return out || text == "false" || text == "0";
}

template <class T>
bool parse_text(const std::string& text, T& out) {
  if constexpr (std::is_enum_v<T>) {
    const auto names = value_names(out);
    const auto place = std::find(names.begin(), names.end(), text);
    out = static_cast<T>(place - names.begin());
    return place != names.end();
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(out)) return false;
    }
    return error == std::errc{} && end == text.data() + text.size() && !text.empty();
  }
}

bool parse_text(const std::string& text, std::vector<RankDevice>& out) {
  std::istringstream list(text + ',');
  bool all_known = true;
  out.clear();
  for (std::string name; std::getline(list, name, ',');) {
    all_known &= parse_text(name, out.emplace_back());
  }
  return all_known;
}

bool parse_text(const std::string& text, Percent& out) {
  return parse_text(text.ends_with('%') ? text.substr(0, text.size() - 1) : text, out.value);
}

template <class T>
bool parse_value(const Json& value, T& out) {
  if (std::is_same_v<T, std::string> || !names_of_type<T>().empty()) {
    return value.is_string() && parse_text(value.get<std::string>(), out);
  }
  // A number in quotes is text, not a number.
  return !value.is_string() && !value.is_structured() && !value.is_null() &&
         parse_text(value.dump(), out);
}

/// Lists the leaves of the tree with their dotted paths.
void flatten(const Json& tree, const std::string& prefix,
             std::vector<std::pair<std::string, Json>>& out) {
  for (const auto& [key, value] : tree.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      flatten(value, path, out);
    } else {
      out.emplace_back(path, value);
    }
  }
}

void report_unknown_name(ProblemList& problems, const std::string& shown_value,
                         const std::string& name, const std::vector<std::string>& valid) {
  problems.add(shown_value + " is not known", fmt::format("one of {}", fmt::join(valid, " ")),
               suggest_name(name, valid));
}

/// A prefix limits the suggestions to keys that the verb has.
void report_unknown(ProblemList& problems, const std::string& path,
                    const std::string& prefix = "") {
  problems.add("unknown configuration key '" + path + "'", "",
               suggest_name(path, paths(prefix), "See --help of the verb for the keys"));
}

// `Text` is a setting's value or a parsed JSON value; `read` tells how to turn it into a member.
template <class Text, class Read>
void assign(RunConfig& config, const std::string& path, const Text& value,
            const std::string& shown_value, ProblemList& problems, Read&& read) {
  bool found = false;
  visit_members(config, [&](auto& member, const KeyInfo& key) {
    // The visitor sees every member; only one has this path.
    if (path != key.path) return;
    found = true;
    using T = ValueOf<decltype(member)>;
    T parsed{};
    if (read(value, parsed)) {
      member = parsed;
    } else if (const auto names = names_of_type<T>(); !names.empty()) {
      // The letters of this word are nearer to another name than to the one it means.
      const std::string name = to_words(value) == "gpu" ? "cuda" : to_words(value);
      report_unknown_name(problems, shown_value, name, names);
    } else {
      problems.add(shown_value + " is not usable", std::string("expected ") + type_name<T>(path));
    }
  });
  if (!found) report_unknown(problems, path);
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys;
    RunConfig config;
    visit_members(config, [&](auto& member, const KeyInfo& key) {
      using T = ValueOf<decltype(member)>;
      if (std::string(key.path) == "quick") return;
      const std::string names = names_of_type<T>().empty() ? "" : values_of<T>(key) + ": ";
      keys.push_back(
          {.path = key.path,
           .flag = key.part<Flag>() ? key.part<Flag>()->name : "",
           .value_name = value_name_of<T>(key),
           .least_of_flag = least_of_flag<T>(key),
           .values = values_of<T>(key),
           .default_text = key.part<Open>() ? key.part<Open>()->text : to_words(to_value(member)),
           .help = names + key.help});
    });
    return keys;
  }();
  return all;
}

std::string config_keys_text(const std::string& prefix) {
  std::string text = "Keys for --set KEY=VALUE (default) meaning:\n";
  for (const ConfigKey& key : config_keys()) {
    if (!key.path.starts_with(prefix)) continue;
    text += help_entry("  " + key.path, fmt::format("({}) {}", key.default_text, key.help));
  }
  return text;
}

void check_values(const RunConfig& config, const std::vector<Setting>& settings,
                  const std::string& prefix, ProblemList& problems) {
  RunConfig copy = config;
  visit_members(copy, [&](auto& member, const KeyInfo& key) {
    using T = ValueOf<decltype(member)>;
    const Json value = to_value(member);
    if (is_empty(value) || !std::string(key.path).starts_with(prefix)) return;
    if (key.part<Choices>()) {
      const std::vector<std::string> valid = (*key.part<Choices>())();
      if (std::find(valid.begin(), valid.end(), value) != valid.end()) return;
      const std::string shown_name = shown_value(settings, key.path, to_words(value));
      return report_unknown_name(problems, shown_name, to_words(value), valid);
    }
    if (!key.part<Range>()) return;
    const Range& range = *key.part<Range>();
    const double number = value.template get<double>();
    // A percentage of 0 is none.
    if (std::is_same_v<T, Percent> && number == 0) return;
    if (number >= range.low && number <= range.high) return;
    problems.add(shown_value(settings, key.path, fmt::format("{}", number)) + " is out of range",
                 values_of<T>(key));
  });
}

std::vector<std::string> workloads_with(const std::string& path) {
  std::vector<std::string> having = workload_names();
  RunConfig config;
  visit_members(config, [&](auto&, const KeyInfo& key) {
    if (path != key.path || !key.part<ReadBy>()) return;
    std::istringstream words(key.part<ReadBy>()->workloads);
    // The list is words in one text, because the table is constant.
    having.assign(std::istream_iterator<std::string>(words), {});
  });
  return having;
}

std::vector<Setting> changed_settings(const RunConfig& config, const RunConfig& from) {
  std::map<std::string, Json> before;
  RunConfig copy = from;
  visit_members(copy,
                [&](auto& member, const KeyInfo& key) { before[key.path] = to_value(member); });
  std::vector<Setting> changed;
  copy = config;
  visit_members(copy, [&](auto& member, const KeyInfo& key) {
    const std::string path = key.path;
    // Folders and logs say where a run writes, not what it does, and are no change.
    if (path == "workload" || path == "quick" || path == "out" || path == "rank_logs" ||
        path == "trace") {
      return;
    }
    if (to_value(member) != before[path]) changed.push_back({path, to_words(to_value(member))});
  });
  return changed;
}

std::string to_json_text(const RunConfig& config) { return to_tree(config).dump(2) + "\n"; }

RunConfig run_config_from_json_text(const std::string& text) {
  constexpr const char *origin = "the configuration", *format = "heteroperf-config";
  Json tree = parse_strict_json(text, origin, format);
  require_format(tree, origin, format, config_version);
  tree.erase("_format");
  tree.erase("_version");
  std::vector<std::pair<std::string, Json>> values;
  flatten(tree, "", values);
  // Keys that the workload does not have are not written: they have their defaults.
  RunConfig config = tree.value("quick", false) ? quick_config() : RunConfig();
  ProblemList problems;
  for (const auto& [path, value] : values) {
    assign(config, path, value, path + " = " + value.dump(), problems,
           [](const Json& v, auto& member) { return parse_value(v, member); });
  }
  problems.throw_if_any();
  return config;
}

RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings,
                         ProblemList& problems) {
  RunConfig config = base;
  for (const Setting& setting : settings) {
    // It is a key only so that a document can tell it.
    if (setting.path == "quick") {
      problems.add(shown(setting) + " is not usable", "what --quick sets is marked in the record",
                   "Give --quick, or leave it out");
      continue;
    }
    assign(config, setting.path, setting.value, shown(setting), problems,
           [](const std::string& text, auto& member) { return parse_text(text, member); });
  }
  return config;
}

std::optional<Transport> transport_named(const std::string& text, ProblemList& problems) {
  if (text.empty()) return std::nullopt;
  return apply_settings({}, {{"scale.transport", text, "--transport"}}, problems).scale.transport;
}

CommConfig comm_config_of(std::vector<Setting> flags, const std::vector<std::string>& sets,
                          ProblemList& problems) {
  const std::string prefix = "comm.";
  for (const std::string& text : sets) add_set(text, flags, problems);
  std::vector<Setting> known;
  for (const Setting& setting : flags) {
    if (setting.path.starts_with(prefix)) {
      known.push_back(setting);
    } else {
      report_unknown(problems, setting.path, prefix);
    }
  }
  const CommConfig config = apply_settings(RunConfig{}, known, problems).comm;
  validate(config, known, problems);
  return config;
}

}  // namespace heteroperf
