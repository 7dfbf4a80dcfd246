#include "runners/cluster/wire_format.hpp"

#include <array>
#include <utility>
#include <vector>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

constexpr std::array<std::pair<WireFormat, const char*>, 3> formats = {{
    {WireFormat::fp32, "fp32"},
    {WireFormat::bf16, "bf16"},
    {WireFormat::int8, "int8"},
}};

}  // namespace

const char* to_string(WireFormat format) {
  for (const auto& [value, name] : formats) {
    if (value == format) return name;
  }
  return "?";
}

WireFormat parse_wire_format(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [value, name] : formats) {
    if (text == name) return value;
    names.emplace_back(name);
  }
  const std::string nearest = nearest_name(text, names);
  throw UserError("unknown wire format \"" + text + "\"", "known are fp32, bf16, int8",
                  nearest.empty() ? "" : "Did you mean \"" + nearest + "\"?");
}

}  // namespace heteroperf
