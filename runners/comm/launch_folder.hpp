#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "metrics/base/cache_folder.hpp"

namespace heteroperf {

/// Why the ranks ended, in the words of the first that said so.
struct ExitReport {
  int code = 0;
  std::string text;
};

/// The private folder of one launch; making it throws as PrivateFolder does. Its path
/// in a process's environment (HETEROPERF_LAUNCHED) marks that process as part of the launch.
class LaunchFolder {
 public:
  static constexpr const char* variable = "HETEROPERF_LAUNCHED";

  const std::filesystem::path& path() const { return folder_.path(); }
  std::optional<ExitReport> report() const;
  /// Living processes of this launch, mpirun included.
  std::vector<pid_t> processes() const;

 private:
  PrivateFolder folder_{"launch-"};
};

}  // namespace heteroperf
