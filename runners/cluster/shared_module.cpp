#include "runners/cluster/shared_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "metrics/base/error.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// In the build tree a program lies a few folders below the one that holds lib/.
constexpr int levels_up = 6;

}  // namespace

fs::path program_path() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

std::vector<fs::path> module_folders() {
  const char* listed = std::getenv("HETEROPERF_MODULE_PATH");
  std::vector<fs::path> folders;
  for (const std::string& folder : split_words(listed == nullptr ? "" : listed, ":")) {
    folders.emplace_back(folder);
  }
  fs::path above = program_path().parent_path();
  folders.push_back(above.parent_path() / HETEROPERF_INSTALL_LIBDIR / "heteroperf");
  for (int level = 0; level < levels_up && above.has_relative_path(); ++level) {
    above = above.parent_path();
    folders.push_back(above / "lib" / "heteroperf");
  }
  folders.push_back(fs::path(HETEROPERF_INSTALL_FULL_LIBDIR) / "heteroperf");
  std::vector<fs::path> unique;
  for (const fs::path& folder : folders) {
    if (std::ranges::find(unique, folder) == unique.end()) unique.push_back(folder);
  }
  return unique;
}

fs::path SharedModule::find(const std::string& name) {
  const std::string file = fmt::format("libheteroperf_{}.so", name);
  std::string searched;
  for (const fs::path& folder : module_folders()) {
    std::error_code ignored;
    if (fs::exists(folder / file, ignored)) return folder / file;
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw SystemError(
      fmt::format("the {} module is missing", name), fmt::format("no {} in {}", file, searched),
      "Build that part, or name its folder in the environment variable HETEROPERF_MODULE_PATH",
      ErrorKind::environment);
}

SharedModule SharedModule::open(const std::string& name, Visibility visibility) {
  const int scope = visibility == Visibility::global ? RTLD_GLOBAL : RTLD_LOCAL;
  const fs::path path = find(name);
  void* handle = dlopen(path.c_str(), RTLD_NOW | scope);
  if (handle != nullptr) return SharedModule(handle, path);
  throw SystemError(fmt::format("the {} module does not load", name), dlerror(),
                    "Run heteroperf doctor, or rebuild where its libraries are installed",
                    ErrorKind::environment);
}

void* SharedModule::address(const char* name) const {
  void* function = dlsym(handle_, name);
  if (function != nullptr) return function;
  throw SystemError(fmt::format("{} lacks the function {}", path_.string(), name), dlerror(),
                    "It is of another version than this program. Rebuild or reinstall both",
                    ErrorKind::environment);
}

}  // namespace heteroperf
