// SHA-256 by OpenSSL's libcrypto. The program chains journal lines, seals documents and lists
// packed files by it; all hashes are written as 64 lowercase hexadecimal digits. Files are hashed
// in pieces of 1 MiB, so that one of any size fits into memory.
#include "results/text/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"

namespace heteroperf {

namespace {

/// A refusal of libcrypto is an error of the system, not of the input.
void check(bool ok) {
  if (!ok) throw SystemError("SHA-256 does not work", "libcrypto refused");
}

/// Begins a new hash; the same context serves any number of them.
void start(EVP_MD_CTX* context) {
  check(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
}

}  // namespace

void Sha256::Release::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { start(context_.get()); }

Sha256& Sha256::update(std::string_view bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  return *this;
}

/// The digest is written as two digits per byte; then the context starts a new hash.
std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  start(context_.get());
  return hex;
}

std::string sha256_hex(std::string_view bytes) { return Sha256().update(bytes).finish(); }

std::string sha256_file_hex(const std::string& path) {
  constexpr std::size_t piece_bytes = 1 << 20;
  require_regular_file(path);
  std::ifstream file(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> piece(piece_bytes);
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    hash.update({piece.data(), static_cast<std::size_t>(file.gcount())});
  }
  if (!file.eof()) throw UserError("cannot read " + path, std::strerror(errno));
  return hash.finish();
}

}  // namespace heteroperf
