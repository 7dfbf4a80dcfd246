#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metrics/random.hpp"

namespace heteroperf {

/// Where rank 0 listens, and the session's secret.
struct ControlAddress {
  std::uint64_t token = 0;
  std::uint16_t port = 0;
  std::vector<std::string> hosts;

  /// "token port host host …"
  std::string text() const;
  static ControlAddress parse(const std::string& text);
  /// What rank 0 answers: proof that it knows the token, too.
  std::uint64_t answer() const { return mix64(token); }
};

}  // namespace heteroperf
