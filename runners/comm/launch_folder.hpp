#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace heteroperf {

/// Why the ranks ended, in the words of the first that said so.
struct ExitReport {
  int code = 0;
  std::string text;
};

/// The private folder of one launch, under the cache folder; removed with this object. Its path
/// in a process's environment (HETEROPERF_LAUNCHED) marks that process as part of the launch.
class LaunchFolder {
 public:
  static constexpr const char* variable = "HETEROPERF_LAUNCHED";

  /// Throws SystemError{environment} when it cannot be made.
  LaunchFolder();
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::optional<ExitReport> report() const;
  /// Living processes of this launch, mpirun included.
  std::vector<pid_t> processes() const;

 private:
  std::filesystem::path path_;
};

}  // namespace heteroperf
