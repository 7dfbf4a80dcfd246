#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "workloads/data/data_source.hpp"

namespace heteroperf {

using ByteVector = std::vector<std::uint8_t>;

/// A fresh folder for each test, removed with all it holds.
class ScratchFolder : public ::testing::Test {
 protected:
  ScratchFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("heteroperf-data-" + std::to_string(::getpid()) + "-" + test->name());
    std::filesystem::create_directories(folder_);
  }
  ~ScratchFolder() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const ByteVector& bytes) const {
    std::ofstream file(path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }

  std::string write_gzip(const std::string& name, const ByteVector& bytes) const {
    gzFile file = gzopen(path(name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path(name);
  }

  /// Cuts the last `count` bytes off.
  void truncate(const std::string& name, std::uintmax_t count) const {
    std::filesystem::resize_file(path(name), std::filesystem::file_size(path(name)) - count);
  }

  std::filesystem::path folder_;
};

/// The text of the UserError that opening gives, or a failure.
inline std::string open_error(const DataRequest& request) {
  try {
    open_data(request);
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "opening " << request.source << " must fail";
  return "";
}

#define EXPECT_TEXT(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace heteroperf
