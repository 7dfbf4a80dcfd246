#pragma once

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
