// A file that a verb writes its result to. Whether it can be written is found out when the option
// is read, because nobody wants to learn after a long measurement that a folder is missing. The
// result is written to a new file that then takes the name, so a reader sees the old content or all
// of the new. A pipe or a device cannot be replaced and is written to directly; a symbolic link
// keeps its name, and its target is replaced.
#include "suite/verbs/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Says in the system's words why a file cannot be written; empty where it can.
std::string why_not_writable(const fs::path& path) {
  const bool exists = access(path.c_str(), F_OK) == 0;
  // A folder on the way that may not be entered, for example.
  if (!exists && errno != ENOENT) return std::strerror(errno);
  std::error_code ignored;
  // access() alone would call a folder writable.
  if (fs::is_directory(path, ignored)) return std::strerror(EISDIR);
  const bool writable =
      exists ? access(path.c_str(), W_OK) == 0 : access(home_of(path).c_str(), W_OK | X_OK) == 0;
  return writable ? "" : std::strerror(errno);
}

/// True where a new file may take the name: no pipe or device has it, and the folder takes one.
bool can_be_replaced(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return (!fs::exists(status) || fs::is_regular_file(status)) &&
         access(home_of(path).c_str(), W_OK | X_OK) == 0;
}

/// Returns what a link points to, so that the link stays.
fs::path target_of(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

}  // namespace

OutputFile::OutputFile(std::string path, const char* option)
    : path_(std::move(path)), option_(option) {
  if (!given()) return;
  const std::string why = why_not_writable(path_);
  if (why.empty()) return;
  throw UserError("cannot write " + path_, why,
                  std::string("Give ") + option + " a writable path.");
}

bool OutputFile::write(const std::string& text) const {
  if (!given()) return true;
  if (const fs::path target = target_of(path_); can_be_replaced(target)) {
    try {
      write_file_atomically(target, text);
      return true;
    } catch (const SystemError&) {
      return false;
    }
  }
  // A pipe, a device, or a file in a folder that takes no new ones.
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  // The flush has told of a full disk.
  return static_cast<bool>(file);
}

void OutputFile::save(const std::string& text) const {
  if (write(text)) return;
  throw SystemError("cannot write " + path_, "the disk is full, or refuses",
                    fmt::format("Give {} another path.", option_), ErrorKind::environment);
}

}  // namespace heteroperf
