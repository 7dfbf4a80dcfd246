#include "metrics/cache_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "metrics/error.hpp"

namespace heteroperf {

namespace fs = std::filesystem;

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "heteroperf";
  }
  const char* home = std::getenv("HOME");
  return fs::path(home == nullptr ? "/tmp" : home) / ".cache" / "heteroperf";
}

fs::path make_cache_folder(const std::string& prefix) {
  const fs::path cache = cache_folder();
  std::error_code error;
  fs::create_directories(cache, error);
  std::string name = (cache / (prefix + "XXXXXX")).string();
  if (mkdtemp(name.data()) != nullptr) return name;
  throw SystemError("cannot create a folder in " + cache.string(), std::strerror(errno),
                    "Set XDG_CACHE_HOME to a folder that can be written to",
                    ErrorKind::environment);
}

}  // namespace heteroperf
