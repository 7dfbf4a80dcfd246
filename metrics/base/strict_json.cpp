#include "metrics/base/strict_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "metrics/base/document_kind.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_noted = 16;

/// Checks what Json::parse does not: depth, number of keys, repeated keys, and the time that
/// parsing would take. It is a pass of its own, because parsing with a callback takes quadratic
/// time in the length of a list of objects.
///
/// The time needs a check because nlohmann's ordered object is a vector whose keys are constant:
/// when it grows, it is copied to one of twice the size with all that it holds. Objects in objects
/// multiply these copies; 1 MB of numbers under the first key of each of 60 nested objects takes
/// 20 s to parse. So this pass counts the copies beforehand and refuses documents with too many.
class StructureCheck final : public nlohmann::json_sax<Json> {
 public:
  StructureCheck(DocumentProblems& problems, JsonLimits limits, std::size_t text_bytes)
      : problems_(problems), limits_(limits), most_copied_(copies_per_byte * text_bytes) {}

  bool null() override { return hold(1); }
  bool boolean(bool) override { return hold(1); }
  bool number_integer(number_integer_t) override { return hold(1); }
  bool number_unsigned(number_unsigned_t) override { return hold(1); }
  bool number_float(number_float_t, const string_t&) override { return hold(1); }
  bool string(string_t& text) override { return hold(size_of(text)); }
  bool binary(binary_t&) override { return hold(1); }

  bool start_object(std::size_t) override { return open(); }
  bool key(string_t& name) override;
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  /// Json::parse, which runs next, words the error better.
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  /// A list or an object that has not ended yet.
  struct Container {
    std::set<string_t> keys;  // none of a list
    std::size_t size = 0;     // all that it holds so far, counted as hold() does
  };

  /// Documents of this program copy less than one value per byte.
  static constexpr std::size_t copies_per_byte = 8;
  /// A value without a text has size 1; a long text takes as long to copy as several values.
  static std::size_t size_of(const string_t& text) {
    constexpr std::size_t bytes_per_value = 16;
    return 1 + text.size() / bytes_per_value;
  }

  bool hold(std::size_t size) {
    if (!open_.empty()) open_.back().size += size;
    return true;
  }
  bool open() {
    open_.emplace_back();
    return open_.size() <= limits_.levels ||
           refuse(fmt::format("its lists nest more than {} levels", limits_.levels));
  }
  bool close() {
    const std::size_t size = open_.back().size;
    open_.pop_back();
    return hold(1 + size);
  }
  bool refuse(const std::string& why) {
    problems_.add("this is no document of ours", why);
    return false;
  }

  DocumentProblems& problems_;
  JsonLimits limits_;
  std::size_t copied_ = 0, most_copied_;
  std::vector<Container> open_;
};

bool StructureCheck::key(string_t& name) {
  Container& object = open_.back();
  if (std::has_single_bit(object.keys.size())) copied_ += object.size;
  if (copied_ > most_copied_) return refuse("too many keys follow long lists in nested objects");
  if (!object.keys.insert(name).second) {
    problems_.add(fmt::format("the key {} is there twice in one object", shown(name)));
  }
  hold(size_of(name));
  return object.keys.size() <= limits_.keys ||
         refuse(fmt::format("one of its objects has more than {} keys", limits_.keys));
}

std::string shown_text(const std::string& text) {
  constexpr std::size_t longest = 60;
  std::size_t end = std::min(text.size(), longest);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  while (end > 0 && end < text.size() && continues(text[end])) --end;
  std::string quoted =
      Json(text.substr(0, end)).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (end < text.size()) quoted.insert(quoted.size() - 1, "...");
  return quoted;
}

bool is_short_list(const Json& value) {
  constexpr std::size_t most_elements = 8;
  const auto is_short = [](const Json& element) {
    return element.is_primitive() && !element.is_string();
  };
  return value.is_array() && !value.empty() && value.size() <= most_elements &&
         std::all_of(value.begin(), value.end(), is_short);
}

Json parsed(std::string_view text, const std::string& origin) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    throw UserError(origin + " is not valid JSON", plain_json_words(error.what()));
  }
}

const Json* value_of(const Json& json, const char* key) {
  const auto entry = json.find(key);
  return entry == json.end() ? nullptr : &*entry;
}

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& origin,
                       const std::string& wanted_format, JsonLimits limits) {
  if (text.empty()) throw UserError(origin + " is empty");
  try {
    DocumentProblems problems(origin);
    StructureCheck check(problems, limits, text.size());
    Json::sax_parse(text.begin(), text.end(), &check);
    problems.throw_if_any();
    return parsed(text, origin);
  } catch (const UserError&) {
    if (!wanted_format.empty()) require_stated_format(text, origin, wanted_format);
    throw;
  }
}

void require_format(const Json& json, const std::string& origin, const std::string& format,
                    int version, FormatKey key) {
  if (!json.is_object()) {
    throw UserError(fmt::format("{}: the document is {}", origin, shown(json)),
                    "must be an object");
  }
  const Json* const name = value_of(json, "_format");
  if (name == nullptr && key == FormatKey::required) throw wrong_kind(origin, "", format);
  if (name != nullptr && *name != format) {
    throw wrong_kind(origin, name->is_string() ? name->get<std::string>() : shown(*name), format);
  }
  const Json* const stated = value_of(json, "_version");
  if (stated == nullptr ? key == FormatKey::optional : *stated == version) return;
  if (stated == nullptr || !stated->is_number_integer()) {
    throw UserError(origin + " does not say its version",
                    fmt::format("its _version must be {}{}", version,
                                stated == nullptr ? "" : ", not " + shown(*stated)));
  }
  throw UserError(origin + " was made by another version of the program",
                  fmt::format("it has {} version {}, this program knows version {}", format,
                              stated->dump(), version),
                  "Use the program that made it.");
}

void DocumentProblems::add(const std::string& problem, std::string why, std::string suggestion) {
  if (++count_ <= most_noted) {
    list_.add(origin_ + ": " + problem, std::move(why), std::move(suggestion));
  }
}

void DocumentProblems::add_all(const UserError& error, const std::string& prefix) {
  for (const Problem& each : error.problems()) {
    add(prefix + each.problem, each.why, each.suggestion);
  }
}

bool DocumentProblems::full() const { return count_ > most_noted; }

void DocumentProblems::throw_if_any() {
  if (full()) list_.add(fmt::format("{}: more problems follow", origin_));
  list_.throw_if_any();
}

std::string shown(const Json& value) {
  if (value.is_string()) return shown_text(value.get_ref<const std::string&>());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  if (value.is_array() && !is_short_list(value)) return fmt::format("a list of {}", value.size());
  return value.dump();
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates) {
  // nearest_name() compares letter by letter.
  constexpr std::size_t longest = 64, most_compared = 1000;
  if (name.size() > longest) return {};
  std::vector<std::string> compared;
  for (const std::string& candidate : candidates) {
    if (compared.size() == most_compared) break;
    if (candidate.size() <= longest) compared.push_back(candidate);
  }
  const std::string near = nearest_name(name, compared);
  return near.empty() ? "" : fmt::format("Did you mean {}?", shown(near));
}

std::string element_path(const std::string& list, std::size_t index) {
  return fmt::format("{}[{}]", list, index);
}

bool note_wrong(const Json& json, const std::string& path, const std::string& expected,
                DocumentProblems& problems) {
  problems.add(fmt::format("{} is {}", path, shown(json)), "must be " + expected);
  return false;
}

bool read_value(const Json& json, const std::string& path, bool& out, DocumentProblems& problems) {
  if (!json.is_boolean()) return note_wrong(json, path, "true or false", problems);
  out = json.get<bool>();
  return true;
}

bool read_value(const Json& json, const std::string& path, double& out,
                DocumentProblems& problems) {
  const bool fits = json.is_number() && std::isfinite(json.get<double>());
  if (!fits) return note_wrong(json, path, "a number", problems);
  out = json.get<double>();
  return true;
}

bool read_value(const Json& json, const std::string& path, std::string& out,
                DocumentProblems& problems) {
  if (!json.is_string()) return note_wrong(json, path, "a text", problems);
  out = json.get<std::string>();
  return true;
}

bool read_value(const Json& json, const std::string& path, std::int64_t& out,
                DocumentProblems& problems, std::int64_t least, std::int64_t most) {
  const bool whole = is_whole<std::int64_t>(json);
  const bool huge = json.is_number_unsigned() && !whole;
  const bool fits = whole && json.get<std::int64_t>() >= least && json.get<std::int64_t>() <= most;
  if (fits) {
    out = json.get<std::int64_t>();
    return true;
  }
  const bool bounded = least != INT64_MIN || most != INT64_MAX;
  return note_wrong(json, path,
                    bounded ? fmt::format("a whole number from {} to {}", least, most)
                    : huge  ? "a whole number below 2^63"
                            : "a whole number",
                    problems);
}

bool read_value(const Json& json, const std::string& path, std::uint64_t& out,
                DocumentProblems& problems) {
  if (!is_whole<std::uint64_t>(json))
    return note_wrong(json, path, "a whole number, 0 or more", problems);
  out = json.get<std::uint64_t>();
  return true;
}

bool read_value(const Json& json, const std::string& path, std::array<std::int64_t, 2>& out,
                DocumentProblems& problems) {
  if (!json.is_array() || json.size() != out.size()) {
    return note_wrong(json, path, "two whole numbers", problems);
  }
  const bool first = read_value(json[0], element_path(path, 0), out[0], problems);
  return read_value(json[1], element_path(path, 1), out[1], problems) && first;
}

int read_choice(const Json& json, const std::string& path, const std::vector<std::string>& names,
                DocumentProblems& problems) {
  const std::string text = json.is_string() ? json.get<std::string>() : std::string();
  const auto place = std::find(names.begin(), names.end(), text);
  if (json.is_string() && place != names.end()) return static_cast<int>(place - names.begin());
  problems.add(fmt::format("{} is {}", path, shown(json)),
               fmt::format("must be one of {}", fmt::join(names, ", ")),
               json.is_string() ? did_you_mean(text, names) : "");
  return -1;
}

ObjectReader::ObjectReader(const Json& json, std::string path, DocumentProblems& problems)
    : json_(json), path_(std::move(path)), problems_(problems) {
  if (!json.is_object()) {
    note_wrong(json, path_.empty() ? "the document" : path_, "an object", problems);
  }
}

std::string ObjectReader::path_of(const char* key) const {
  return path_.empty() ? key : path_ + "." + key;
}

const Json* ObjectReader::value(const char* key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  return value_of(json_, key);
}

void ObjectReader::require(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (json_.is_object() && !has(key)) {
      problems_.add(fmt::format("the key {} is missing", path_of(key)));
    }
  }
}

const Json* ObjectReader::list(const char* key) {
  const Json* entry = value(key);
  if (entry == nullptr || entry->is_array()) return entry;
  note_wrong(*entry, path_of(key), "a list", problems_);
  return nullptr;
}

void ObjectReader::expect_format(const char* format, int version, FormatKey key) {
  require_format(json_, problems_.origin() + (path_.empty() ? "" : ": " + path_), format, version,
                 key);
  value("_format");
  value("_version");
}

void ObjectReader::finish() {
  if (!json_.is_object()) return;
  const std::vector<std::string> valid(asked_.begin(), asked_.end());
  for (const auto& [key, ignored] : json_.items()) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    const std::string near = did_you_mean(key, valid);
    problems_.add(fmt::format("unknown key {}{}", shown(key), path_.empty() ? "" : " in " + path_),
                  near.empty() ? fmt::format("valid keys: {}", fmt::join(valid, ", ")) : "", near);
  }
}

// The words quote the document, whatever is in it.
std::string plain_json_words(const std::string& words) {
  constexpr std::size_t longest = 200;
  const std::size_t start = words.find("] ");
  std::string plain = words.substr(start == std::string::npos ? 0 : start + 2, longest);
  for (char& c : plain) {
    if (c < ' ' || c > '~') c = '?';
  }
  return plain.size() < longest ? plain : plain + "...";
}

Json new_document(const std::string& format) {
  const DocumentKind* kind = find_document_kind(format);
  HETEROPERF_EXPECT(kind != nullptr);
  return {{"_format", kind->format}, {"_version", kind->version}};
}

}  // namespace heteroperf
