#include "metrics/json_words.hpp"

namespace heteroperf {

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

}  // namespace heteroperf
