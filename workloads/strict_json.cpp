#include "workloads/strict_json.hpp"

#include <fmt/format.h>

#include <set>

namespace heteroperf {

Json parse_strict_json(std::string_view text, const std::string& origin) {
  std::vector<std::set<std::string>> open_objects;
  ProblemList problems;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      if (!open_objects.back().insert(key).second) {
        problems.add(fmt::format("{}: the key '{}' is there twice in one object", origin, key));
      }
    }
    return true;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), watch);
    problems.throw_if_any();
    return json;
  } catch (const Json::exception& error) {
    const std::string words = error.what();
    const auto start = words.find("] ");
    throw UserError(origin + " is not valid JSON",
                    start == std::string::npos ? words : words.substr(start + 2));
  }
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(name, candidates);
  return near.empty() ? "" : fmt::format("Did you mean '{}'?", near);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void ObjectReader::fail(const std::string& problem, std::string why, std::string suggestion) {
  problems_.add(subject_ + ": " + problem, std::move(why), std::move(suggestion));
}

void ObjectReader::check_keys(const std::vector<std::string>& valid) {
  for (const auto& [key, value] : json_.items()) {
    if (std::find(valid.begin(), valid.end(), key) != valid.end()) continue;
    fail(fmt::format("unknown key '{}'", key), "valid keys: " + listed(valid),
         did_you_mean(key, valid));
  }
}

const Json* ObjectReader::required(const char* key) {
  const Json* found = optional(key);
  if (found == nullptr) fail(fmt::format("the key '{}' is missing", key));
  return found;
}

const Json* ObjectReader::optional(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

void ObjectReader::read(const char* key, const Json& value, bool& out) {
  if (!value.is_boolean()) return wrong_type(key, value, "true or false");
  out = value.get<bool>();
}

void ObjectReader::read(const char* key, const Json& value, double& out) {
  if (!value.is_number()) return wrong_type(key, value, "a number");
  out = value.get<double>();
}

void ObjectReader::read(const char* key, const Json& value, std::string& out) {
  if (!value.is_string()) return wrong_type(key, value, "a text");
  out = value.get<std::string>();
}

void ObjectReader::read(const char* key, const Json& value, std::int64_t& out) {
  if (!value.is_number_integer()) return wrong_type(key, value, "a whole number");
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
  if (!fits) return wrong_type(key, value, "a number below 2^63");
  out = value.get<std::int64_t>();
}

void ObjectReader::read(const char* key, const Json& value, std::array<std::int64_t, 2>& out) {
  if (!value.is_array() || value.size() != 2) return wrong_type(key, value, "two whole numbers");
  read(key, value[0], out[0]);
  read(key, value[1], out[1]);
}

void ObjectReader::read(const char* key, const Json& value, std::vector<std::string>& out) {
  if (!value.is_array()) return wrong_type(key, value, "a list of texts");
  for (const Json& element : value) read(key, element, out.emplace_back());
}

void ObjectReader::read(const char* key, const Json& value, std::vector<std::int64_t>& out) {
  if (!value.is_array()) return wrong_type(key, value, "a list of whole numbers");
  for (const Json& element : value) read(key, element, out.emplace_back());
}

int ObjectReader::read_choice(const char* key, const Json& value,
                              const std::vector<std::string>& valid) {
  if (!value.is_string()) {
    wrong_type(key, value, "one of " + listed(valid));
    return -1;
  }
  const auto text = value.get<std::string>();
  const auto found = std::find(valid.begin(), valid.end(), text);
  if (found != valid.end()) return static_cast<int>(found - valid.begin());
  fail(fmt::format("{} is '{}'", key, text), "one of " + listed(valid), did_you_mean(text, valid));
  return -1;
}

void ObjectReader::wrong_type(const char* key, const Json& value, const std::string& expected) {
  constexpr std::size_t shown = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > shown) text = text.substr(0, shown) + "…";
  fail(fmt::format("{} is {}", key, text), "expected " + expected);
}

}  // namespace heteroperf
