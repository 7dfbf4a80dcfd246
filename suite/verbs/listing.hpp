#pragma once

#include <string>
#include <utility>
#include <vector>

namespace heteroperf {

/// One thing `list` names. Details are shown by --json and by -v.
struct ListItem {
  std::string name, summary;
  std::vector<std::pair<std::string, std::string>> details;
};

/// {"items":[{"name","summary",…details}]}
std::string listing_json_text(const std::vector<ListItem>& items);

}  // namespace heteroperf
