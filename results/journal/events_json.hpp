#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "results/journal/events.hpp"

namespace heteroperf {

inline constexpr const char* journal_format = "heteroperf-journal";
inline constexpr int journal_version = 1;
/// `prev` of the first line.
inline constexpr std::string_view no_previous_line =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// Calls `visit(name, member)` for each field of an event, or of an object within one, in the order
/// in which they are written. It serves writer and reader alike.
template <class E>
void visit_fields(E& event, auto&& visit) {
  std::string_view names = E::field_names;
  const auto next_name = [&] {
    const std::string name(names.substr(0, names.find(',')));
    names.remove_prefix(std::min(names.size(), name.size() + 2));
    return name;
  };
  std::apply([&](auto&... members) { (visit(next_name(), members), ...); }, event.fields());
}

/// One journal line without its newline: {"t_ns","rank","kind",…,"prev"}. A double that is not
/// finite is written as "<name>_nonfinite":"nan" | "inf" | "-inf"; empty strings, lists and absent
/// values are left out.
std::string event_to_json_line(std::int64_t t_ns, const Event& event, std::string_view prev);

struct ParsedLine {
  std::int64_t t_ns = 0;
  std::string prev;
  Event event;
};
/// Throws UserError saying what is wrong with the line (malformed, unknown kind or key, wrong
/// type); the caller adds path and line number.
ParsedLine event_from_json_line(std::string_view line);

}  // namespace heteroperf
