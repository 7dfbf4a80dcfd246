#include "suite/run/run_config_json.hpp"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;
constexpr int config_version = 1;

// Reading and writing walk the same list of members, so the two cannot drift apart.
template <class Visitor>
void visit_members(RunConfig& c, Visitor&& visit) {
  visit("workload", c.workload);
  visit("quick", c.quick);
  visit("seed", c.seed);
  visit("out", c.out);
  visit("model.size", c.model.size);
  visit("model.name", c.model.name);
  visit("model.precision", c.model.precision);
  visit("model.sequence_length", c.model.sequence_length);
  visit("data.source", c.data.source);
  visit("scale.ranks", c.scale.ranks);
  visit("scale.threads_per_rank", c.scale.threads_per_rank);
  visit("scale.transport", c.scale.transport);
  visit("scale.device", c.scale.device);
  visit("scale.bind", c.scale.bind);
  visit("batch.micro_batch", c.batch.micro_batch);
  visit("batch.micro_batches", c.batch.micro_batches);
  visit("optimizer.name", c.optimizer.name);
  visit("optimizer.schedule", c.optimizer.schedule);
  visit("optimizer.learning_rate", c.optimizer.learning_rate);
  visit("optimizer.weight_decay", c.optimizer.weight_decay);
  visit("optimizer.clip_norm", c.optimizer.clip_norm);
  visit("optimizer.warmup_steps", c.optimizer.warmup_steps);
  visit("measure.duration_s", c.measure.duration_s);
  visit("measure.steps", c.measure.steps);
  visit("measure.warmup_steps", c.measure.warmup_steps);
  visit("measure.evaluation_samples", c.measure.evaluation_samples);
  visit("measure.peak_s", c.measure.peak_s);
  visit("automl.group_ranks", c.automl.group_ranks);
  visit("automl.first_rung_steps", c.automl.first_rung_steps);
  visit("automl.reduction", c.automl.reduction);
  visit("automl.rungs", c.automl.rungs);
  visit("automl.evaluation_samples", c.automl.evaluation_samples);
  visit("automl.history", c.automl.history);
  visit("comm.timeout_s", c.comm.timeout_s);
  visit("comm.heartbeat_s", c.comm.heartbeat_s);
}

Json& at_path(Json& tree, const std::string& path) {
  Json* node = &tree;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    node = &(*node)[path.substr(begin, dot - begin)];
    begin = dot + 1;
  }
  return (*node)[path.substr(begin)];
}

Json to_tree(const RunConfig& config) {
  Json tree{{"_format", "heteroperf-config"}, {"_version", config_version}};
  RunConfig copy = config;
  visit_members(copy, [&](const char* path, auto& member) { at_path(tree, path) = member; });
  return tree;
}

std::vector<std::string> paths() {
  std::vector<std::string> all;
  RunConfig config;
  visit_members(config, [&](const char* path, auto&) { all.emplace_back(path); });
  return all;
}

template <class T>
const char* type_name() {
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_floating_point_v<T>) return "a finite number";
  return std::is_unsigned_v<T> ? "a whole number of at least 0" : "a whole number";
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

bool parse_value(const Json& value, std::string& out) {
  return value.is_string() && parse_text(value.get<std::string>(), out);
}

template <class T>
bool parse_value(const Json& value, T& out) {
  return !value.is_string() && !value.is_structured() && !value.is_null() &&
         parse_text(value.dump(), out);
}

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

void report_unknown(ProblemList& problems, const std::string& path) {
  const std::string nearest = nearest_name(path, paths());
  problems.add("unknown configuration key '" + path + "'", "",
               nearest.empty() ? "See `heteroperf run --help` for the keys"
                               : "Did you mean '" + nearest + "'?");
}

// `Value` is a Setting's text or a parsed JSON value; `read` tells how to turn it into a member.
template <class Value, class Read>
void assign(RunConfig& config, const std::string& path, const Value& value,
            const std::string& shown, ProblemList& problems, Read&& read) {
  bool found = false;
  visit_members(config, [&](const char* name, auto& member) {
    if (path != name) return;
    found = true;
    auto parsed = member;
    if (read(value, parsed)) {
      member = parsed;
    } else {
      problems.add(path + " = " + shown + " is not usable",
                   std::string("expected ") + type_name<std::decay_t<decltype(member)>>());
    }
  });
  if (!found) report_unknown(problems, path);
}

}  // namespace

std::string to_json_text(const RunConfig& config) { return to_tree(config).dump(2) + "\n"; }

RunConfig run_config_from_json_text(const std::string& text) {
  Json tree;
  try {
    tree = Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw UserError("the configuration is not JSON", error.what());
  }
  if (tree.value("_format", "") != "heteroperf-config" ||
      tree.value("_version", 0) != config_version) {
    throw UserError("not a configuration of this version",
                    "expected _format heteroperf-config, _version 1");
  }
  tree.erase("_format");
  tree.erase("_version");
  std::vector<std::pair<std::string, Json>> values;
  flatten(tree, "", values);
  RunConfig config;
  ProblemList problems;
  for (const auto& [path, value] : values) {
    assign(config, path, value, value.dump(), problems,
           [](const Json& v, auto& member) { return parse_value(v, member); });
  }
  problems.throw_if_any();
  return config;
}

RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings) {
  RunConfig config = base;
  ProblemList problems;
  for (const auto& [path, value] : settings) {
    assign(config, path, value, "'" + value + "'", problems,
           [](const std::string& text, auto& member) { return parse_text(text, member); });
  }
  problems.throw_if_any();
  return config;
}

}  // namespace heteroperf
