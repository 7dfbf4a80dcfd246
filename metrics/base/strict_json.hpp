#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {

using Json = nlohmann::ordered_json;

/// Bounds of how deep lists may nest and how many keys an object may hold. Readers of documents
/// call themselves level by level, and look at all keys to find one.
struct JsonLimits {
  std::size_t levels = 16, keys = 256;
};
/// The limits of the files that runs leave: records, and lines of journals. Their widest object is
/// the system's `environment`, with a key for each variable that steers a library or the scheduler.
inline constexpr JsonLimits run_file_limits{64, 1024};

/// Parses a JSON document and refuses documents that would be read wrongly or slowly.
///
/// Throws UserError beginning with `origin` where `text` is no JSON, where an object has the same
/// key twice (nlohmann keeps the last), where it is beyond the limits, or where its nesting makes
/// reading take far longer than its length does. A text that is no JSON but states another
/// `_format` than `wanted_format` is reported as a document of the wrong kind.
Json parse_strict_json(std::string_view text, const std::string& origin,
                       const std::string& wanted_format = {}, JsonLimits limits = {});

/// Says if a document may go without the key `_format`.
enum class FormatKey { required, optional };

/// Throws UserError unless `_format` and `_version` are these. Its one problem names both kinds.
void require_format(const Json& json, const std::string& origin, const std::string& format,
                    int version, FormatKey key = FormatKey::required);

/// The problems of one document, each beginning with its origin. Only the first 16 are kept.
class DocumentProblems {
 public:
  explicit DocumentProblems(std::string origin) : origin_(std::move(origin)) {}

  void add(const std::string& problem, std::string why = {}, std::string suggestion = {});
  /// Adds all problems of an error, each with `prefix` in front.
  void add_all(const UserError& error, const std::string& prefix = {});
  bool empty() const { return count_ == 0; }
  bool full() const;
  void throw_if_any();
  const std::string& origin() const { return origin_; }

 private:
  std::string origin_;
  ProblemList list_;
  std::size_t count_ = 0;
};

/// Writes a value for a message: on one line, printable and short whatever it holds.
std::string shown(const Json& value);
/// Returns `Did you mean "x"?`, or nothing when no candidate is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates);
/// Returns true for a whole number that `Int` can hold. The check comes before the conversion,
/// because nlohmann converts any number, and a value beyond the type is undefined.
template <class Int, class AnyJson>
bool is_whole(const AnyJson& json) {
  return json.is_number_unsigned()
             ? std::in_range<Int>(json.template get<std::uint64_t>())
             : json.is_number_integer() && std::in_range<Int>(json.template get<std::int64_t>());
}
/// Returns a number that is_whole(). Throws UserError for any other value.
template <class Int, class AnyJson>
Int whole_number(const AnyJson& json) {
  if (!is_whole<Int>(json)) throw UserError(json.dump() + " is no whole number in range");
  return json.template get<Int>();
}
/// Returns the whole number at an object's key; 0 without the key. Throws as whole_number().
template <class Int, class AnyJson>
Int whole_number_or_0(const AnyJson& object, const char* key) {
  const auto entry = object.find(key);
  return entry == object.end() ? Int{0} : whole_number<Int>(*entry);
}
/// Returns the path of a list's element: "graph.segments[3]".
std::string element_path(const std::string& list, std::size_t index);

/// Each overload stores `json` in `out` and returns true. For a value of another type or out of
/// range it notes the problem with its `path`, leaves `out` as it was and returns false. In a list,
/// elements that do not fit become empty or 0. Doubles must be finite.
bool read_value(const Json& json, const std::string& path, bool& out, DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, double& out, DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::string& out,
                DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::int64_t& out,
                DocumentProblems& problems, std::int64_t least = INT64_MIN,
                std::int64_t most = INT64_MAX);
template <class Int>
requires(std::integral<Int> && sizeof(Int) == sizeof(std::int32_t)) bool read_value(
    const Json& json, const std::string& path, Int& out, DocumentProblems& problems,
    std::int64_t least = std::numeric_limits<Int>::min(),
    std::int64_t most = std::numeric_limits<Int>::max()) {
  std::int64_t wide = out;
  const bool fits = read_value(json, path, wide, problems, least, most);
  out = static_cast<Int>(wide);
  return fits;
}
bool read_value(const Json& json, const std::string& path, std::uint64_t& out,
                DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::array<std::int64_t, 2>& out,
                DocumentProblems& problems);
/// Returns the index in `names`, or -1 (and notes it) where `json` is none of them.
int read_choice(const Json& json, const std::string& path, const std::vector<std::string>& names,
                DocumentProblems& problems);

/// Notes that `json` is not what it must be, and returns false.
bool note_wrong(const Json& json, const std::string& path, const std::string& expected,
                DocumentProblems& problems);

/// Reads an enum by the names that `value_names`, beside the enum, lists in the enum's order.
template <class Enum>
requires std::is_enum_v<Enum>
bool read_value(const Json& json, const std::string& path, Enum& out, DocumentProblems& problems) {
  const auto names = value_names(out);
  const int index = read_choice(json, path, {names.begin(), names.end()}, problems);
  if (index >= 0) out = static_cast<Enum>(index);
  return index >= 0;
}

/// Writes an id as its number; read_value() reads it.
template <class AnyJson, class Tag>
void to_json(AnyJson& json, Id<Tag> id) {
  json = id.value();
}
template <class Tag>
bool read_value(const Json& json, const std::string& path, Id<Tag>& out, DocumentProblems& problems,
                std::int64_t least, std::int64_t most) {
  int number = out.value();
  const bool fits = read_value(json, path, number, problems, least, most);
  out = Id<Tag>(number);
  return fits;
}

/// Reads a quantity as the number that it is in its unit.
template <class Tag, class Scalar>
bool read_value(const Json& json, const std::string& path, Quantity<Tag, Scalar>& out,
                DocumentProblems& problems) {
  Scalar number = out.value();
  const bool fits = read_value(json, path, number, problems);
  out = Quantity<Tag, Scalar>(number);
  return fits;
}

/// Reads a list; `range` bounds its whole numbers.
template <class Element, class... Range>
bool read_value(const Json& json, const std::string& path, std::vector<Element>& out,
                DocumentProblems& problems, Range... range) {
  if (!json.is_array()) return note_wrong(json, path, "a list", problems);
  out.assign(json.size(), Element{});
  bool fits = true;
  for (std::size_t i = 0; i < json.size(); ++i) {
    fits &= read_value(json[i], element_path(path, i), out[i], problems, range...);
  }
  return fits;
}

/// Makes the words of an exception of nlohmann's JSON fit for a message: they lose that library's
/// prefix and stand on one line, printable and at most 200 characters long.
std::string plain_json_words(const std::string& words);

/// Makes a document with the keys `_format` and `_version` of a kind that document_kinds() has.
Json new_document(const std::string& format);

/// Returns the number itself, or its decimal digits as text where a reader's double would round it.
inline Json whole_number_json(std::uint64_t value) {
  constexpr std::uint64_t largest_exact = std::uint64_t{1} << 53;
  if (value > largest_exact) return std::to_string(value);
  return value;
}

/// Reads one JSON object key by key and notes every problem with the path of its key. The object,
/// the problems and the texts of the keys must outlive the reader.
class ObjectReader {
 public:
  /// `path` is empty for the whole document, and "graph.segments[3]" further in. A value that is no
  /// object is noted.
  ObjectReader(const Json& json, std::string path, DocumentProblems& problems);

  /// Notes those of the keys that are missing.
  void require(std::initializer_list<const char*> keys);
  bool has(const char* key) { return value(key) != nullptr; }

  /// Leaves `out` where the key is absent. `range` is the least and the most of whole numbers.
  template <class Value, class... Range>
  void read(const char* key, Value& out, Range... range) {
    if (const Json* entry = value(key)) {
      read_value(*entry, path_of(key), out, problems_, range...);
    }
  }

  /// Returns the value of the key; null where it is absent.
  const Json* value(const char* key);
  /// Returns the list of the key; null where it is absent, or where it is something else (noted).
  const Json* list(const char* key);
  /// Calls `visit` with each element of the key's list and its path, until there are too many
  /// problems.
  template <class Visit>
  void for_each(const char* key, Visit visit) {
    const Json* entry = list(key);
    for (std::size_t i = 0; entry != nullptr && i < entry->size() && !problems_.full(); ++i) {
      visit((*entry)[i], element_path(path_of(key), i));
    }
  }
  /// The same with a member function of `object`.
  template <class Object>
  void for_each(const char* key, Object& object,
                void (Object::*visit)(const Json& entry, const std::string& path)) {
    for_each(key,
             [&](const Json& entry, const std::string& path) { (object.*visit)(entry, path); });
  }
  /// Calls `read_keys` with a reader of the key's object, and then finishes that reader.
  template <class Read>
  void read_object(const char* key, Read read_keys) {
    const Json* entry = value(key);
    if (entry == nullptr) return;
    ObjectReader reader(*entry, path_of(key), problems_);
    read_keys(reader);
    reader.finish();
  }

  /// Calls require_format() for the document that this object is; call it before any other read.
  void expect_format(const char* format, int version, FormatKey key = FormatKey::required);
  /// Notes every key that was not asked for, with the nearest key that was.
  void finish();

  std::string path_of(const char* key) const;
  DocumentProblems& problems() { return problems_; }

 private:
  const Json& json_;
  std::string path_;
  DocumentProblems& problems_;
  std::vector<std::string_view> asked_;
};

}  // namespace heteroperf
