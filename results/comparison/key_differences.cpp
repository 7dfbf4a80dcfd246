// Two runs are compared only when their keys are equal. When they are not, the reader wants to know
// what to set alike, and the key alone does not tell: a difference of the workload's hash may stem
// from any of its settings. So this file goes through the leaves of both records (a leaf is a
// single value with its path, such as /config/batch/micro_batch) and names the settings that
// differ, the user's own before those that the workload derives.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "results/comparison/run_set.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_leaves = 12;
constexpr std::size_t longest_shown = 64;
constexpr std::string_view config_section = "/config/";

/// A value may be a whole list, so a message shows its beginning; cut by bytes.
std::string shortened(const std::string& value) {
  if (value.empty()) return "(none)";
  return value.size() <= longest_shown ? value : value.substr(0, longest_shown) + "…";
}

/// "/config/batch/micro_batch" as `--set` names it below its section: "config.batch.micro_batch".
std::string dotted(std::string path) {
  path.erase(0, 1);
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

/// A setting with its values; a workload's own configuration repeats it under another path.
std::string name_of(const EnvironmentDifference& difference) {
  const auto& [path, a, b] = difference;
  return path.substr(path.rfind('/') + 1) + '\n' + a + '\n' + b;
}

/// The settings that differ, before what differs in the workload: settings are what a user can set
/// alike. The workload repeats many settings under its own paths, and a repetition with the same
/// name and the same values is left out. The seed is no reason why two runs cannot be compared.
std::vector<EnvironmentDifference> differing_settings(const RunDigest& a, const RunDigest& b) {
  std::vector<EnvironmentDifference> differences;
  std::set<std::string> named;
  for (EnvironmentDifference& difference : environment_differences(a, b)) {
    if (!difference.path.starts_with(config_section) || difference.path == "/config/seed") continue;
    named.insert(name_of(difference));
    differences.push_back(std::move(difference));
  }
  for (EnvironmentDifference& leaf : leaf_differences(a.workload_leaves, b.workload_leaves)) {
    if (!named.contains(name_of(leaf))) differences.push_back(std::move(leaf));
  }
  return differences;
}

/// Every field in which the keys of two runs differ; where it is the workload's hash, also the
/// settings and the leaves of the workload that differ, the first some.
std::vector<Problem> key_differences(const RunDigest& a, const RunDigest& b,
                                     const std::string& name_a, const std::string& name_b) {
  std::vector<Problem> problems;
  const auto differ = [&](const std::string& name, const std::string& in_a,
                          const std::string& in_b) {
    problems.push_back(
        {name + " differs",
         fmt::format("{} in {}, {} in {}", shortened(in_a), name_a, shortened(in_b), name_b), ""});
  };
  for (std::size_t i = 0; i < a.key.size(); ++i) {
    if (a.key[i] == b.key[i]) continue;
    differ(a.key[i].name, a.key[i].value, b.key[i].value);
    if (a.key[i].name != "workload.hash") continue;
    const auto settings = differing_settings(a, b);
    const std::size_t told = std::min(settings.size(), most_leaves);
    for (const auto& [path, in_a, in_b] : std::span(settings).first(told)) {
      differ(dotted(path), in_a, in_b);
    }
    if (told == settings.size()) continue;
    problems.push_back({fmt::format("and {} more", settings.size() - told), "", ""});
  }
  return problems;
}

}  // namespace

void require_comparable(const RunSet& a, const RunSet& b, const std::string& name_a,
                        const std::string& name_b) {
  std::vector<Problem> problems;
  const RunDigest& first = a.runs.front();
  for (const auto& [set, name] : {std::pair(&a, name_a), std::pair(&b, name_b)}) {
    for (const RunDigest& run : set->runs) {
      if (!problems.empty()) break;
      const bool same_side = set == &a;
      const std::string in_first = same_side ? first.record.string() : name_a;
      problems = key_differences(first, run, in_first, same_side ? run.record.string() : name);
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::not_comparable, std::move(problems));
}

}  // namespace heteroperf
