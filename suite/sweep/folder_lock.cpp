#include "suite/sweep/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "metrics/base/error.hpp"

namespace heteroperf {

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& way_out)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY)) {
  // Where the file system has no locks, two processes in one folder are the user's to avoid.
  if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(descriptor_);
  throw UserError("another process works on the sweep in " + folder.string(), "", way_out);
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace heteroperf
