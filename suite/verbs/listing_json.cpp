#include <nlohmann/json.hpp>

#include "suite/verbs/listing.hpp"

namespace heteroperf {

std::string listing_json_text(const std::vector<ListItem>& items) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const ListItem& item : items) {
    Json one{{"name", item.name}, {"summary", item.summary}};
    for (const auto& [key, value] : item.details) one[key] = value;
    list.push_back(std::move(one));
  }
  return Json{{"items", list}}.dump(2) + "\n";
}

}  // namespace heteroperf
