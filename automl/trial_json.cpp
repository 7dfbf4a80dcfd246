#include "automl/trial_json.hpp"

#include <cmath>

#include "metrics/base/strict_json.hpp"
#include "workloads/graph/model_graph_json.hpp"

// The messages between a group and the master are JSON texts. Both directions go by the lists of
// fields in the messages' types. All problems of a message come at once.

namespace heteroperf {
namespace {

constexpr const char* seed_key = "seed";

/// Empty texts, optional values that are missing and numbers that are not finite are no keys. A
/// field is required where its default is not absent.
bool is_absent(const auto&) { return false; }
bool is_absent(const std::string& text) { return text.empty(); }
bool is_absent(double value) { return !std::isfinite(value); }
template <class T>
bool is_absent(const std::optional<T>& value) {
  return !value;
}

template <class T>
Json json_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return to_string(value);
  } else if constexpr (std::is_same_v<T, Ops>) {
    return value.to_string();
  } else if constexpr (std::is_same_v<T, ModelGraph>) {
    return graph_to_json(value);
  } else if constexpr (WithFields<T>) {
    Json json = Json::object();
    visit_fields(value, [&](const std::string& key, const auto& member) {
      if (is_absent(member)) return;
      json[key] = json_of(member);
      // All 64 bits of a seed count, and JSON's numbers do not keep them.
      if (key == seed_key) json[key] = json[key].dump();
    });
    return json;
  } else if constexpr (requires { value.has_value(); }) {
    return json_of(*value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    return value;
  } else {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(json_of(element));
    return list;
  }
}

/// Reads one field of an object; a key that is absent leaves it as it is.
struct FieldFromJson {
  ObjectReader& reader;

  void operator()(const std::string& key, auto& value) const { reader.read(key.c_str(), value); }
  void operator()(const std::string& key, std::uint64_t& value) const {
    if (key != seed_key) return reader.read(key.c_str(), value);
    parse(key, [&](const std::string& text) {
      const Ops wide = Ops::parse(text);
      if (wide.high() != 0) throw UserError(text + " is too large", "must be below 2^64");
      value = wide.low();
    });
  }
  void operator()(const std::string& key, Ops& value) const {
    parse(key, [&](const std::string& text) { value = Ops::parse(text); });
  }
  void operator()(const std::string& key, ModelGraph& graph) const {
    const Json* json = reader.value(key.c_str());
    if (json == nullptr) return;
    note_errors("", [&] { graph = graph_from_json(*json, reader.path_of(key.c_str())); });
  }
  template <class T>
  void operator()(const std::string& key, std::optional<T>& value) const {
    if (reader.has(key.c_str())) (*this)(key, value.emplace());
  }

 private:
  /// Makes the call and turns its UserErrors into problems of the message.
  void note_errors(const std::string& prefix, auto call) const {
    try {
      call();
    } catch (const UserError& error) {
      reader.problems().add_all(error, prefix);
    }
  }
  /// Reads a text and hands it to `take`.
  void parse(const std::string& key, auto take) const {
    std::string text;
    const Json* value = reader.value(key.c_str());
    const std::string path = reader.path_of(key.c_str());
    if (value == nullptr || !read_value(*value, path, text, reader.problems())) return;
    note_errors(path + ": ", [&] { take(text); });
  }
};

}  // namespace

/// Reads an object with such fields, on its own or in a list.
template <WithFields T>
static bool read_value(const Json& json, const std::string& path, T& value,
                       DocumentProblems& problems) {
  ObjectReader reader(json, path, problems);
  if constexpr (std::is_same_v<T, TrialReport>) value.quality = std::nan("");
  visit_fields(value, [&](const std::string& key, const auto& member) {
    if (!is_absent(member)) reader.require({key.c_str()});
  });
  visit_fields(value, FieldFromJson{reader});
  reader.finish();
  return true;
}

template <class Message>
Json message_to_json(const Message& message) {
  return json_of(message);
}

template <class Message>
Message message_from_json(const Json& json, const char* subject) {
  DocumentProblems problems(subject);
  Message message;
  read_value(json, "", message, problems);
  problems.throw_if_any();
  return message;
}

template Json message_to_json(const HyperParameters&);
template Json message_to_json(const TrialReport&);
template Json message_to_json(const Assignment&);
template Json message_to_json(const Decision&);
template HyperParameters message_from_json(const Json&, const char*);
template TrialReport message_from_json(const Json&, const char*);
template Assignment message_from_json(const Json&, const char*);
template Decision message_from_json(const Json&, const char*);

}  // namespace heteroperf
