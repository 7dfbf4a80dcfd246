#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace heteroperf {

/// Incremental SHA-256 (FIPS 180-4) over libcrypto.
class Sha256 {
 public:
  Sha256();

  /// Adds bytes to those that are hashed; may be called any number of times.
  Sha256& update(std::string_view bytes);
  /// 64 lowercase hexadecimal digits; starts afresh.
  std::string finish();

 private:
  struct Release {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Release> context_;
};

/// Returns the hash of these bytes alone.
std::string sha256_hex(std::string_view bytes);
/// Throws UserError with the path when the file cannot be read, or is no regular one.
std::string sha256_file_hex(const std::string& path);

}  // namespace heteroperf
