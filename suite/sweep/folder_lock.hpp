#pragma once

#include <filesystem>

namespace heteroperf {

/// Held while a process works on a sweep's folder. The runs inherit it: one that outlives a killed
/// sweep still writes there, and takes cores. Throws UserError where another process has it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace heteroperf
