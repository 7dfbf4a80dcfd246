#pragma once

#include <filesystem>
#include <string>

namespace heteroperf {

/// Held while a process works on a sweep's folder. The runs inherit it: one that outlives a killed
/// sweep still writes there, and takes cores. Throws UserError with the suggestion `way_out` where
/// another process has it.
class FolderLock {
 public:
  FolderLock(const std::filesystem::path& folder, const std::string& way_out);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace heteroperf
