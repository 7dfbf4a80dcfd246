#pragma once

#include <span>
#include <string>
#include <string_view>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// One kind of document that this program reads or writes, as its key `_format` names it.
struct DocumentKind {
  const char* format;  ///< "heteroperf-plan"
  int version;         ///< that this program writes
  const char* noun;    ///< "a plan"
  const char* origin;  ///< a sentence: what writes one; may be empty
};

std::span<const DocumentKind> document_kinds();

/// What the first `_format` in a text says, well formed or not; empty where there is none, and for
/// what is no text, as an archive that holds a document.
std::string stated_format(std::string_view text);

/// Throws wrong_kind() where a text that is no well-formed document states another format.
void require_stated_format(std::string_view text, const std::string& origin,
                           const std::string& wanted);

/// A document of another kind than the `wanted` format: "plan.json is a plan, a cluster is wanted
/// (its _format is "heteroperf-plan"). …". `found` is what its `_format` says; empty: nothing.
UserError wrong_kind(const std::string& origin, const std::string& found,
                     const std::string& wanted);

}  // namespace heteroperf
