#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace heteroperf {

/// Stands at the end of a struct and lists those of its members that are written to JSON, in the
/// order in which they are written. The key of each is its name, so a name is never changed once
/// documents are stored by it. Writer and reader both go by the list, with visit_fields().
#define HETEROPERF_FIELDS(...) HETEROPERF_FIELDS_AS(#__VA_ARGS__, __VA_ARGS__)
/// Lists members whose keys are other words than their names: "class, count".
#define HETEROPERF_FIELDS_AS(keys, ...)                 \
  auto fields() { return std::tie(__VA_ARGS__); }       \
  auto fields() const { return std::tie(__VA_ARGS__); } \
  static constexpr std::string_view field_keys = keys

template <class T>
concept WithFields = requires {
  T::field_keys;
};

/// The keys of such a struct, one by one. They live as long as the program.
template <WithFields T>
const std::vector<std::string>& keys_of_fields() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> words;
    for (std::string_view rest = T::field_keys; !rest.empty();) {
      words.emplace_back(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.size(), words.back().size() + 2));
    }
    return words;
  }();
  return keys;
}

/// Calls `visit(key, member)` for each field of a struct, in its order.
template <WithFields T>
void visit_fields(T& value, auto&& visit) {
  auto key = keys_of_fields<std::remove_const_t<T>>().begin();
  std::apply([&](auto&... members) { (visit(*key++, members), ...); }, value.fields());
}

}  // namespace heteroperf
