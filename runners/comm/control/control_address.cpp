#include "runners/comm/control/control_address.hpp"

#include <sstream>

#include "metrics/base/error.hpp"

namespace heteroperf {

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

}  // namespace heteroperf
