#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heteroperf {

/// Where rank 0 listens, and the launch's secret.
struct ControlAddress {
  std::string token;  ///< hexadecimal digits
  std::uint16_t port = 0;
  std::vector<std::string> hosts;

  /// "token port host host …"
  std::string text() const;
  static ControlAddress parse(const std::string& text);
};

}  // namespace heteroperf
