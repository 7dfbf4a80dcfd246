#include "runners/cluster/system_files.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

namespace heteroperf {

namespace {

/// Returns the path as it is reported.
std::string shown(const std::string& path) { return "/" + path; }

/// Removes double quotes around a value.
std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\0";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  std::size_t begin = text.find_first_not_of(separators);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(separators, end);
  }
  return words;
}

std::optional<long long> parse_integer(std::string_view text) {
  long long value = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return value;
}

Observed<std::string> SystemFiles::text(const std::string& path) const {
  errno = 0;
  std::ifstream file(root_ / path);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    const int error = errno;
    return Observed<std::string>::none(
        shown(path), error != 0 ? std::strerror(error) : "cannot be read",
        error == EACCES || error == EPERM ? Availability::denied : Availability::unavailable);
  }
  const std::string_view value = trimmed(content);
  if (value.empty()) return Observed<std::string>::none(shown(path), "the file is empty");
  return Observed<std::string>::of(std::string(value), shown(path));
}

Observed<long long> SystemFiles::integer(const std::string& path) const {
  const Observed<std::string> content = text(path);
  if (!content) return Observed<long long>::none(content);
  const std::string word = split_words(*content).front();
  if (const auto value = parse_integer(word)) return Observed<long long>::of(*value, shown(path));
  return Observed<long long>::none(shown(path), "\"" + word + "\" is not a number");
}

Observed<std::string> SystemFiles::field(const std::string& path, std::string_view key,
                                         char separator) const {
  const Observed<std::string> content = text(path);
  if (!content) return content;
  for (const std::string& line : split_words(*content, "\n")) {
    const std::size_t at = line.find(separator);
    if (at == std::string::npos || trimmed(std::string_view(line).substr(0, at)) != key) continue;
    const std::string_view value = unquoted(trimmed(std::string_view(line).substr(at + 1)));
    if (!value.empty()) return Observed<std::string>::of(std::string(value), shown(path));
  }
  return Observed<std::string>::none(shown(path), "no field \"" + std::string(key) + "\"");
}

Observed<Bytes> SystemFiles::memory(const std::string& path, std::string_view key) const {
  const auto text = field(path, key, ':');
  if (!text) return Observed<Bytes>::none(text);
  const auto words = split_words(*text);
  const auto kilobytes = parse_integer(words.front());
  if (kilobytes && *kilobytes >= 0 && words.size() == 2 && words[1] == "kB") {
    return Observed<Bytes>::of(Bytes(static_cast<std::uint64_t>(*kilobytes) * 1024), text.source);
  }
  return Observed<Bytes>::none(text.source, "\"" + *text + "\" is not a size in kB");
}

bool SystemFiles::exists(const std::string& path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ / path, ignored);
}

// A control group is a folder of files in a mounted *hierarchy*. Two tables of the kernel tell
// where this process's group is: /proc/self/cgroup names the group, /proc/self/mountinfo the folder
// under which the hierarchy is mounted. Limits hold for a group and all below it, so every folder
// from the group up to the root counts, and the tightest limit wins.

namespace {

/// Returns this process's group; an empty `controller` stands for version 2.
std::optional<std::string> group_of_process(const SystemFiles& files,
                                            const std::string& controller) {
  const Observed<std::string> content = files.text("proc/self/cgroup");
  if (!content) return std::nullopt;
  for (const std::string& line : split_words(*content, "\n")) {  // id:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const auto controllers = split_words(names, ",");
    const bool is_listed = controller.empty()
                               ? names.empty()
                               : std::ranges::find(controllers, controller) != controllers.end();
    if (is_listed) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Lists the folders of a mounted hierarchy from the process's group up to its root, nothing where
/// it is not mounted. Lines of /proc/self/mountinfo read "id parent dev root mount options… - type
/// source super-options" (proc(5)): the group `root` is the one that is seen at `mount`.
std::vector<std::string> folders_upwards(const SystemFiles& files, const std::string& controller) {
  const auto group = group_of_process(files, controller);
  const Observed<std::string> mounts = files.text("proc/self/mountinfo");
  if (!group || !mounts) return {};
  const std::string wanted = controller.empty() ? "cgroup2" : "cgroup";
  for (const std::string& line : split_words(*mounts, "\n")) {
    const auto words = split_words(line, " ");
    const auto dash = std::ranges::find(words, "-");
    if (words.size() < 6 || words.end() - dash < 4 || dash[1] != wanted) continue;
    const auto options = split_words(dash[3], ",");
    const bool is_listed = std::ranges::find(options, controller) != options.end();
    if (!controller.empty() && !is_listed) continue;
    const std::string &root = words[3], mount = words[4].substr(1);
    std::string path = *group;
    if (root != "/" && path.starts_with(root)) path.erase(0, root.size());
    std::vector<std::string> folders;
    for (; path.size() > 1; path.erase(path.rfind('/'))) folders.push_back(mount + path);
    folders.push_back(mount);
    return folders;
  }
  return {};
}

/// Keeps the tighter one of two limits, with its source.
template <class T>
void keep_tighter(Observed<T>& limit, T value, const std::string& path) {
  if (!limit || value < *limit) limit = Observed<T>::of(value, "/" + path);
}

/// Notes a group's quota of CPU time, in microseconds of every period.
void keep_quota(std::optional<long long> quota, std::optional<long long> period,
                const std::string& path, Observed<double>& cores) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  keep_tighter(cores, static_cast<double>(*quota) / static_cast<double>(*period), path);
}

/// Reads a group's quota of CPU time in version 2.
void read_cpu_v2(const SystemFiles& files, const std::string& folder, Observed<double>& cores) {
  const std::string path = folder + "/cpu.max";  // "max 100000" or "150000 100000"
  const auto words = split_words(files.text(path).value.value_or(""));
  if (words.size() == 2) keep_quota(parse_integer(words[0]), parse_integer(words[1]), path, cores);
}

/// Reads a group's quota of CPU time in version 1.
void read_cpu_v1(const SystemFiles& files, const std::string& folder, Observed<double>& cores) {
  const std::string path = folder + "/cpu.cfs_quota_us";  // -1: none
  keep_quota(files.integer(path).value, files.integer(folder + "/cpu.cfs_period_us").value, path,
             cores);
}

/// The files of one group; their names differ between the versions.
struct MemoryFiles {
  const char* limit;
  const char* usage;
  const char* inactive;  ///< a field of memory.stat
};

/// Reads a group's memory. "No limit" is "max" in version 2 and a number near 2^63 in version 1.
void read_memory(const SystemFiles& files, const std::string& folder, const MemoryFiles& names,
                 CgroupLimits& limits) {
  constexpr long long beyond_any_machine = 1LL << 62;
  const std::string path = folder + names.limit;
  const auto limit = files.integer(path);
  if (!limit || *limit <= 0 || *limit >= beyond_any_machine) return;
  keep_tighter(limits.memory, Bytes(static_cast<std::uint64_t>(*limit)), path);
  const auto usage = files.integer(folder + names.usage);
  if (!usage) return;
  const auto kept = files.field(folder + "/memory.stat", names.inactive, ' ');
  const long long kept_bytes = kept ? parse_integer(*kept).value_or(0) : 0;
  const long long left = std::clamp(*limit - *usage + kept_bytes, 0LL, *limit);
  keep_tighter(limits.memory_left, Bytes(static_cast<std::uint64_t>(left)), folder + names.usage);
}

}  // namespace

CgroupLimits read_cgroup_limits(const SystemFiles& files) {
  CgroupLimits limits{Observed<double>::none("/proc/self/cgroup", "no limit"),
                      Observed<Bytes>::none("/proc/self/cgroup", "no limit"),
                      Observed<Bytes>::none("/proc/self/cgroup", "no limit")};
  for (const std::string& folder : folders_upwards(files, "")) {
    read_cpu_v2(files, folder, limits.cores);
    read_memory(files, folder, {"/memory.max", "/memory.current", "inactive_file"}, limits);
  }
  for (const std::string& folder : folders_upwards(files, "cpu")) {
    read_cpu_v1(files, folder, limits.cores);
  }
  for (const std::string& folder : folders_upwards(files, "memory")) {
    read_memory(files, folder,
                {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"},
                limits);
  }
  return limits;
}

Observed<Bytes> available_memory(const SystemFiles& files) {
  const Observed<Bytes> of_system = files.memory("proc/meminfo", "MemAvailable");
  const Observed<Bytes> of_groups = read_cgroup_limits(files).memory_left;
  if (!of_system || !of_groups) return of_system ? of_system : of_groups;
  return *of_groups < *of_system ? of_groups : of_system;
}

}  // namespace heteroperf
