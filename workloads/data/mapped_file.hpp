#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace heteroperf {

/// A file's bytes, mapped for reading: ranks on one node share the pages. Move-only.
class MappedFile {
 public:
  /// Throws UserError with the path and the system's words when it cannot be opened as a file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace heteroperf
