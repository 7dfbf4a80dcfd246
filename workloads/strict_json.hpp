#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "metrics/error.hpp"

namespace heteroperf {

using Json = nlohmann::ordered_json;

/// Parses text. Throws UserError beginning with `origin` when it is not JSON or an object has the
/// same key twice (nlohmann would silently keep the last).
Json parse_strict_json(std::string_view text, const std::string& origin);

/// "Did you mean 'x'?", or nothing when no candidate is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates);
/// "a, b, c".
std::string listed(const std::vector<std::string>& names);

/// Reads the members of one JSON object and notes in `problems`, each time beginning with
/// `subject`, what is wrong with them. The object and the list must outlive the reader.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string subject, ProblemList& problems)
      : json_(json), subject_(std::move(subject)), problems_(problems) {}

  void fail(const std::string& problem, std::string why = {}, std::string suggestion = {});
  /// Notes every key that is not in `valid`, with the nearest valid one.
  void check_keys(const std::vector<std::string>& valid);

  /// Null when the key is absent; `required` also notes that.
  const Json* required(const char* key);
  const Json* optional(const char* key) const;

  /// Stores `value` in `out`; notes a value of the wrong type (`key` names it) and leaves `out`.
  void read(const char* key, const Json& value, bool& out);
  void read(const char* key, const Json& value, double& out);
  void read(const char* key, const Json& value, std::string& out);
  void read(const char* key, const Json& value, std::int64_t& out);
  void read(const char* key, const Json& value, std::array<std::int64_t, 2>& out);
  void read(const char* key, const Json& value, std::vector<std::string>& out);
  void read(const char* key, const Json& value, std::vector<std::int64_t>& out);
  /// An enum by the names that `value_names` (found beside the enum) lists in its order.
  template <class Enum>
  requires std::is_enum_v<Enum>
  void read(const char* key, const Json& value, Enum& out) {
    const auto names = value_names(out);
    const int index = read_choice(key, value, {names.begin(), names.end()});
    if (index >= 0) out = static_cast<Enum>(index);
  }

 private:
  void wrong_type(const char* key, const Json& value, const std::string& expected);
  int read_choice(const char* key, const Json& value, const std::vector<std::string>& valid);

  const Json& json_;
  std::string subject_;
  ProblemList& problems_;
};

}  // namespace heteroperf
