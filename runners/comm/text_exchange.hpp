#pragma once

#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The text of the group's first rank, on every rank of it. Collective.
std::string share_text(Communicator& group, std::string text);

/// The texts of all ranks in rank order, on every rank. Collective.
std::vector<std::string> gather_texts(Communicator& group, const std::string& mine);

}  // namespace heteroperf
