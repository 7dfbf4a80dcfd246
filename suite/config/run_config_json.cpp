// Gives every member of RunConfig its dotted path, its meaning and its type, in one list that a
// *visitor* walks. Writing the document, reading it back, --set, --help and the comparison with
// defaults are all visitors of this list, so a new key is one line here.
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
#include <map>
#include <sstream>

#include "metrics/base/strict_json.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/help_page.hpp"

namespace heteroperf {
namespace {

constexpr int config_version = 1;

/// The description of a key beside its value.
struct KeyInfo {
  const char* path;
  const char* meaning;
  const char* default_text = nullptr;  ///< where the default value does not say it
  const char* workloads = nullptr;     ///< the workloads that read it; null: all
};

// Reading, writing and the help walk the same list of members, so they cannot drift apart.
template <class Visitor>
void visit_members(RunConfig& c, Visitor&& visit) {
  constexpr const char* own = "the workload's";
  constexpr const char* fixed = "image llm";
  constexpr const char* search = "automl-image";
  visit({"workload", "image, automl-image or llm", "all of them"}, c.workload);
  visit({"quick", "set by --quick alone"}, c.quick);
  visit({"seed", "weights, order of samples, dropout, search"}, c.seed);
  visit({"out", "run folder, new or empty", "results/<UTC>-<workload>-<id>"}, c.out);
  visit({"rank_logs", "a log file of every rank in the run folder"}, c.rank_logs);
  visit({"trace", "a file for where the time of 3 steps went on every rank, for Perfetto", "none",
         fixed},
        c.trace);
  visit({"with_baselines", "also run each class of a mixed cluster alone", nullptr, fixed},
        c.with_baselines);
  visit(
      {"model.size", "llm: a ladder size; automl-image: w16 to w512", nullptr, "automl-image llm"},
      c.model.size);
  visit({"model.name", "image: a classifier of `list models`", nullptr, "image"}, c.model.name);
  visit({"model.precision", "fp32, bf16, fp64"}, c.model.precision);
  visit({"model.sequence_length", "llm: tokens of a sample", "the size's", "llm"},
        c.model.sequence_length);
  visit({"data.source", "generated, idx:DIR, cifar10:DIR, text:FILE, tokens:FILE"}, c.data.source);
  visit({"scale.ranks", "ranks of the run", "one per usable core"}, c.scale.ranks);
  visit({"scale.threads_per_rank", "threads inside a rank", "cores / ranks"},
        c.scale.threads_per_rank);
  visit({"scale.transport", "threads, mpi, nccl"}, c.scale.transport);
  visit({"scale.device", "cpu"}, c.scale.device);
  visit({"scale.bind", "auto; none leaves placement to the system"}, c.scale.bind);
  visit({"batch.micro_batch", "samples per replica and micro-batch", own}, c.batch.micro_batch);
  visit({"batch.micro_batches", "micro-batches per step", own}, c.batch.micro_batches);
  visit({"plan.pipeline", "positions of the pipeline", nullptr, fixed}, c.plan.pipeline);
  visit({"plan.tensor", "ranks that share every layer", nullptr, fixed}, c.plan.tensor);
  visit({"plan.data", "replicas", "what is left of the ranks", fixed}, c.plan.data);
  visit({"plan.chunks", "stages per position", "the schedule's", fixed}, c.plan.chunks);
  visit({"plan.schedule", "a name of `list schedules`", nullptr, fixed}, c.plan.schedule);
  visit({"plan.recompute", "none, selective (attention), full", nullptr, fixed}, c.plan.recompute);
  visit({"plan.zero_stage", "1 spreads optimizer states over replicas", nullptr, fixed},
        c.plan.zero_stage);
  visit(
      {"plan.sequence_parallel", "norms and sums of tensor-parallel ranks by rows", nullptr, fixed},
      c.plan.sequence_parallel);
  visit({"plan.file", "a plan in place of the other plan.* and batch.*", "none", fixed},
        c.plan.file);
  visit({"cluster.file", "a cluster description, or the name of a shipped one", "this machine",
         fixed},
        c.cluster.file);
  visit({"pace.dilation", "real seconds per modelled one of emulated devices", "measured", fixed},
        c.pace.dilation);
  visit({"optimizer.name", "sgd, adamw", own}, c.optimizer.name);
  visit({"optimizer.schedule", "constant, linear, cosine; constant in a training by time", own},
        c.optimizer.schedule);
  visit({"optimizer.learning_rate", "above 0; a search chooses its own", own, fixed},
        c.optimizer.learning_rate);
  visit({"optimizer.weight_decay", "at least 0", own}, c.optimizer.weight_decay);
  visit({"optimizer.clip_norm", "of the gradient; 0: no clipping", own}, c.optimizer.clip_norm);
  visit({"optimizer.warmup_steps", "the rate grows from 0 over them", own},
        c.optimizer.warmup_steps);
  visit({"measure.duration_s", "the measured phase, in seconds"}, c.measure.duration_s);
  visit({"measure.steps", "optimizer steps per group, instead of a duration", "by duration"},
        c.measure.steps);
  visit({"measure.until_percent",
         "half width of the throughput's interval that ends the phase earlier, in percent", "none",
         fixed},
        c.measure.until_percent);
  visit({"measure.until_after_s", "measured before that interval is looked at", nullptr, fixed},
        c.measure.until_after_s);
  visit({"measure.warmup_steps", "at least; the steady-window rule may cut more"},
        c.measure.warmup_steps);
  visit({"measure.evaluation_samples",
         "of the validation split, at the end; of a classifier at least, until 100 were wrong"},
        c.measure.evaluation_samples);
  visit({"measure.peak_s",
         "seconds of measuring the peak of products, before a run and after it; 0: not"},
        c.measure.peak_s);
  visit({"measure.replay_steps", "of a group, after which the run ends without a result", "never"},
        c.measure.replay_steps);
  visit({"measure.replay_moved", "of a replay: from values moved by as much as rounding may"},
        c.measure.replay_moved);
  visit({"automl.group_ranks", "ranks that train one trial together", nullptr, search},
        c.automl.group_ranks);
  visit({"automl.first_rung_steps", "steps to the first comparison of trials", nullptr, search},
        c.automl.first_rung_steps);
  visit({"automl.reduction", "a rung keeps one in so many", nullptr, search}, c.automl.reduction);
  visit({"automl.rungs", "comparisons up to a trial's end", nullptr, search}, c.automl.rungs);
  visit({"automl.evaluation_samples", "per rung; at the end at least", nullptr, search},
        c.automl.evaluation_samples);
  visit({"automl.history", "a run folder whose trials the search starts from", "none", search},
        c.automl.history);
  visit({"comm.timeout_s", "a wait fails when its peer shows no sign of life so long"},
        c.comm.timeout_s);
  visit({"comm.heartbeat_s", "between two signs of life"}, c.comm.heartbeat_s);
  visit({"comm.join_timeout_s", "until all ranks of the launcher have come"},
        c.comm.join_timeout_s);
  visit({"comm.host_path", "messages, shared_memory or single_copy: MPI inside one host"},
        c.comm.host_path);
  visit({"comm.check", "ranks that disagree about an operation are found and named; slower"},
        c.comm.check);
  visit({"checkpoint.every_steps", "a checkpoint after every so many steps", "none", fixed},
        c.checkpoint.every_steps);
  visit({"checkpoint.every_s", "a checkpoint when the last is so many seconds old", "none", fixed},
        c.checkpoint.every_s);
  visit({"checkpoint.keep", "newest checkpoints that stay; 0: all", nullptr, fixed},
        c.checkpoint.keep);
  visit({"checkpoint.at_end", "a checkpoint after the last step", nullptr, fixed},
        c.checkpoint.at_end);
}

template <class T>
struct Value {
  using type = T;
};
template <class T>
struct Value<std::optional<T>> {
  using type = T;
};
/// The type of a member's value, whether it may be absent or not.
template <class Member>
using ValueOf = typename Value<std::decay_t<Member>>::type;

/// An empty member is left out of the document; numbers and truth values are never empty.
bool is_empty(const std::string& value) { return value.empty(); }
template <class T>
bool is_empty(const std::optional<T>& value) {
  return !value;
}
template <class T>
bool is_empty(const T&) {
  return false;
}

Json to_value(const std::string& value) { return value; }
Json to_value(const Percent& percent) { return percent.value; }
template <class T>
Json to_value(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
template <class T>
Json to_value(const T& value) {
  return value;
}

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

/// Finds the place of a dotted path in the tree and makes the objects on the way.
Json& at_path(Json& tree, const std::string& path) {
  Json* node = &tree;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    node = &(*node)[path.substr(begin, dot - begin)];
    begin = dot + 1;
  }
  return (*node)[path.substr(begin)];
}

/// The visitor takes members that can be changed, so it gets a copy.
Json to_tree(const RunConfig& config) {
  Json tree{{"_format", "heteroperf-config"}, {"_version", config_version}};
  RunConfig copy = config;
  visit_members(copy, [&](const KeyInfo& key, auto& member) {
    if (!is_empty(member) && speaks(config, key)) at_path(tree, key.path) = to_value(member);
  });
  return tree;
}

/// Lists the paths of all keys that begin with `prefix`.
std::vector<std::string> paths(const std::string& prefix) {
  std::vector<std::string> all;
  RunConfig config;
  visit_members(config, [&](const KeyInfo& key, auto&) {
    if (std::string(key.path).starts_with(prefix)) all.emplace_back(key.path);
  });
  return all;
}

template <class T>
const char* type_name() {
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, Percent>) return "a percentage, such as 1% or 0.5";
  if constexpr (std::is_floating_point_v<T>) return "a finite number";
  return std::is_unsigned_v<T> ? "a whole number of at least 0" : "a whole number";
}

/// Says which values this key takes.
template <class T>
std::string expected_for(const std::string& path) {
  const bool seconds = path.size() > 2 && path.compare(path.size() - 2, 2, "_s") == 0;
  return seconds ? "expected a number of seconds, without a unit"
                 : std::string("expected ") + type_name<T>();
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
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(out)) return false;
  }
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

bool parse_text(const std::string& text, Percent& out) {
  return parse_text(text.ends_with('%') ? text.substr(0, text.size() - 1) : text, out.value);
}

bool parse_value(const Json& value, std::string& out) {
  return value.is_string() && parse_text(value.get<std::string>(), out);
}

template <class T>
bool parse_value(const Json& value, T& out) {
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

/// A prefix limits the suggestions to keys that the verb has.
void report_unknown(ProblemList& problems, const std::string& path,
                    const std::string& prefix = "") {
  const std::string nearest = nearest_name(path, paths(prefix));
  problems.add(
      "unknown configuration key '" + path + "'", "",
      nearest.empty() ? "See --help of the verb for the keys" : "Did you mean '" + nearest + "'?");
}

// `Text` is a setting's value or a parsed JSON value; `read` tells how to turn it into a member.
template <class Text, class Read>
void assign(RunConfig& config, const std::string& path, const Text& value,
            const std::string& shown_value, ProblemList& problems, Read&& read) {
  bool found = false;
  visit_members(config, [&](const KeyInfo& key, auto& member) {
    // The visitor sees every member; only one has this path.
    if (path != key.path) return;
    found = true;
    ValueOf<decltype(member)> parsed{};
    if (read(value, parsed)) {
      member = parsed;
    } else {
      problems.add(shown_value + " is not usable", expected_for<decltype(parsed)>(path));
    }
  });
  if (!found) report_unknown(problems, path);
}

}  // namespace

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  RunConfig config;
  visit_members(config, [&](const KeyInfo& key, auto& member) {
    if (std::string(key.path) == "quick") return;
    keys.push_back({key.path,
                    key.default_text != nullptr ? key.default_text : to_words(to_value(member)),
                    key.meaning});
  });
  return keys;
}

std::string config_keys_text(const std::string& prefix) {
  std::string text = "Keys for --set KEY=VALUE (default) meaning:\n";
  for (const ConfigKey& key : config_keys()) {
    if (!key.path.starts_with(prefix)) continue;
    text += help_entry("  " + key.path, fmt::format("({}) {}", key.default_text, key.meaning));
  }
  return text;
}

std::vector<std::string> workloads_with(const std::string& path) {
  std::vector<std::string> having = workload_names();
  RunConfig config;
  visit_members(config, [&](const KeyInfo& key, auto&) {
    if (path != key.path || key.workloads == nullptr) return;
    std::istringstream words(key.workloads);
    // The list is words in one text, because the table is constant.
    having.assign(std::istream_iterator<std::string>(words), {});
  });
  return having;
}

std::vector<Setting> changed_settings(const RunConfig& config, const RunConfig& from) {
  std::map<std::string, Json> before;
  RunConfig copy = from;
  visit_members(copy,
                [&](const KeyInfo& key, auto& member) { before[key.path] = to_value(member); });
  std::vector<Setting> changed;
  copy = config;
  visit_members(copy, [&](const KeyInfo& key, auto& member) {
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

RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings) {
  ProblemList problems;
  const RunConfig config = apply_settings(base, settings, problems);
  problems.throw_if_any();
  return config;
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
