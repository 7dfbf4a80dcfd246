#include "workloads/node_attributes.hpp"

#include "workloads/node_kinds.hpp"

namespace heteroperf {

const char* kind_name(const Attributes& attributes) {
  return std::visit([](const auto& kind) { return kind_row<std::decay_t<decltype(kind)>>.name; },
                    attributes);
}

}  // namespace heteroperf
