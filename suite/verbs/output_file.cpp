#include "suite/verbs/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/run_folder.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// In the system's words; empty where it can be written.
std::string why_not_writable(const fs::path& path) {
  const bool exists = access(path.c_str(), F_OK) == 0;
  if (!exists && errno != ENOENT) return std::strerror(errno);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return std::strerror(EISDIR);
  const bool writable =
      exists ? access(path.c_str(), W_OK) == 0 : access(home_of(path).c_str(), W_OK | X_OK) == 0;
  return writable ? "" : std::strerror(errno);
}

/// Whether a new file may take the name: no pipe or device has it, and the folder takes one.
bool can_be_replaced(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return (!fs::exists(status) || fs::is_regular_file(status)) &&
         access(home_of(path).c_str(), W_OK | X_OK) == 0;
}

/// What a link points to, so that the link stays.
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
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  return static_cast<bool>(file);
}

void OutputFile::save(const std::string& text) const {
  if (write(text)) return;
  throw SystemError("cannot write " + path_, "the disk is full, or refuses",
                    fmt::format("Give {} another path.", option_), ErrorKind::environment);
}

}  // namespace heteroperf
