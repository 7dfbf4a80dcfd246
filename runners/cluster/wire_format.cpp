#include "runners/cluster/wire_format.hpp"

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

constexpr Named<WireFormat> names[] = {
    {WireFormat::fp32, "fp32"}, {WireFormat::bf16, "bf16"}, {WireFormat::int8, "int8"}};

}  // namespace

const char* to_string(WireFormat format) { return name_of(names, format); }

WireFormat parse_wire_format(const std::string& text) {
  return parse_name(names, "wire format", text);
}

}  // namespace heteroperf
