#include "metrics/base/random.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "metrics/base/error.hpp"

namespace heteroperf {

std::uint64_t unpredictable_bits() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
    throw SystemError("the system gives no random bits", std::strerror(errno));
  }
  return bits;
}

}  // namespace heteroperf
