#include "automl/trial_json.hpp"

#include <cmath>

#include "metrics/base/strict_json.hpp"
#include "workloads/graph/model_graph_json.hpp"

// The messages between a group and the master are JSON texts. Both directions go by the lists of
// fields in the messages' types, and each has an overload per type of field. All problems of a
// message come at once.

namespace heteroperf {
namespace {

constexpr const char* seed_key = "seed";

template <class T>
Json object_json(const T& value);

/// Writes one field of an object; a text that is empty and a number that is not finite are left
/// out.
struct FieldToJson {
  Json& json;

  void operator()(const std::string& key, std::integral auto value) const { json[key] = value; }
  /// All 64 bits of a seed count, and JSON's numbers do not keep them.
  void operator()(const std::string& key, std::uint64_t value) const {
    json[key] = key == seed_key ? Json(std::to_string(value)) : Json(value);
  }
  void operator()(const std::string& key, double value) const {
    if (std::isfinite(value)) json[key] = value;
  }
  void operator()(const std::string& key, const std::string& text) const {
    if (!text.empty()) json[key] = text;
  }
  void operator()(const std::string& key, const Ops& ops) const { json[key] = ops.to_string(); }
  void operator()(const std::string& key, const ModelGraph& graph) const {
    json[key] = graph_to_json(graph);
  }
  template <class T>
  void operator()(const std::string& key, const std::optional<T>& value) const {
    if (value) (*this)(key, *value);
  }
  template <class T>
  void operator()(const std::string& key, const std::vector<T>& values) const {
    json[key] = Json::array();
    for (const T& value : values) json[key].push_back(object_json(value));
  }
  template <class T>
  requires std::is_enum_v<T>
  void operator()(const std::string& key, T value) const { json[key] = to_string(value); }
  void operator()(const std::string& key, const WithFields auto& value) const {
    json[key] = object_json(value);
  }
};

template <class T>
Json object_json(const T& value) {
  Json json = Json::object();
  visit_fields(value, FieldToJson{json});
  return json;
}

template <class T>
void read_fields(ObjectReader& reader, T& value);

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
  template <class T>
  void operator()(const std::string& key, std::vector<T>& values) const {
    reader.for_each(key.c_str(), [&](const Json& json, const std::string& path) {
      ObjectReader inner(json, path, reader.problems());
      read_fields(inner, values.emplace_back());
      inner.finish();
    });
  }
  template <WithFields T>
  void operator()(const std::string& key, T& value) const {
    reader.read_object(key.c_str(), [&](ObjectReader& inner) { read_fields(inner, value); });
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

/// These fields may be absent: texts, optional values, and numbers that are NaN unless told.
bool may_be_absent(const auto&) { return false; }
bool may_be_absent(const std::string&) { return true; }
bool may_be_absent(double value) { return std::isnan(value); }
template <class T>
bool may_be_absent(const std::optional<T>&) {
  return true;
}

template <class T>
void read_fields(ObjectReader& reader, T& value) {
  if constexpr (std::is_same_v<T, TrialReport>) value.quality = std::nan("");
  visit_fields(value, [&](const std::string& key, const auto& member) {
    if (!may_be_absent(member)) reader.require({key.c_str()});
  });
  visit_fields(value, FieldFromJson{reader});
}

}  // namespace

template <class Message>
Json message_to_json(const Message& message) {
  return object_json(message);
}

template <class Message>
Message message_from_json(const Json& json, const char* subject) {
  DocumentProblems problems(subject);
  ObjectReader reader(json, "", problems);
  Message message;
  read_fields(reader, message);
  reader.finish();
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
