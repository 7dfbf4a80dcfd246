#pragma once

#include <string>

namespace heteroperf {

/// `validity.class` of a record or suite document; empty when there is none.
std::string validity_class_of(const std::string& document);

}  // namespace heteroperf
