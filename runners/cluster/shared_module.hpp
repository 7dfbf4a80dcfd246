#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heteroperf {

/// Says if libraries that are loaded later see a module's symbols. Open MPI's plug-ins need
/// `global`.
enum class Visibility { local, global };

/// A part of the program that lies in a library of its own (`libheteroperf_<name>.so`) and is
/// loaded on first use. It stays loaded until the process ends.
class SharedModule {
 public:
  /// Finds the module's file without loading it. Throws SystemError{environment} with the folders
  /// searched.
  static std::filesystem::path find(const std::string& name);
  /// Loads it. Throws as `find`, and SystemError{environment} with the loader's own words.
  static SharedModule open(const std::string& name, Visibility visibility);

  /// Returns a function of type `F`. Throws SystemError{environment} when the module lacks it.
  template <class F>
  F* symbol(const char* name) const {
    return reinterpret_cast<F*>(address(name));
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  SharedModule(void* handle, std::filesystem::path path)
      : handle_(handle), path_(std::move(path)) {}
  void* address(const char* name) const;

  void* handle_;
  std::filesystem::path path_;
};

/// The state of an optional library, asked without initialising it.
struct BackendStatus {
  bool built = false, usable = false;
  std::string version;
  std::string reason;  ///< why it is not usable; empty when it is
};

/// Lists the folders in which modules are looked for, best first: each folder of
/// HETEROPERF_MODULE_PATH, `lib/heteroperf` beside the program's folder or one of its parents, the
/// install prefix.
std::vector<std::filesystem::path> module_folders();

/// Returns the path of this program's own file.
std::filesystem::path program_path();

}  // namespace heteroperf
