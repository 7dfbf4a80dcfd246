// Writes an event as one journal line and reads it back. Both directions visit the event's list of
// fields, so each field is named once. The writer leaves out empty texts, empty lists and absent
// values, and gives a double that is not finite a key of its own, `loss_nonfinite`, since JSON has
// no NaN. The reader is strict: a missing key, an unknown one, another type or a number out of
// range is a UserError. Lines may be a stranger's, and everything behind the reader calculates with
// their numbers without asking again.
#include "results/journal/journal.hpp"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <limits>
#include <set>

#include "metrics/base/strict_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/canonical_text_json.hpp"

namespace heteroperf {
namespace {

template <class T>
concept Enumeration = std::is_enum_v<T>;
/// Fields of these types are left out where they are empty.
template <class T>
concept MayBeEmpty = requires(const T& value) {
  value.empty();
};

// In the order of the variant. Stored journals are read by these words, so none is ever changed.
constexpr std::array<const char*, std::variant_size_v<Event>> kind_names{
    "start",      "config",    "system",       "plan",         "scale",      "workload", "phase",
    "step",       "until",     "look",         "trial",        "eval",       "observed", "memory",
    "checksum",   "rank_plan", "prediction",   "rank_time",    "rank_steps", "pacing",   "baseline",
    "overhead",   "host_load", "gpu_slowdown", "warning",      "peak",       "products", "search",
    "checkpoint", "adapt",     "device",       "substitution", "stop"};

constexpr const char* non_finite = "_nonfinite";
/// All that is std::int64_t in an event is a time on rank 0's clock, of which differences are
/// taken.
constexpr std::int64_t most_time_ns = std::int64_t{1} << 61;
/// Sums over 2^32 lines still fit; a machine of 10^18 operations per second needs 2500 years.
constexpr Ops most_operations = Ops::from_words(std::uint64_t{1} << 32, 0);

/// Returns the word for a number that JSON cannot write.
const char* nonfinite_name(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

/// These write the value of a field as JSON, one overload per type.
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(std::signed_integral auto value) {
  return json_integer(std::int64_t{value});
}
std::string value_text(std::unsigned_integral auto value) {
  return json_integer(std::uint64_t{value});
}
std::string value_text(const std::string& value) { return json_quoted(value); }
std::string value_text(const Ops& value) { return json_quoted(value.to_string()); }
std::string value_text(Enumeration auto value) { return json_quoted(to_string(value)); }
template <WithFields T>
std::string value_text(const T& value);
template <class T>
std::string value_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text.append(text.empty() ? "[" : ",").append(value_text(value));
  return text + ']';
}
template <class T>
std::string value_text(const std::vector<std::pair<std::string, T>>& pairs) {
  std::string text;
  for (const auto& [key, value] : pairs) {
    text.append(text.empty() ? "{" : ",").append(json_quoted(key) + ':').append(value_text(value));
  }
  return text + '}';
}

/// Appends `"name":value` pairs to a text.
class FieldWriter {
 public:
  explicit FieldWriter(std::string& text) : text_(text) {}

  template <class T>
  void operator()(const std::string& name, const T& value) {
    pair(name, value_text(value));
  }
  template <MayBeEmpty T>
  void operator()(const std::string& name, const T& value) {
    if (!value.empty()) pair(name, value_text(value));
  }
  template <class T>
  void operator()(const std::string& name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  void operator()(const std::string& name, double value) {
    if (std::isfinite(value)) return pair(name, json_number(value));
    pair(name + non_finite, json_quoted(nonfinite_name(value)));
  }
  void operator()(const std::string& name, const JsonText& value) {
    if (!value.text.empty()) pair(name, json_compact(value.text, fmt::format("'{}'", name)));
  }

 private:
  void pair(std::string_view name, std::string_view value) {
    text_.append(text_.empty() ? "\"" : ",\"").append(name).append("\":").append(value);
  }

  std::string& text_;
};

template <WithFields T>
std::string value_text(const T& value) {
  std::string text;
  visit_fields(value, FieldWriter(text));
  return '{' + text + '}';
}

[[noreturn]] void wrong_type(const std::string& name, const char* expected) {
  throw UserError(fmt::format("'{}' is not {}", name, expected));
}

/// Takes the fields out of one JSON object and remembers which it took; `finish` complains about
/// those left over.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {
    if (!object.is_object()) throw UserError("expected a JSON object");
  }

  template <class T>
  void operator()(const std::string& name, T& value) {
    read(name, required(name), value);
  }
  template <MayBeEmpty T>
  void operator()(const std::string& name, T& value) {
    if (const Json* json = find(name)) read(name, *json, value);
  }
  /// A document within a line becomes compact text; its keys keep their order.
  void operator()(const std::string& name, JsonText& value) {
    if (const Json* json = find(name)) value.text = json_compact(*json);
  }
  void operator()(const std::string& name, double& value) {
    const Json* json = find(name + non_finite);
    if (json != nullptr) return read_nonfinite(name, *json, value);
    read(name, required(name), value);
  }
  template <class T>
  void operator()(const std::string& name, std::optional<T>& value) {
    if (object_.contains(name) || object_.contains(name + non_finite)) {
      (*this)(name, value.emplace());
    }
  }

  /// A text that must be there, empty or not.
  std::string required_text(const char* name) {
    std::string text;
    read(name, required(name), text);
    return text;
  }
  /// A key that no field took is an error: this program would drop what it does not know.
  void finish() const {
    for (const auto& item : object_.items()) {
      if (!used_.contains(item.key())) {
        throw UserError(fmt::format("unknown key '{}'", item.key()));
      }
    }
  }

 private:
  /// Returns null where the key is absent; a key that is there counts as taken.
  const Json* find(const std::string& name) {
    const auto field = object_.find(name);
    if (field == object_.end()) return nullptr;
    used_.insert(name);
    return &*field;
  }
  const Json& required(const std::string& name) {
    const Json* json = find(name);
    if (json == nullptr) throw UserError(fmt::format("'{}' is missing", name));
    return *json;
  }

  static void read(const std::string& name, const Json& json, bool& value) {
    if (!json.is_boolean()) wrong_type(name, "true or false");
    value = json.get<bool>();
  }
  /// Times are bounded, so that differences of any two of them fit.
  template <std::integral T>
  static void read(const std::string& name, const Json& json, T& value) {
    value = is_whole<T>(json) ? json.get<T>() : large_integer<T>(name, json);
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (value < -most_time_ns || value > most_time_ns) wrong_type(name, "a time within 70 years");
    }
  }
  static void read(const std::string& name, const Json& json, double& value) {
    if (!json.is_number()) wrong_type(name, "a number");
    value = json.get<double>();
  }
  static void read(const std::string& name, const Json& json, std::string& value) {
    if (!json.is_string()) wrong_type(name, "a text");
    value = json.get<std::string>();
  }
  static void read(const std::string& name, const Json& json, Ops& value) {
    std::string digits;
    read(name, json, digits);
    value = Ops::parse(digits);
    if (value > most_operations) wrong_type(name, "a count of operations up to 2^96");
  }
  /// A word that is no name of the enumeration is refused, not taken for a default.
  template <Enumeration T>
  static void read(const std::string& name, const Json& json, T& value) {
    std::string word;
    read(name, json, word);
    const auto named = find_value<T>(word);
    if (!named) throw UserError(fmt::format("'{}' is no value of '{}'", word, name));
    value = *named;
  }
  template <WithFields T>
  static void read(const std::string&, const Json& json, T& value) {
    FieldReader reader(json);
    visit_fields(value, reader);
    reader.finish();
  }
  template <class T>
  static void read(const std::string& name, const Json& json, std::vector<T>& values) {
    if (!json.is_array()) wrong_type(name, "a list");
    for (const Json& item : json) read(name, item, values.emplace_back());
  }
  template <class T>
  static void read(const std::string& name, const Json& json, std::vector<std::vector<T>>& lists) {
    if (!json.is_array()) wrong_type(name, "a list");
    for (const Json& item : json) {
      if (!item.is_array()) wrong_type(name, "a list of lists");
      read(name, item, lists.emplace_back());
    }
  }
  template <class T>
  static void read(const std::string& name, const Json& json,
                   std::vector<std::pair<std::string, T>>& values) {
    if (!json.is_object()) wrong_type(name, "an object");
    for (const auto& item : json.items()) {
      read(name, item.value(), values.emplace_back(item.key(), T{}).second);
    }
  }

  /// Integers beyond 2^53 stand as texts of digits. Those have 64 bits.
  template <class T>
  static T large_integer(const std::string& name, const Json& json) {
    if (!json.is_string() || sizeof(T) < sizeof(std::int64_t)) {
      wrong_type(name, "an integer in range");
    }
    const auto digits = json.get<std::string>();
    const bool negative = std::is_signed_v<T> && digits.starts_with('-');
    const Ops magnitude = Ops::parse(std::string_view(digits).substr(negative ? 1 : 0));
    if (magnitude > Ops(static_cast<std::uint64_t>(std::numeric_limits<T>::max()))) {
      wrong_type(name, "an integer in range");
    }
    const auto value = static_cast<T>(magnitude.low());
    return negative ? static_cast<T>(0) - value : value;
  }
  static void read_nonfinite(const std::string& name, const Json& json, double& value) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double known : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
      value = known;
      if (json == nonfinite_name(value)) return;
    }
    wrong_type(name, "nan, inf or -inf");
  }

  const Json& object_;
  std::set<std::string, std::less<>> used_;
};

/// Kinds that tell of one rank; the lines of all others have rank 0.
template <class E>
concept WithRank = requires(E e) {
  e.rank;
};

std::int32_t rank_in(const WithRank auto& event) { return event.rank; }
std::int32_t rank_in(const auto&) { return 0; }

/// An empty event of the named kind. Throws UserError when there is none.
template <std::size_t index = 0>
Event event_of_kind(const std::string& kind) {
  if constexpr (index == std::variant_size_v<Event>) {
    throw UserError(fmt::format("unknown kind '{}'", kind), "written by another version?");
  } else {
    Event event(std::in_place_index<index>);
    return kind == kind_name(event) ? event : event_of_kind<index + 1>(kind);
  }
}

/// The first line says by which format the whole journal is written.
void read_version(FieldReader& reader) {
  std::string format;
  std::int32_t version = 0;
  reader("_format", format);
  reader("_version", version);
  if (format != journal_format || version != journal_version) {
    throw UserError(
        fmt::format("format '{}' version {} is not known", format, version),
        fmt::format("this program reads '{}' version {}", journal_format, journal_version));
  }
}

}  // namespace

double MeasuredProduct::seconds_of(const std::string& name) const {
  const auto timed = std::ranges::find(ways, name, &WayTime::way);
  return timed == ways.end() ? 0 : timed->seconds;
}

bool is_product_choice(const std::string& text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789:,/") == std::string::npos;
}

const char* kind_name(const Event& event) { return kind_names[event.index()]; }

std::string event_to_json_line(std::int64_t t_ns, const Event& event, std::string_view prev) {
  std::string inner;
  FieldWriter writer(inner);
  writer("t_ns", t_ns);
  writer("rank", std::visit([](const auto& e) { return rank_in(e); }, event));
  writer("kind", std::string(kind_name(event)));
  if (std::holds_alternative<StartEvent>(event)) {
    writer("_format", std::string(journal_format));
    writer("_version", journal_version);
  }
  std::visit([&](const auto& e) { visit_fields(e, writer); }, event);
  writer("prev", std::string(prev));
  return '{' + inner + '}';
}

ParsedLine event_from_json_line(std::string_view line) {
  const Json json = parse_strict_json(line, "it", {}, run_file_limits);
  FieldReader reader(json);
  ParsedLine parsed;
  std::int32_t rank = 0;
  reader("t_ns", parsed.t_ns);
  reader("rank", rank);
  parsed.event = event_of_kind(reader.required_text("kind"));
  if (std::holds_alternative<StartEvent>(parsed.event)) read_version(reader);
  std::visit(
      [&]<class E>(E& e) {
        if constexpr (WithRank<E>) e.rank = rank;
        visit_fields(e, reader);
      },
      parsed.event);
  parsed.prev = reader.required_text("prev");
  reader.finish();
  return parsed;
}

}  // namespace heteroperf
