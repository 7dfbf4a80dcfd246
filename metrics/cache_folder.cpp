#include "metrics/cache_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "metrics/error.hpp"

namespace heteroperf {

namespace fs = std::filesystem;
namespace {

/// Who owns a folder, or may write to it, can put another one in the place of what it holds.
void require_own(const fs::path& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) {
    throw SystemError("cannot make the folder " + folder.string(), std::strerror(errno),
                      "Set XDG_CACHE_HOME to a folder that can be written to",
                      ErrorKind::environment);
  }
  const bool mine = found.st_uid == geteuid();
  if (mine && (found.st_mode & S_IWOTH) == 0) return;
  throw SystemError("cannot use the folder " + folder.string(),
                    mine ? "everybody may write to it" : "it belongs to another user",
                    "Set XDG_CACHE_HOME to a folder of your own", ErrorKind::environment);
}

}  // namespace

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "heteroperf";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".cache" / "heteroperf";
  }
  return fmt::format("/tmp/heteroperf-{}", geteuid());
}

fs::path own_cache_folder() {
  const fs::path cache = cache_folder();
  std::error_code error;
  fs::create_directories(cache, error);
  require_own(cache);
  return cache;
}

PrivateFolder::PrivateFolder(const std::string& prefix) {
  const fs::path cache = own_cache_folder();
  std::string name = (cache / (prefix + "XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) {
    throw SystemError("cannot create a folder in " + cache.string(), std::strerror(errno),
                      "Set XDG_CACHE_HOME to a folder that can be written to",
                      ErrorKind::environment);
  }
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace heteroperf
