#include "metrics/base/cache_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "metrics/base/error.hpp"

namespace heteroperf {

namespace fs = std::filesystem;
namespace {

constexpr mode_t written_by_others = S_IWGRP | S_IWOTH;

[[noreturn]] void refuse(const fs::path& folder, const std::string& why) {
  throw SystemError("cannot use the folder " + folder.string(), why,
                    "Set XDG_CACHE_HOME to a folder of your own", ErrorKind::environment);
}

/// Throws with the reason of the system call that failed last.
[[noreturn]] void fail(const std::string& problem) {
  throw SystemError(problem, std::strerror(errno),
                    "Set XDG_CACHE_HOME to a folder that can be written to",
                    ErrorKind::environment);
}

/// Returns the mode of a folder. Its owner, and the owner of a link in its place, can exchange its
/// contents: throws unless both are among `owners`, and where the folder is missing.
mode_t mode_of(const fs::path& folder, std::initializer_list<uid_t> owners) {
  struct stat status {};
  for (const auto look : {::lstat, ::stat}) {
    if (look(folder.c_str(), &status) != 0) {
      fail("cannot make the folder " + folder.string());
    }
    if (std::find(owners.begin(), owners.end(), status.st_uid) == owners.end()) {
      refuse(folder, "it belongs to another user");
    }
  }
  return status.st_mode;
}

/// Closes a folder to which others could write, as older versions made it where the umask is 002,
/// and removes the files that they may have put or changed there.
void make_private(const fs::path& folder, mode_t mode) {
  ::chmod(folder.c_str(), S_IRWXU);
  if ((mode_of(folder, {geteuid()}) & written_by_others) != 0) {
    refuse(folder, "others may write to it");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    struct stat status {};
    if (::lstat(entry.path().c_str(), &status) != 0) continue;
    if (status.st_uid == geteuid() && (status.st_mode & written_by_others) == 0) continue;
    std::error_code error;
    fs::remove_all(entry.path(), error);
    if (!error) continue;
    ::chmod(folder.c_str(), mode);  // the next start then reports the same
    refuse(entry.path(), "another user put it there: " + error.message());
  }
}

/// Takes the lock of a folder, which ends with the process. Returns -1 where another process holds
/// it, and where the file system has no such locks.
int lock_of(const fs::path& folder) {
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  ::close(lock);
  return -1;
}

/// Hosts may share a home, but the locks of folders are not known to other hosts: names carry both.
std::string host_part() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string name(host.data());
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name + "-";
}

/// Removes folders whose names begin with `start` and whose owners are gone. A folder that was just
/// made may not be locked yet, so young ones stay.
void remove_abandoned(const fs::path& cache, const std::string& start) {
  constexpr auto settled = std::chrono::minutes(1);
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache, error)) {
    if (!entry.path().filename().string().starts_with(start)) continue;
    const auto changed = entry.last_write_time(error);
    if (error || fs::file_time_type::clock::now() - changed < settled) continue;
    const int lock = lock_of(entry.path());
    if (lock < 0) continue;
    fs::remove_all(entry.path(), error);
    ::close(lock);
  }
}

}  // namespace

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return fs::path(cache) / "heteroperf";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return fs::path(home) / ".cache" / "heteroperf";
  }
  return fmt::format("/tmp/heteroperf-{}", geteuid());
}

fs::path own_cache_folder() {
  const fs::path cache = cache_folder(), parent = cache.parent_path();
  std::error_code error;
  fs::create_directories(parent.parent_path(), error);
  ::mkdir(parent.c_str(), S_IRWXU);  // a failure shows up in the checks below
  ::mkdir(cache.c_str(), S_IRWXU);
  if ((mode_of(parent, {geteuid(), 0}) & (S_IWOTH | S_ISVTX)) == S_IWOTH) {
    refuse(parent, "everybody may exchange what is in it");
  }
  const mode_t mode = mode_of(cache, {geteuid()});
  if ((mode & written_by_others) != 0) make_private(cache, mode);
  return cache;
}

PrivateFolder::PrivateFolder(const std::string& prefix) {
  const fs::path cache = own_cache_folder();
  const std::string start = prefix + host_part();
  remove_abandoned(cache, start);
  std::string name = (cache / (start + "XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) {
    fail("cannot create a folder in " + cache.string());
  }
  path_ = name;
  lock_ = lock_of(path_);
}

PrivateFolder::~PrivateFolder() {
  if (lock_ >= 0) ::close(lock_);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace heteroperf
