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

}  // namespace

/// Reads a text that may stand for more digits than JSON's numbers keep.
static bool read_value(const Json& json, const std::string& path, Ops& value,
                       DocumentProblems& problems) {
  std::string text;
  if (!read_value(json, path, text, problems)) return false;
  value = Ops::parse(text);
  return true;
}

static bool read_value(const Json& json, const std::string& path, ModelGraph& graph,
                       DocumentProblems&) {
  graph = graph_from_json(json, path);
  return true;
}

template <class T>
static bool read_value(const Json& json, const std::string& path, std::optional<T>& value,
                       DocumentProblems& problems) {
  return read_value(json, path, value.emplace(), problems);
}

/// Reads an object with such fields, on its own or in a list. A key that is absent leaves its field
/// as it is.
template <WithFields T>
static bool read_value(const Json& json, const std::string& path, T& value,
                       DocumentProblems& problems) {
  ObjectReader reader(json, path, problems);
  if constexpr (std::is_same_v<T, TrialReport>) value.quality = std::nan("");
  visit_fields(value, [&](const std::string& key, const auto& member) {
    if (!is_absent(member)) reader.require({key.c_str()});
  });
  visit_fields(value, [&](const std::string& key, auto& member) {
    try {
      if constexpr (std::is_same_v<decltype(member), std::uint64_t&>) {
        if (key == seed_key) {
          Ops wide;
          reader.read(key.c_str(), wide);
          if (wide.high() != 0) throw UserError(wide.to_string() + " is too large");
          member = wide.low();
          return;
        }
      }
      reader.read(key.c_str(), member);
    } catch (const UserError& error) {
      problems.add_all(error, reader.path_of(key.c_str()) + ": ");
    }
  });
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
