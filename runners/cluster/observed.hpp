#pragma once

#include <optional>
#include <string>
#include <utility>

namespace heteroperf {

enum class Availability { ok, unavailable, denied };

const char* to_string(Availability availability);

/// One value read from the machine and where it came from, or the reason why it could not be read.
/// A text value is never empty.
template <class T>
struct Observed {
  std::optional<T> value;
  std::string source;  ///< the file, call or library asked
  std::string reason;  ///< why there is no value; empty when there is one
  Availability status = Availability::unavailable;

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }

  static Observed of(T value, std::string source) {
    return {std::move(value), std::move(source), {}, Availability::ok};
  }
  static Observed none(std::string source, std::string reason,
                       Availability status = Availability::unavailable) {
    return {std::nullopt, std::move(source), std::move(reason), status};
  }
  /// The same absence, for a value of another type.
  template <class U>
  static Observed none(const Observed<U>& other) {
    return none(other.source, other.reason, other.status);
  }
};

}  // namespace heteroperf
