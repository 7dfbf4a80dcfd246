#pragma once

#include <string>

#include "runners/comm/discovery/rank_descriptor.hpp"

namespace heteroperf {

/// As one line of JSON; bytes that are not UTF-8 are replaced.
std::string descriptor_text(const RankDescriptor& descriptor);
/// Throws UserError with everything wrong; `origin` begins its messages.
RankDescriptor parse_descriptor(const std::string& text, const std::string& origin);

}  // namespace heteroperf
