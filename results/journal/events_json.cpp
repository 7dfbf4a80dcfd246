// Writes an event as one journal line and reads it back. Both directions visit the same list of
// fields (event_fields.hpp), so each field is named once. The writer leaves out empty texts, empty
// lists and absent values, and gives a double that is not finite a key of its own,
// `loss_nonfinite`, since JSON has no NaN. The reader is strict: a missing key, an unknown one,
// another type or a number out of range is a UserError. Lines may be a stranger's, and everything
// behind the reader calculates with their numbers without asking again.
#include "results/journal/events_json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/journal/event_fields.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/canonical_text_json.hpp"

namespace heteroperf {
namespace {

using detail::Fields;

template <class T>
concept Enumeration = std::is_enum_v<T>;

constexpr const char* non_finite = "_nonfinite";
/// All that is std::int64_t in an event is a time on rank 0's clock, of which differences are
/// taken.
constexpr std::int64_t most_time_ns = std::int64_t{1} << 61;
/// Sums over 2^32 lines still fit; a machine of 10^18 operations per second needs 2500 years.
constexpr Ops most_operations = Ops::from_words(std::uint64_t{1} << 32, 0);

/// Puts brackets around a text.
std::string enclosed(std::string text, char open, char close) {
  text.insert(text.begin(), open);
  text.push_back(close);
  return text;
}

/// Returns the word for a number that JSON cannot write.
const char* nonfinite_name(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

/// Appends `"name":value` pairs to a text. There is one overload per type of field, and each
/// decides when a value is left out: numbers and booleans never are, texts and lists where they are
/// empty.
class FieldWriter {
 public:
  explicit FieldWriter(std::string& text) : text_(text) {}

  void operator()(const char* name, bool value) { pair(name, value ? "true" : "false"); }
  void operator()(const char* name, std::int32_t value) {
    pair(name, json_integer(std::int64_t{value}));
  }
  void operator()(const char* name, std::uint32_t value) {
    pair(name, json_integer(std::uint64_t{value}));
  }
  void operator()(const char* name, std::int64_t value) { pair(name, json_integer(value)); }
  void operator()(const char* name, std::uint64_t value) { pair(name, json_integer(value)); }
  void operator()(const char* name, double value) {
    if (std::isfinite(value)) {
      pair(name, json_number(value));
    } else {
      pair(std::string(name) + non_finite, json_quoted(nonfinite_name(value)));
    }
  }
  void operator()(const char* name, const char* value) { pair(name, json_quoted(value)); }
  void operator()(const char* name, const std::string& value) {
    if (!value.empty()) pair(name, json_quoted(value));
  }
  void operator()(const char* name, const Ops& value) {
    pair(name, json_quoted(value.to_string()));
  }
  void operator()(const char* name, const JsonText& value) {
    if (!value.text.empty()) pair(name, json_compact(value.text, fmt::format("'{}'", name)));
  }
  void operator()(const char* name, Enumeration auto value) { (*this)(name, to_string(value)); }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  void operator()(const char* name, const std::vector<std::string>& values) {
    list(name, values, [](const std::string& value) { return json_quoted(value); });
  }
  void operator()(const char* name, const std::vector<std::int32_t>& values) {
    list(name, values, [](std::int32_t value) { return json_integer(std::int64_t{value}); });
  }
  void operator()(const char* name, const std::vector<std::int64_t>& values) {
    list(name, values, [](std::int64_t value) { return json_integer(value); });
  }
  void operator()(const char* name, const std::vector<DeviceCount>& values) {
    list(name, values, [](const DeviceCount& value) { return object(value); });
  }
  void operator()(const char* name, const std::vector<std::vector<std::string>>& values) {
    list(name, values, [](const std::vector<std::string>& words) {
      return list_text(words, [](const std::string& word) { return json_quoted(word); });
    });
  }
  /// An object with a key for each pair, in their order.
  template <class T>
  void operator()(const char* name, const std::vector<std::pair<std::string, T>>& values) {
    if (values.empty()) return;
    std::string inner;
    FieldWriter writer(inner);
    for (const auto& [key, value] : values) writer.pair(json_quoted(key), value_text(value), "");
    pair(name, enclosed(std::move(inner), '{', '}'));
  }
  void operator()(const char* name, const StepSplit& value) { pair(name, object(value)); }
  void operator()(const char* name, const SuitePlan& value) { pair(name, object(value)); }
  void operator()(const char* name, const SweepPlace& value) { pair(name, object(value)); }

 private:
  /// `quote` is empty where the name is quoted already.
  void pair(std::string_view name, std::string_view value, std::string_view quote = "\"") {
    if (!text_.empty()) text_ += ',';
    text_.append(quote).append(name).append(quote).append(":").append(value);
  }

  /// An object within a line has its own list of fields.
  template <class T>
  static std::string object(const T& value) {
    std::string inner;
    Fields<T>::visit(value, FieldWriter(inner));
    return enclosed(std::move(inner), '{', '}');
  }

  static std::string value_text(std::uint64_t value) { return json_integer(value); }
  static std::string value_text(const std::string& value) { return json_quoted(value); }

  template <class T>
  static std::string list_text(const std::vector<T>& values, auto&& text_of) {
    std::string inner;
    for (const T& value : values) {
      if (!inner.empty()) inner += ',';
      inner += text_of(value);
    }
    return enclosed(std::move(inner), '[', ']');
  }

  template <class T>
  void list(const char* name, const std::vector<T>& values, auto&& text_of) {
    if (!values.empty()) pair(name, list_text(values, text_of));
  }

  std::string& text_;
};

/// Takes the fields out of one JSON object and remembers which it took; `finish` complains about
/// those left over.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {
    if (!object.is_object()) throw UserError("expected a JSON object");
  }

  void operator()(const char* name, bool& value) {
    const Json& json = required(name);
    if (!json.is_boolean()) wrong_type(name, "true or false");
    value = json.get<bool>();
  }
  template <std::integral T>
  void operator()(const char* name, T& value) {
    value = integer<T>(name, required(name));
  }
  void operator()(const char* name, double& value) {
    if (const Json* json = find(std::string(name) + non_finite)) {
      value = nonfinite(name, *json);
      return;
    }
    const Json& json = required(name);
    if (!json.is_number()) wrong_type(name, "a number");
    value = json.get<double>();
  }
  void operator()(const char* name, std::string& value) {
    if (const Json* json = find(name)) value = text(name, *json);
  }
  void operator()(const char* name, Ops& value) {
    value = Ops::parse(text(name, required(name)));
    if (value > most_operations) wrong_type(name, "a count of operations up to 2^96");
  }
  /// A document within a line becomes compact text; its keys keep their order.
  void operator()(const char* name, JsonText& value) {
    if (const Json* json = find(name)) value.text = json_compact(*json);
  }
  /// A word that is no name of the enumeration is refused, not taken for a default.
  template <Enumeration T>
  void operator()(const char* name, T& value) {
    const std::string wanted = text(name, required(name));
    for (int i = 0; i <= last_value(T{}); ++i) {
      value = static_cast<T>(i);
      if (wanted == to_string(value)) return;
    }
    throw UserError(fmt::format("'{}' is no value of '{}'", wanted, name));
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (object_.contains(name) || object_.contains(std::string(name) + non_finite)) {
      (*this)(name, value.emplace());
    }
  }
  void operator()(const char* name, std::vector<std::string>& values) {
    for (const Json& item : list(name)) values.push_back(text(name, item));
  }
  void operator()(const char* name, std::vector<std::int32_t>& values) {
    for (const Json& item : list(name)) values.push_back(integer<std::int32_t>(name, item));
  }
  void operator()(const char* name, std::vector<std::int64_t>& values) {
    for (const Json& item : list(name)) values.push_back(integer<std::int64_t>(name, item));
  }
  void operator()(const char* name, std::vector<DeviceCount>& values) {
    for (const Json& item : list(name)) read_object(item, values.emplace_back());
  }
  void operator()(const char* name, std::vector<std::vector<std::string>>& values) {
    for (const Json& item : list(name)) {
      if (!item.is_array()) wrong_type(name, "a list of lists");
      std::vector<std::string>& words = values.emplace_back();
      for (const Json& word : item) words.push_back(text(name, word));
    }
  }
  template <class T>
  void operator()(const char* name, std::vector<std::pair<std::string, T>>& values) {
    const Json* json = find(name);
    if (json == nullptr) return;
    if (!json->is_object()) wrong_type(name, "an object");
    for (const auto& item : json->items()) {
      if constexpr (std::is_same_v<T, std::string>) {
        values.emplace_back(item.key(), text(name, item.value()));
      } else {
        values.emplace_back(item.key(), integer<T>(name, item.value()));
      }
    }
  }
  void operator()(const char* name, StepSplit& value) { read_object(required(name), value); }
  void operator()(const char* name, SuitePlan& value) { read_object(required(name), value); }
  void operator()(const char* name, SweepPlace& value) { read_object(required(name), value); }

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
  /// A key that no field took is an error: this program would drop what it does not know.
  void finish() const {
    for (const auto& item : object_.items()) {
      if (!used_.contains(item.key())) {
        throw UserError(fmt::format("unknown key '{}'", item.key()));
      }
    }
  }
  static std::string text(const std::string& name, const Json& json) {
    if (!json.is_string()) wrong_type(name, "a text");
    return json.get<std::string>();
  }

 private:
  /// A new last value of an enumeration is named here, or else it is never read.
  static int last_value(WorkloadFamily) { return static_cast<int>(WorkloadFamily::language_model); }
  static int last_value(QualityMeasure) { return static_cast<int>(QualityMeasure::loss); }
  static int last_value(Phase) { return static_cast<int>(Phase::finish); }
  static int last_value(TrialStatus) { return static_cast<int>(TrialStatus::truncated); }
  static int last_value(RunStatus) { return static_cast<int>(RunStatus::failed); }

  [[noreturn]] static void wrong_type(const std::string& name, const char* expected) {
    throw UserError(fmt::format("'{}' is not {}", name, expected));
  }
  /// Times are bounded, so that differences of any two of them fit.
  template <class T>
  static T integer(const char* name, const Json& json) {
    const T value = integer_in_range<T>(name, json);
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (value < -most_time_ns || value > most_time_ns) wrong_type(name, "a time within 70 years");
    }
    return value;
  }
  template <class T>
  static T integer_in_range(const char* name, const Json& json) {
    if (is_whole<T>(json)) return json.get<T>();
    // Texts of digits are for integers that may exceed 2^53, and those have 64 bits.
    if (!json.is_string() || sizeof(T) < sizeof(std::int64_t))
      wrong_type(name, "an integer in range");
    return large_integer<T>(name, json.get<std::string>());
  }
  /// Integers beyond 2^53 stand as texts of digits.
  template <class T>
  static T large_integer(const char* name, const std::string& digits) {
    const bool negative = std::is_signed_v<T> && digits.starts_with('-');
    const Ops magnitude = Ops::parse(std::string_view(digits).substr(negative ? 1 : 0));
    if (magnitude > Ops(static_cast<std::uint64_t>(std::numeric_limits<T>::max()))) {
      wrong_type(name, "an integer in range");
    }
    const auto value = static_cast<T>(magnitude.low());
    return negative ? static_cast<T>(0) - value : value;
  }
  static double nonfinite(const char* name, const Json& json) {
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      if (json == nonfinite_name(value)) return value;
    }
    wrong_type(name, "nan, inf or -inf");
  }
  /// An absent list is an empty one.
  const Json& list(const char* name) {
    static const Json empty = Json::array();
    const Json* json = find(name);
    if (json == nullptr) return empty;
    if (!json->is_array()) wrong_type(name, "a list");
    return *json;
  }
  template <class T>
  static void read_object(const Json& json, T& value) {
    FieldReader reader(json);
    Fields<T>::visit(value, reader);
    reader.finish();
  }

  const Json& object_;
  std::set<std::string, std::less<>> used_;
};

/// Kinds that tell of one rank; the lines of all others have rank 0.
template <class E>
concept WithRank = requires(E e) {
  e.rank;
};

std::int32_t rank_of(const Event& event) {
  return std::visit(
      []<class E>(const E& e) {
        if constexpr (WithRank<E>)
          return e.rank;
        else
          return std::int32_t{0};
      },
      event);
}

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

std::string event_to_json_line(std::int64_t t_ns, const Event& event, std::string_view prev) {
  std::string inner;
  FieldWriter writer(inner);
  writer("t_ns", t_ns);
  writer("rank", rank_of(event));
  writer("kind", kind_name(event));
  if (std::holds_alternative<StartEvent>(event)) {
    writer("_format", journal_format);
    writer("_version", std::int32_t{journal_version});
  }
  std::visit([&]<class E>(const E& e) { Fields<E>::visit(e, writer); }, event);
  writer("prev", std::string(prev));
  return enclosed(std::move(inner), '{', '}');
}

ParsedLine event_from_json_line(std::string_view line) {
  const Json json = parse_strict_json(line, "it", {}, run_file_limits);
  FieldReader reader(json);
  ParsedLine parsed;
  std::int32_t rank = 0;
  reader("t_ns", parsed.t_ns);
  reader("rank", rank);
  parsed.event = event_of_kind(FieldReader::text("kind", reader.required("kind")));
  if (std::holds_alternative<StartEvent>(parsed.event)) read_version(reader);
  std::visit(
      [&]<class E>(E& e) {
        if constexpr (WithRank<E>) e.rank = rank;
        Fields<E>::visit(e, reader);
      },
      parsed.event);
  parsed.prev = FieldReader::text("prev", reader.required("prev"));
  reader.finish();
  return parsed;
}

}  // namespace heteroperf
