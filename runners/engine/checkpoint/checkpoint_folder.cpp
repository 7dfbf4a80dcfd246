// Finds checkpoints in the folder of a run and removes old ones.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "metrics/base/error.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {
namespace fs = std::filesystem;
namespace {

constexpr const char* folder_name = "checkpoints";
constexpr std::string_view step_prefix = "step-", unfinished_prefix = ".step-";

/// "step-120" is 120; other names are no checkpoints.
std::optional<std::uint64_t> step_of(const std::string& name) {
  if (!name.starts_with(step_prefix)) return std::nullopt;
  const char* last = name.data() + name.size();
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + step_prefix.size(), last, step);
  if (error != std::errc() || end != last) return std::nullopt;
  return step;
}

/// Renamed first, so that half of one never looks like a checkpoint.
void remove_checkpoint(const fs::path& folder, std::vector<std::string>& warnings) {
  const fs::path doomed = folder.parent_path() / fmt::format(".{}.old", folder.filename().string());
  std::error_code error;
  fs::rename(folder, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) {
    warnings.push_back(fmt::format("cannot remove {} ({})", folder.string(), error.message()));
  }
}

}  // namespace

fs::path checkpoint_folder(const fs::path& run_folder, std::uint64_t step) {
  return run_folder / folder_name / fmt::format("{}{}", step_prefix, step);
}

std::vector<CheckpointPlace> list_checkpoints(const fs::path& run_folder) {
  std::vector<CheckpointPlace> places;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_folder / folder_name, error)) {
    if (const auto step = step_of(entry.path().filename().string())) {
      places.push_back({entry.path(), *step});
    }
  }
  std::ranges::sort(places, std::ranges::greater(), &CheckpointPlace::step);
  return places;
}

CheckpointPlace last_good_checkpoint(const fs::path& run_folder, std::optional<std::uint64_t> step,
                                     std::vector<std::string>& warnings) {
  ProblemList wrong;
  std::vector<std::string> steps;
  const std::vector<CheckpointPlace> places = list_checkpoints(run_folder);
  for (const CheckpointPlace& place : places) {
    steps.push_back(std::to_string(place.step));
    if (step && place.step != *step) continue;
    const std::size_t before = wrong.problems().size();
    collect_problems(wrong, [&] { CheckpointReader(place.folder).verify(); });
    if (wrong.problems().size() == before) return place;
    warnings.push_back(fmt::format("skipped {}: {}", place.folder.filename().string(),
                                   wrong.problems()[before].text()));
  }
  wrong.throw_if_any();
  if (!steps.empty()) {
    throw UserError(fmt::format("{} has no checkpoint of step {}", run_folder.string(), *step),
                    fmt::format("it has those of {}", fmt::join(steps, ", ")));
  }
  throw UserError(run_folder.string() + " has no checkpoint",
                  "a run saves them with checkpoint.every_steps, checkpoint.every_s or "
                  "checkpoint.at_end",
                  "Try `--set checkpoint.every_s=60`.");
}

void prune_checkpoints(const fs::path& run_folder, std::uint64_t keep,
                       std::vector<std::string>& warnings) {
  const std::vector<CheckpointPlace> places = list_checkpoints(run_folder);
  for (std::size_t i = keep; keep > 0 && i < places.size(); ++i) {
    remove_checkpoint(places[i].folder, warnings);
  }
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(run_folder / folder_name, ignored)) {
    if (!entry.path().filename().string().starts_with(unfinished_prefix)) continue;
    fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace heteroperf
