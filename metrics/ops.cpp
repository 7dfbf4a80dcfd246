#include "metrics/ops.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {

Ops Ops::parse(std::string_view text) {
  Ops result;
  if (text.empty()) throw UserError("an operation count is empty", "expected decimal digits");
  for (char c : text) {
    if (c < '0' || c > '9') {
      throw UserError("'" + std::string(text) + "' is not an operation count",
                      "expected decimal digits");
    }
    Word next = 0;
    if (__builtin_mul_overflow(result.value_, Word{10}, &next) ||
        __builtin_add_overflow(next, static_cast<Word>(c - '0'), &result.value_)) {
      throw UserError("operation count '" + std::string(text) + "' is too large",
                      "it must fit in 128 bits");
    }
  }
  return result;
}

double Ops::to_double() const {
  return std::ldexp(static_cast<double>(high()), 64) + static_cast<double>(low());
}

std::string Ops::to_string() const {
  std::string digits;
  Word rest = value_;
  do {
    digits += static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Ops& Ops::operator+=(Ops other) {
  const bool overflow = __builtin_add_overflow(value_, other.value_, &value_);
  HETEROPERF_ENSURE(!overflow);
  return *this;
}

Ops& Ops::operator-=(Ops other) {
  HETEROPERF_EXPECT(other.value_ <= value_);
  value_ -= other.value_;
  return *this;
}

Ops& Ops::operator*=(std::uint64_t factor) {
  const bool overflow = __builtin_mul_overflow(value_, static_cast<Word>(factor), &value_);
  HETEROPERF_ENSURE(!overflow);
  return *this;
}

Ops operator/(Ops a, std::uint64_t divisor) {
  HETEROPERF_EXPECT(divisor != 0);
  a.value_ /= divisor;
  return a;
}

}  // namespace heteroperf
