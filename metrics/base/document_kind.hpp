#pragma once

#include <span>
#include <string>
#include <string_view>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// One kind of document that this program reads or writes, as its key `_format` names it.
struct DocumentKind {
  const char* format;  ///< the value of `_format` in its files: "heteroperf-plan"
  int version;         ///< the version that this program writes
  const char* noun;    ///< the words of messages: "a plan"
  const char* origin;  ///< a sentence that says which command writes one; may be empty
};

std::span<const DocumentKind> document_kinds();
/// The kind with this `_format`; null for one that the program does not know.
const DocumentKind* find_document_kind(const std::string& format);

/// Returns the value of the first `_format` in a text, which need not be well formed. The result is
/// empty where there is none, and for binary contents, such as an archive that holds a document.
std::string stated_format(std::string_view text);

/// Throws wrong_kind() where a text that could not be parsed states another format than `wanted`.
void require_stated_format(std::string_view text, const std::string& origin,
                           const std::string& wanted);

/// Makes the error for a document that is not of the `wanted` format: "plan.json is a plan, a
/// cluster is wanted (its _format is "heteroperf-plan"). …". `stated` is the value of the
/// document's
/// `_format`, or empty where it has none.
UserError wrong_kind(const std::string& origin, const std::string& stated,
                     const std::string& wanted);

}  // namespace heteroperf
