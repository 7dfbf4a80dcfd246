#include "runners/comm/collectives/message_tags.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"

namespace heteroperf {

void check_users_tag(int tag, int first_reserved) {
  if (tag < first_reserved) return;
  throw UserError(fmt::format("a message with tag {}", tag),
                  fmt::format("tags from {} on belong to collectives", first_reserved),
                  fmt::format("Use 0 to {}", message_tags::first_reserved - 1));
}

}  // namespace heteroperf
