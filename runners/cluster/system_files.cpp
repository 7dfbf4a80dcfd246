#include "runners/cluster/system_files.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

constexpr Named<Availability> availabilities[] = {{Availability::ok, "ok"},
                                                  {Availability::unavailable, "unavailable"},
                                                  {Availability::denied, "denied"}};

/// Returns the path as it is reported.
std::string shown(const std::string& path) { return "/" + path; }

/// Removes double quotes around a value.
std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

}  // namespace

const char* to_string(Availability availability) { return name_of(availabilities, availability); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\0";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  std::size_t begin = text.find_first_not_of(separators);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(separators, end);
  }
  return words;
}

std::optional<long long> parse_integer(std::string_view text) {
  long long value = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return value;
}

Observed<std::string> SystemFiles::text(const std::string& path) const {
  errno = 0;
  std::ifstream file(root_ / path);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    const int error = errno;
    return Observed<std::string>::none(
        shown(path), error != 0 ? std::strerror(error) : "cannot be read",
        error == EACCES || error == EPERM ? Availability::denied : Availability::unavailable);
  }
  const std::string_view value = trimmed(content);
  if (value.empty()) return Observed<std::string>::none(shown(path), "the file is empty");
  return Observed<std::string>::of(std::string(value), shown(path));
}

Observed<long long> SystemFiles::integer(const std::string& path) const {
  const Observed<std::string> content = text(path);
  if (!content) return Observed<long long>::none(content);
  const std::string word = split_words(*content).front();
  if (const auto value = parse_integer(word)) return Observed<long long>::of(*value, shown(path));
  return Observed<long long>::none(shown(path), "\"" + word + "\" is not a number");
}

Observed<std::string> SystemFiles::field(const std::string& path, std::string_view key,
                                         char separator) const {
  const Observed<std::string> content = text(path);
  if (!content) return content;
  for (const std::string& line : split_words(*content, "\n")) {
    const std::size_t at = line.find(separator);
    if (at == std::string::npos || trimmed(std::string_view(line).substr(0, at)) != key) continue;
    const std::string_view value = unquoted(trimmed(std::string_view(line).substr(at + 1)));
    if (!value.empty()) return Observed<std::string>::of(std::string(value), shown(path));
  }
  return Observed<std::string>::none(shown(path), "no field \"" + std::string(key) + "\"");
}

Observed<Bytes> SystemFiles::memory(const std::string& path, std::string_view key) const {
  const auto text = field(path, key, ':');
  if (!text) return Observed<Bytes>::none(text);
  const auto words = split_words(*text);
  const auto kilobytes = parse_integer(words.front());
  if (kilobytes && *kilobytes >= 0 && words.size() == 2 && words[1] == "kB") {
    return Observed<Bytes>::of(Bytes(static_cast<std::uint64_t>(*kilobytes) * 1024), text.source);
  }
  return Observed<Bytes>::none(text.source, "\"" + *text + "\" is not a size in kB");
}

bool SystemFiles::exists(const std::string& path) const {
  std::error_code ignored;
  return std::filesystem::exists(root_ / path, ignored);
}

}  // namespace heteroperf
