#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"

namespace heteroperf {

using Json = nlohmann::ordered_json;

/// How deep lists may nest and how many keys an object may hold. Readers of documents call
/// themselves level by level, and find a key by looking at all of them.
struct JsonLimits {
  std::size_t levels = 16, keys = 256;
};
/// The limits of what runs leave: records, and lines of journals. The widest object in them is the
/// system's `environment`, with a key for each variable that steers a library or the scheduler.
inline constexpr JsonLimits run_file_limits{64, 1024};

/// Throws UserError beginning with `origin` where `text` is not JSON, an object has the same key
/// twice (nlohmann keeps the last), it is beyond the limits, or its nesting makes reading it take
/// far longer than its length does. Where it is no JSON but states another `_format` than the
/// wanted one, that is what is said.
Json parse_strict_json(std::string_view text, const std::string& origin,
                       const std::string& wanted_format = {}, JsonLimits limits = {});

/// Whether a document may go without the key `_format`.
enum class FormatKey { required, optional };

/// Throws UserError with one problem, naming both kinds, unless `_format` and `_version` are these.
void require_format(const Json& json, const std::string& origin, const std::string& format,
                    int version, FormatKey key = FormatKey::required);

/// Problems of one document, each beginning with its origin; only the first some are kept.
class DocumentProblems {
 public:
  explicit DocumentProblems(std::string origin) : origin_(std::move(origin)) {}

  void add(const std::string& problem, std::string why = {}, std::string suggestion = {});
  bool empty() const { return count_ == 0; }
  bool full() const;
  void throw_if_any();
  const std::string& origin() const { return origin_; }

 private:
  std::string origin_;
  ProblemList list_;
  std::size_t count_ = 0;
};

/// A value for a message: on one line, printable and short whatever it holds.
std::string shown(const Json& value);
/// `Did you mean "x"?`, or nothing when no candidate is near.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates);
/// True of a whole number that `Int` can hold. nlohmann makes one of any number, of which a
/// fraction beyond the type is undefined.
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
  const auto found = object.find(key);
  return found == object.end() ? Int{0} : whole_number<Int>(*found);
}
/// "graph.segments[3]".
std::string element_path(const std::string& list, std::size_t index);

/// Each stores `json` in `out`, or notes, naming `path`, a value of another type or out of range
/// and leaves `out`; false then. Of a list, the elements that do not fit are empty or 0.
bool read_value(const Json& json, const std::string& path, bool& out, DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, double& out,  ///< finite
                DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::string& out,
                DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::int64_t& out,
                DocumentProblems& problems, std::int64_t least = INT64_MIN,
                std::int64_t most = INT64_MAX);
bool read_value(const Json& json, const std::string& path, int& out, DocumentProblems& problems,
                std::int64_t least, std::int64_t most);
bool read_value(const Json& json, const std::string& path, std::uint32_t& out,
                DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::uint64_t& out,
                DocumentProblems& problems);
bool read_value(const Json& json, const std::string& path, std::array<std::int64_t, 2>& out,
                DocumentProblems& problems);
/// The index in `names`; -1 where `json` is none of them.
int read_choice(const Json& json, const std::string& path, const std::vector<std::string>& names,
                DocumentProblems& problems);

/// Notes `json`, which is not what it must be; false.
bool note_wrong(const Json& json, const std::string& path, const std::string& expected,
                DocumentProblems& problems);

/// An enum by the names that `value_names` (found beside the enum) lists in its order.
template <class Enum>
requires std::is_enum_v<Enum>
bool read_value(const Json& json, const std::string& path, Enum& out, DocumentProblems& problems) {
  const auto names = value_names(out);
  const int index = read_choice(json, path, {names.begin(), names.end()}, problems);
  if (index >= 0) out = static_cast<Enum>(index);
  return index >= 0;
}

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

/// The words of an exception of nlohmann's JSON as part of a message: they lose that library's
/// prefix and stand on one line, printable and at most 200 characters long.
std::string plain_json_words(const std::string& words);

/// A document with the keys `_format` and `_version` of a kind that document_kinds() has.
Json new_document(const std::string& format);

/// The number itself, or its decimal digits as text where a reader's double would round it.
inline Json whole_number_json(std::uint64_t value) {
  constexpr std::uint64_t largest_exact = std::uint64_t{1} << 53;
  if (value > largest_exact) return std::to_string(value);
  return value;
}

/// Reads one JSON object key by key and notes every problem with the path of its key. The object,
/// the problems and the keys' texts must outlive the reader.
class ObjectReader {
 public:
  /// `path` is empty for the whole document, "graph.segments[3]" further in. Notes a value that is
  /// no object.
  ObjectReader(const Json& json, std::string path, DocumentProblems& problems);

  /// Notes those that are missing.
  void require(std::initializer_list<const char*> keys);
  bool has(const char* key) { return value(key) != nullptr; }

  /// Leaves `out` where the key is absent. `range` is the least and the most of whole numbers.
  template <class Value, class... Range>
  void read(const char* key, Value& out, Range... range) {
    if (const Json* found = value(key)) {
      read_value(*found, path_of(key), out, problems_, range...);
    }
  }

  /// What the key holds; null where it is absent.
  const Json* value(const char* key);
  /// The key's list; null where it is absent or (noted) something else.
  const Json* list(const char* key);
  /// Calls `visit` with each element of the key's list and its path, until there are problems
  /// enough.
  template <class Visit>
  void for_each(const char* key, Visit visit) {
    const Json* found = list(key);
    for (std::size_t i = 0; found != nullptr && i < found->size() && !problems_.full(); ++i) {
      visit((*found)[i], element_path(path_of(key), i));
    }
  }
  /// Calls `read_keys` with a reader of the key's object, and finishes that.
  template <class Read>
  void read_object(const char* key, Read read_keys) {
    const Json* found = value(key);
    if (found == nullptr) return;
    ObjectReader reader(*found, path_of(key), problems_);
    read_keys(reader);
    reader.finish();
  }

  /// require_format() of the document that this object is; before any other key is looked at.
  void expect_format(const char* format, int version, FormatKey key = FormatKey::required);
  /// Notes every key that was not asked for, with the nearest one that was.
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
