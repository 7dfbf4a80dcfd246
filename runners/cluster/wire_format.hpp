#pragma once

#include <string>

namespace heteroperf {

/// How float32 values travel over a thin link. Sums are always made in float32.
enum class WireFormat {
  fp32,  ///< as they are; the only format of other types
  bf16,  ///< rounded to nearest: relative error at most 2^-8 per contribution
  int8,  ///< blocks with a scale: error at most absmax/254 of the block per contribution
};

/// "fp32", "bf16", "int8".
const char* to_string(WireFormat format);
/// Throws UserError naming the nearest format.
WireFormat parse_wire_format(const std::string& text);

}  // namespace heteroperf
