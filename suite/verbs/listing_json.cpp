// The document of `list` and of the topics of `help`. Details become keys of their item, beside its
// name and summary. Counts may exceed 2^53 and are written so that readers with doubles do not
// round them.
#include <nlohmann/json.hpp>

#include "metrics/base/strict_json.hpp"
#include "suite/verbs/listing.hpp"

namespace heteroperf {
namespace {

struct ToJson {
  nlohmann::ordered_json operator()(const std::string& text) const { return text; }
  nlohmann::ordered_json operator()(double number) const { return number; }
  nlohmann::ordered_json operator()(std::uint64_t number) const {
    return whole_number_json(number);
  }
};

}  // namespace

std::string listing_json_text(const std::vector<ListItem>& items) {
  Json list = Json::array();
  for (const ListItem& item : items) {
    Json one{{"name", item.name}, {"summary", item.summary}};
    for (const auto& [key, value] : item.details) one[key] = std::visit(ToJson{}, value);
    list.push_back(std::move(one));
  }
  Json document = new_document("heteroperf-list");
  document["items"] = std::move(list);
  return document.dump(2) + "\n";
}

}  // namespace heteroperf
