#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace heteroperf {

/// The place where rank 0 listens, and the launch's secret. It reaches the other ranks by the
/// launcher's own means (MPI), never over the control connection.
struct ControlAddress {
  std::string token;  ///< hexadecimal digits
  std::uint16_t port = 0;
  std::vector<std::string> hosts;

  /// "token port host host …"
  std::string text() const;
  static ControlAddress parse(const std::string& text);
};

/// The two ends of a new control connection prove to each other that they know the launch's
/// token, which itself never travels. Each frame is the answer to the one before:
///
///     rank → rank 0   hello       id = rank; rank_nonce
///     rank 0 → rank   challenge   hub_nonce
///     rank → rank 0   answer      proof of ControlEnd::spoke
///     rank 0 → rank   welcome     proof of ControlEnd::hub
///
/// A proof is HMAC-SHA256 (RFC 2104) under the token of the end that makes it, the rank and both
/// nonces. The end keeps a proof that is sent back to its maker from counting, and fresh nonces
/// keep one of another connection from it.
struct ControlHandshake {
  std::uint64_t rank = 0;
  std::string rank_nonce, hub_nonce;  ///< `nonce_bytes` each
};

enum class ControlEnd { hub, spoke };

inline constexpr std::size_t nonce_bytes = 32;

/// Nonce and token are drawn from the operating system, so nobody can foretell them. Both calls
/// throw SystemError.
std::string fresh_nonce();
/// 64 hexadecimal digits.
std::string fresh_token();

/// 32 bytes. Throws SystemError where libcrypto refuses.
std::string control_proof(ControlEnd end, const ControlHandshake& handshake,
                          const std::string& token);
/// True where `given` is that proof. The time of the comparison does not tell where they differ.
bool is_control_proof(const std::string& given, ControlEnd end, const ControlHandshake& handshake,
                      const std::string& token);

}  // namespace heteroperf
