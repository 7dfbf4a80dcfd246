// sweep.json and the names in a sweep's folder. The file is sealed with the SHA-256 of its own
// content without that key, so that a reader notices an edit that leaves it valid JSON. A program
// may meet the index of a newer one, which has keys that it does not know: it keeps those
// (SweepIndex::gained) and writes them back where they stood.
#include "results/sweep/sweep_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/stored_document_json.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/sha256.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t longest_folder = 60;
constexpr const char* run_order = "there_and_back";
constexpr const char* order_note =
    "each repetition goes through all points, every second one backwards";

/// Replaces all characters but letters, digits and ". _ = -" by dashes, since a file system or a
/// shell may take others otherwise, and cuts the name.
std::string file_name_of(const std::string& text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-";
  std::string name = text.substr(0, longest_folder);
  for (std::size_t i = 0; (i = name.find_first_not_of(plain, i)) != std::string::npos;)
    name[i] = '-';
  return name;
}

/// Returns the last part of a key: "ranks" of "scale.ranks".
std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

Json point_json(const SweepPoint& point) {
  Json json = Json::object();
  for (const auto& [key, value] : point) json[utf8_text(key)] = utf8_text(value);
  return json;
}

Json run_json(const SweepRun& run) {
  Json json{{"folder", run.folder}};
  if (run.number > 0) json["number"] = run.number;
  json["point"] = run.point;
  json["repeat"] = run.repeat;
  json["seed"] = run.seed;
  json["state"] = to_string(run.state);
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

/// Reads a run and refuses a folder outside of the sweep's, or a point that the index does not
/// have.
SweepRun read_run(const Json& json, const SweepIndex& index) {
  SweepRun run;
  run.folder = json.at("folder").get<std::string>();
  run.number = whole_number_or_0<std::size_t>(json, "number");
  run.point = whole_number<std::size_t>(json.at("point"));
  run.repeat = whole_number<std::size_t>(json.at("repeat"));
  run.seed = seed_of(json.at("seed"));
  run.state = parse_value_name<SweepRunState>("state", json.at("state"));
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
  for (const Json& settings : json.at("points")) {
    SweepPoint& point = index.points.emplace_back();
    for (const auto& [key, value] : settings.items())
      point.emplace_back(key, value.get<std::string>());
  }
  std::set<std::string> folders;
  for (const Json& run : json.at("runs")) {
    index.runs.push_back(read_run(run, index));
    const std::string& folder = index.runs.back().folder;
    if (!folders.insert(folder).second) throw UserError("two of its runs lie in " + folder);
  }
  for (const Json& left : json.at("set_aside")) {
    index.set_aside.push_back({left.at("folder"), left.at("was"), left.at("why")});
  }
  if (json.contains("rebuilt")) {
    index.unknown = json.at("rebuilt").at("unknown").get<std::vector<std::string>>();
  }
  index.sealed = json.contains("sha256");
  return index;
}

/// Hashes an index without its seal as a reader finds it, with integers beyond 2^53 as strings.
std::string seal_of(const Json& json) { return sha256_hex(Json::parse(json_compact(json)).dump()); }

/// Leaves out the seal and the keys that only a newer program knows.
Json index_json(const SweepIndex& index) {
  Json json = new_document(sweep_format);
  json.update({{"sweep_id", index.sweep_id},
               {"created_utc", index.created_utc},
               {"status", index.done() ? "complete" : "partial"},
               {"command", json_list(index.command, utf8_text)},
               {"axes", index.axes},
               {"points", json_list(index.points, point_json)},
               {"repeats", index.repeats},
               {"first_seed", index.first_seed},
               {"order", {{"name", run_order}, {"note", order_note}}},
               {"runs", json_list(index.runs, run_json)},
               {"set_aside", json_list(index.set_aside, [](const SetAside& left) {
                  return Json{{"folder", left.folder}, {"was", left.was}, {"why", left.why}};
                })}});
  if (index.rebuilt()) json["rebuilt"]["unknown"] = json_list(index.unknown, utf8_text);
  return json;
}

/// Keeps the top-level keys that only a newer program knows. A file without a seal is an older
/// program's, so it has none.
void keep_gained(const Json& stored, SweepIndex& index) {
  if (!index.sealed) return;
  const Json known = index_json(index);
  for (const auto& [key, value] : stored.items()) {
    if (key != "sha256" && !known.contains(key)) index.gained.emplace_back(key, value.dump());
  }
}

/// Puts the values of `known` where they stand in `stored`, which may have more keys.
Json with_known(const Json& stored, const Json& known) {
  Json merged = known;
  if (stored.is_object() && known.is_object()) {
    merged = stored;
    for (const auto& [key, value] : known.items()) {
      merged[key] = stored.contains(key) ? with_known(stored.at(key), value) : value;
    }
  } else if (stored.is_array() && known.is_array() && stored.size() == known.size()) {
    for (std::size_t i = 0; i < known.size(); ++i) merged[i] = with_known(stored[i], known[i]);
  }
  return merged;
}

/// Returns the content of which the seal is computed.
Json without_seal(Json json) {
  json.erase("sha256");
  return json;
}

}  // namespace

std::string point_text(const SweepPoint& point) {
  std::string text;
  for (const auto& [key, value] : point) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", last_part(key), value);
  }
  return text.empty() ? "all" : text;
}

std::size_t SweepIndex::count(SweepRunState state) const {
  return static_cast<std::size_t>(std::ranges::count(runs, state, &SweepRun::state));
}

std::string sweep_run_folder(std::size_t number, const SweepPoint& point, std::uint64_t seed) {
  return file_name_of(fmt::format("{:03}-{}-seed={}", number, point_text(point), seed));
}

/// A run's number and its folder's name follow from its place in the order.
std::vector<SweepRun> there_and_back(const SweepIndex& index) {
  std::vector<SweepRun> runs;
  for (std::size_t repeat = 0; repeat < index.repeats; ++repeat) {
    for (std::size_t i = 0; i < index.points.size(); ++i) {
      SweepRun run;
      run.point = repeat % 2 == 0 ? i : index.points.size() - 1 - i;
      run.repeat = repeat;
      run.seed = index.first_seed + repeat;
      run.number = runs.size() + 1;
      run.folder = sweep_run_folder(run.number, index.points[run.point], run.seed);
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

SweepPlace place_of(const SweepIndex& index, const SweepRun& run) {
  return {index.sweep_id,          index.created_utc, index.command, index.axes,
          index.points[run.point], run.number,        run.repeat,    run.seed};
}

std::filesystem::path sweep_file(const std::filesystem::path& folder) {
  return folder / "sweep.json";
}

bool is_sweep_folder(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::is_regular_file(sweep_file(folder), error);
}

std::optional<std::filesystem::path> sweep_folder_of(const std::filesystem::path& path) {
  if (is_sweep_folder(path)) return path;
  if (path.filename() != "sweep.json" || !is_sweep_folder(path.parent_path())) return std::nullopt;
  return path.parent_path();
}

std::string sweep_json_text(const SweepIndex& index) {
  Json json = index_json(index);
  for (const auto& [key, value] : index.gained) json[key] = Json::parse(value);
  if (index.sealed) json["sha256"] = seal_of(json);
  return json_indented(json);
}

std::string sweep_text_as_written(const std::string& text, const SweepIndex& index) {
  if (!index.sealed) return sweep_json_text(index);
  Json json = with_known(Json::parse(text), Json::parse(json_compact(index_json(index))));
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

void write_sweep(const std::filesystem::path& folder, const SweepIndex& index) {
  write_file_atomically(sweep_file(folder), sweep_json_text(index));
}

}  // namespace heteroperf
