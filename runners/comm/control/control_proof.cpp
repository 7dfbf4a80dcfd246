#include "runners/comm/control/control_proof.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

// The message that is proved consists of a label for the end, the rank and both nonces:
//
//     | "control: hub  " or "control: spoke" | rank: 8 | rank's nonce: 32 | hub's nonce: 32 |

namespace heteroperf {
namespace {

/// All parts of the proved message have a fixed length, so no two handshakes make the same bytes.
constexpr const char* hub_label = "control: hub  ";
constexpr const char* spoke_label = "control: spoke";

/// The bytes of a number, little endian.
std::string octets(std::uint64_t number) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>(number >> shift));
  }
  return bytes;
}

}  // namespace

std::string ControlAddress::text() const {
  std::ostringstream out;
  out << token << ' ' << port;
  for (const std::string& host : hosts) out << ' ' << host;
  return out.str();
}

ControlAddress ControlAddress::parse(const std::string& text) {
  ControlAddress address;
  std::istringstream in(text);
  in >> address.token >> address.port;
  for (std::string host; in >> host;) address.hosts.push_back(host);
  HETEROPERF_ENSURE(!address.token.empty() && !address.hosts.empty());
  return address;
}

std::string fresh_nonce() {
  std::string nonce;
  while (nonce.size() < nonce_bytes) nonce += octets(unpredictable_bits());
  return nonce;
}

std::string fresh_token() {
  constexpr std::size_t token_digits = 64;
  std::string token;
  while (token.size() < token_digits) token += fmt::format("{:016x}", unpredictable_bits());
  return token;
}

std::string control_proof(ControlEnd end, const ControlHandshake& handshake,
                          const std::string& token) {
  HETEROPERF_EXPECT(handshake.rank_nonce.size() == nonce_bytes &&
                    handshake.hub_nonce.size() == nonce_bytes);
  const std::string message = (end == ControlEnd::hub ? hub_label : spoke_label) +
                              octets(handshake.rank) + handshake.rank_nonce + handshake.hub_nonce;
  std::array<unsigned char, EVP_MAX_MD_SIZE> proof{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), proof.data(),
           &size) == nullptr) {
    throw SystemError("HMAC-SHA256 does not work", "libcrypto refused");
  }
  return {reinterpret_cast<const char*>(proof.data()), size};
}

bool is_control_proof(const std::string& given, ControlEnd end, const ControlHandshake& handshake,
                      const std::string& token) {
  const std::string expected = control_proof(end, handshake, token);
  return given.size() == expected.size() &&
         CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
}

}  // namespace heteroperf
