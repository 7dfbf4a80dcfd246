// Every way in which keys of the configuration are read and written is a *visitor* of the one list
// of keys (visit_keys): writing the document, reading it back, --set, flags, ranges, --help, the
// README's table and the comparison with defaults. None of them knows a key by itself.
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
#include <map>

#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/journal/journal.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/command_line.hpp"

namespace heteroperf {
namespace {

constexpr int config_version = 1;

template <class T>
T value_in(const T& member);
template <class T>
T value_in(const std::optional<T>& member);
/// The type of a member's value, whether it may be absent or not.
template <class Member>
using ValueOf = decltype(value_in(std::declval<Member>()));

Json to_value(const Percent& percent) { return percent.value; }
Json to_value(const DeviceList& devices) { return to_string(devices); }
Json to_value(const Slowdown& slowdown) { return to_string(slowdown); }
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
  if (path == "adapt.replan_threshold") return config.adapt.every_steps > 0;
  if (path.starts_with("measure.until_") && config.measure.until_percent.value == 0) return false;
  if (path.starts_with("measure.replay_") && config.measure.replay_steps == 0) return false;
  // A plan file says all of these itself.
  const bool in_plan = path.starts_with("plan.") || path.starts_with("batch.");
  if (in_plan && path != "plan.file" && !config.plan.file.empty()) return false;
  const bool degree = path == "plan.pipeline" || path == "plan.tensor" || path == "plan.context" ||
                      path == "plan.data" || path == "plan.chunks";
  if (degree && !config.plan.layout.empty()) return false;
  if (path == "plan.layout" && config.plan.layout.empty()) return false;
  if (path == "model.freeze" && config.model.freeze.empty()) return false;
  if (config.workload.empty()) return true;
  // Trials are judged on automl.evaluation_samples; a suite's settings may still name both.
  if (path == "measure.evaluation_samples" && config.workload == "automl-image") return false;
  const auto having = workloads_with(path);
  return std::find(having.begin(), having.end(), config.workload) != having.end();
}

bool is_seconds(const std::string& path) { return path.ends_with("_s"); }

/// The names of a value that is an enum or a list of them; empty for others.
template <class T>
std::vector<std::string> names_of_type() {
  if constexpr (std::is_same_v<T, DeviceList>) return device_names();
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
  if constexpr (std::is_same_v<T, Slowdown>) {
    return "CLASS:STEP:FACTOR with a factor above 0, such as slow:40:1.5";
  }
  if constexpr (std::is_same_v<T, Percent>) return "a percentage, such as 1% or 0.5";
  if (is_seconds(path)) return "a number of seconds, without a unit";
  if constexpr (std::is_floating_point_v<T>) return "a finite number";
  return std::is_unsigned_v<T> ? "a whole number of at least 0" : "a whole number";
}

std::string range_text(const KeyRange& range, const char* unit) {
  if (range.high < KeyRange::unlimited)
    return fmt::format("{} to {}{}", range.low, range.high, unit);
  return range.low > 0 ? "above 0" : "at least 0";
}

/// Says which values the key takes: a range, names, or what a text stands for.
template <class T>
std::string values_of(const KeyInfo& key) {
  const char* unit = std::is_same_v<T, Percent> ? " %" : is_seconds(key.path) ? " s" : "";
  if (key.range.limits()) return range_text(key.range, unit);
  if (!key.value_name.empty()) return std::string(key.value_name);
  if (key.choices != nullptr) return fmt::format("{}", fmt::join(key.choices(), ", "));
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
  return key.value_name.empty() ? "NAME" : std::string(key.value_name);
}

/// Says what a flag takes that refuses 0, because nobody means "choose for me" who types a number.
template <class T>
std::string least_of_flag(const KeyInfo& key) {
  if (std::is_same_v<T, Percent>) return values_of<T>(key);
  const bool refuses = key.range.limits() && (!key.open.empty() || key.range.low > 0);
  if (!refuses) return "";
  return is_seconds(key.path) ? "above 0 seconds" : "at least 1";
}

bool parse_text(const std::string& text, bool& out) {
  out = text == "true" || text == "1";
  return out || text == "false" || text == "0";
}

template <class T>
bool parse_text(const std::string& text, T& out) {
  if constexpr (std::is_same_v<T, std::string>) {
    out = text;
    return true;
  } else if constexpr (std::is_enum_v<T>) {
    const auto value = find_value<T>(text);
    out = value.value_or(out);
    return value.has_value();
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(out)) return false;
    }
    return error == std::errc{} && end == text.data() + text.size() && !text.empty();
  }
}

/// Whoever reads the devices tells which of the names are none.
bool parse_text(const std::string& text, DeviceList& out) {
  out.names = split(text, ',');
  return true;
}

/// A class may have colons in its name: the last two parts are numbers.
bool parse_text(const std::string& text, Slowdown& out) {
  out = {};
  if (text.empty()) return true;
  const std::size_t second = text.rfind(':');
  const std::size_t first =
      second == 0 || second == std::string::npos ? std::string::npos : text.rfind(':', second - 1);
  if (first == 0 || first == std::string::npos) return false;
  out.device_class = text.substr(0, first);
  return parse_text(text.substr(first + 1, second - first - 1), out.from_step) &&
         parse_text(text.substr(second + 1), out.factor) && out.factor > 0;
}

bool parse_text(const std::string& text, Percent& out) {
  return parse_text(text.ends_with('%') ? text.substr(0, text.size() - 1) : text, out.value);
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
  std::vector<std::string> known;
  for (const ConfigKey& key : config_keys()) {
    if (key.path.starts_with(prefix)) known.push_back(key.path);
  }
  problems.add("unknown configuration key '" + path + "'", "",
               suggest_name(path, known, "See --help of the verb for the keys"));
}

/// Gives the key its value. `quoted` says for a value of a document whether it is text; a number
/// in quotes is no number. Settings are text whatever they hold.
void assign(RunConfig& config, const std::string& path, const std::string& text,
            std::optional<bool> quoted, const std::string& shown_value, ProblemList& problems) {
  bool is_key = false;
  visit_keys(config, [&](auto& member, const KeyInfo& key) {
    // The visitor sees every member; only one has this path.
    if (path != key.path) return;
    is_key = true;
    using T = ValueOf<decltype(member)>;
    const auto names = names_of_type<T>();
    const bool is_text =
        std::is_same_v<T, std::string> || std::is_same_v<T, Slowdown> || !names.empty();
    T parsed{};
    if (quoted.value_or(is_text) == is_text && parse_text(text, parsed)) {
      member = parsed;
    } else if (!names.empty()) {
      // The letters of this word are nearer to another name than to the one it means.
      report_unknown_name(problems, shown_value, text == "gpu" ? "cuda" : text, names);
    } else {
      problems.add(shown_value + " is not usable", std::string("expected ") + type_name<T>(path));
    }
  });
  if (!is_key) report_unknown(problems, path);
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.emplace_back(generator.name);
  return names;
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys;
    RunConfig config;
    visit_keys(config, [&](auto& member, const KeyInfo& key) {
      using T = ValueOf<decltype(member)>;
      if (std::string(key.path) == "quick") return;
      const std::string names = names_of_type<T>().empty() ? "" : values_of<T>(key) + ": ";
      keys.push_back(
          {.path = key.path,
           .flag = std::string(key.flag),
           .comm_flag = std::string(key.comm_flag),
           .value_name = value_name_of<T>(key),
           .least_of_flag = least_of_flag<T>(key),
           .values = values_of<T>(key),
           .default_text = key.open.empty() ? to_words(to_value(member)) : std::string(key.open),
           .help = names + key.help,
           .joins = key.joins});
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
  visit_keys(config, [&](auto& member, const KeyInfo& key) {
    using T = ValueOf<decltype(member)>;
    const Json value = to_value(member);
    if (is_empty(value) || !std::string(key.path).starts_with(prefix)) return;
    if (key.choices != nullptr) {
      const std::vector<std::string> valid = key.choices();
      if (std::find(valid.begin(), valid.end(), value) != valid.end()) return;
      const std::string shown_name = shown_value(settings, key.path, to_words(value));
      return report_unknown_name(problems, shown_name, to_words(value), valid);
    }
    const KeyRange& range = key.range;
    if (!range.limits()) return;
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
  visit_keys(config, [&](auto&, const KeyInfo& key) {
    if (path != key.path || key.read_by.empty()) return;
    // The list is words in one text, because the table is constant.
    having = split(std::string(key.read_by), ' ');
  });
  return having;
}

std::vector<Setting> changed_settings(const RunConfig& config, const RunConfig& from) {
  std::map<std::string, Json> before;
  visit_keys(from, [&](auto& member, const KeyInfo& key) { before[key.path] = to_value(member); });
  std::vector<Setting> changed;
  visit_keys(config, [&](auto& member, const KeyInfo& key) {
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

std::string to_json_text(const RunConfig& config) {
  Json flat{{"/_format", "heteroperf-config"}, {"/_version", config_version}};
  visit_keys(config, [&](auto& member, const KeyInfo& key) {
    const Json value = to_value(member);
    if (is_empty(value) || !speaks(config, key)) return;
    std::string place = std::string("/") + key.path;
    std::replace(place.begin(), place.end(), '.', '/');
    flat[place] = value;
  });
  return flat.unflatten().dump(2) + "\n";
}

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
    assign(config, path, to_words(value), value.is_string(), path + " = " + value.dump(), problems);
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
    assign(config, setting.path, setting.value, std::nullopt, shown(setting), problems);
  }
  return config;
}

std::optional<Transport> transport_named(const std::string& text, ProblemList& problems) {
  if (text.empty()) return std::nullopt;
  return apply_settings({}, {{"scale.transport", text, "--transport"}}, problems).scale.transport;
}

RunConfig repeated_config(const Journal& journal) {
  RunConfig config = run_config_from_json_text(journal.last<ConfigEvent>()->config.text);
  const auto* products = journal.last<ProductsEvent>();
  config.engine.products = products != nullptr ? products->choice : to_string(ProductWay::libtorch);
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
