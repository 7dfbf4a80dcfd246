#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/canonical_text_json.hpp"
#include "results/sha256.hpp"
#include "results/stored_document_json.hpp"
#include "results/sweep/sweep_states.hpp"
#include "results/text_escapes.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* order_name = "there_and_back";
constexpr const char* order_note =
    "each repetition goes through all points, every second one backwards";

Json point_json(const SweepPoint& point) {
  Json json = Json::object();
  for (const auto& [key, value] : point) json[utf8_text(key)] = utf8_text(value);
  return json;
}

Json run_json(const SweepRun& run) {
  Json json{{"folder", run.folder},
            {"point", run.point},
            {"repeat", run.repeat},
            {"seed", run.seed},
            {"state", to_string(run.state)}};
  if (run.exit_code) json["exit_code"] = *run.exit_code;
  if (run.seconds > 0) json["wall_s"] = run.seconds;
  if (!run.reason.empty()) json["reason"] = utf8_text(run.reason);
  return json;
}

/// A decimal string beyond 2^53, else a number.
std::uint64_t seed_of(const Json& json) {
  if (!json.is_string()) return whole_number<std::uint64_t>(json);
  return std::stoull(json.get<std::string>());
}

SweepRun read_run(const Json& json, const SweepIndex& index) {
  SweepRun run;
  run.folder = json.at("folder").get<std::string>();
  run.point = whole_number<std::size_t>(json.at("point"));
  run.repeat = whole_number<std::size_t>(json.at("repeat"));
  run.seed = seed_of(json.at("seed"));
  run.state = parse_name(sweep_states, "state", json.at("state").get<std::string>());
  if (json.contains("exit_code")) run.exit_code = whole_number<int>(json.at("exit_code"));
  run.seconds = json.value("wall_s", 0.0);
  run.reason = json.value("reason", "");
  const bool inside = !run.folder.empty() && run.folder.find('/') == std::string::npos &&
                      run.folder != "." && run.folder != "..";
  if (!inside) throw UserError("its run '" + run.folder + "' is no folder of the sweep");
  if (run.point >= index.points.size()) {
    throw UserError(
        fmt::format("its run {} names point {} of {}", run.folder, run.point, index.points.size()));
  }
  return run;
}

SweepIndex read_index(const Json& json) {
  SweepIndex index;
  index.sweep_id = json.at("sweep_id").get<std::string>();
  index.created_utc = json.at("created_utc").get<std::string>();
  index.command = json.at("command").get<std::vector<std::string>>();
  index.axes = json.at("axes").get<std::vector<std::vector<std::string>>>();
  index.repeats = whole_number<std::size_t>(json.at("repeats"));
  index.first_seed = seed_of(json.at("first_seed"));
  for (const Json& one : json.at("points")) {
    SweepPoint& point = index.points.emplace_back();
    for (const auto& [key, value] : one.items()) point.emplace_back(key, value.get<std::string>());
  }
  std::set<std::string> folders;
  for (const Json& one : json.at("runs")) {
    index.runs.push_back(read_run(one, index));
    const std::string& folder = index.runs.back().folder;
    if (!folders.insert(folder).second) throw UserError("two of its runs lie in " + folder);
  }
  for (const Json& one : json.at("set_aside")) {
    index.set_aside.push_back({one.at("folder"), one.at("was"), one.at("why")});
  }
  if (json.contains("rebuilt")) {
    index.unknown = json.at("rebuilt").at("unknown").get<std::vector<std::string>>();
  }
  index.sealed = json.contains("sha256");
  return index;
}

/// Of an index without its seal: as a reader finds it, integers beyond 2^53 as strings.
std::string seal_of(const Json& json) { return sha256_hex(Json::parse(json_compact(json)).dump()); }

/// All but what only a newer program knows, and the seal.
Json index_json(const SweepIndex& index) {
  Json json{{"_format", sweep_format},
            {"_version", document_version},
            {"sweep_id", index.sweep_id},
            {"created_utc", index.created_utc},
            {"status", index.done() ? "complete" : "partial"},
            {"command", Json::array()},
            {"axes", index.axes},
            {"points", Json::array()},
            {"repeats", index.repeats},
            {"first_seed", index.first_seed},
            {"order", {{"name", order_name}, {"note", order_note}}},
            {"runs", Json::array()},
            {"set_aside", Json::array()}};
  for (const std::string& word : index.command) json["command"].push_back(utf8_text(word));
  for (const SweepPoint& point : index.points) json["points"].push_back(point_json(point));
  for (const SweepRun& run : index.runs) json["runs"].push_back(run_json(run));
  for (const SetAside& one : index.set_aside) {
    json["set_aside"].push_back({{"folder", one.folder}, {"was", one.was}, {"why", one.why}});
  }
  for (const std::string& one : index.unknown) {
    json["rebuilt"]["unknown"].push_back(utf8_text(one));
  }
  return json;
}

/// A file without a seal is of an older program: nothing else has a place in it.
void keep_gained(const Json& stored, SweepIndex& index) {
  if (!index.sealed) return;
  const Json own = index_json(index);
  for (const auto& [key, value] : stored.items()) {
    if (key != "sha256" && !own.contains(key)) index.gained.emplace_back(key, value.dump());
  }
}

/// `own` in the places that it has in `stored`, which may have more keys.
Json with_own(const Json& stored, const Json& own) {
  Json merged = own;
  if (stored.is_object() && own.is_object()) {
    merged = stored;
    for (const auto& [key, value] : own.items()) {
      merged[key] = stored.contains(key) ? with_own(stored.at(key), value) : value;
    }
  } else if (stored.is_array() && own.is_array() && stored.size() == own.size()) {
    for (std::size_t i = 0; i < own.size(); ++i) merged[i] = with_own(stored[i], own[i]);
  }
  return merged;
}

Json without_seal(Json json) {
  json.erase("sha256");
  return json;
}

}  // namespace

std::string sweep_json_text(const SweepIndex& index) {
  Json json = index_json(index);
  for (const auto& [key, value] : index.gained) json[key] = Json::parse(value);
  if (index.sealed) json["sha256"] = seal_of(json);
  return json_indented(json);
}

std::string sweep_text_as_written(const std::string& text, const SweepIndex& index) {
  if (!index.sealed) return sweep_json_text(index);
  Json json = with_own(Json::parse(text), Json::parse(json_compact(index_json(index))));
  json["sha256"] = seal_of(without_seal(json));
  return json_indented(json);
}

SweepIndex parse_sweep(const std::string& text, const std::string& origin) {
  const Json json = parse_stored_document(text, origin, sweep_format);
  try {
    SweepIndex index = read_index(json);
    keep_gained(json, index);
    return index;
  } catch (const UserError& error) {
    throw UserError(origin + " is not usable", error.problems().front().text());
  } catch (const std::exception& error) {
    throw UserError(origin + " misses a key or has a wrong type", error.what(),
                    way_out(sweep_format));
  }
}

bool has_own_seal(const std::string& text) {
  const Json json = Json::parse(text);
  return value_at(json, "/sha256") == seal_of(without_seal(json));
}

bool is_of_another_version(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || value_at(json, "/_format") != sweep_format) return false;
  const Json version = value_at(json, "/_version");
  return version.is_number_integer() && version != document_version;
}

SweepIndex read_sweep(const std::filesystem::path& folder) {
  return parse_sweep(read_regular_file(sweep_file(folder)), sweep_file(folder).string());
}

}  // namespace heteroperf
