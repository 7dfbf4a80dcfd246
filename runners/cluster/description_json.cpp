#include "runners/cluster/description_json.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace heteroperf {

std::string read_description(const std::filesystem::path& file, const std::string& what,
                             const std::string& suggestion) {
  const std::string name = fmt::format("the {} file {}", what, file.string());
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw UserError(name + " cannot be read", "it is a folder");
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    const int code = errno;
    throw UserError(name + " cannot be read",
                    code != 0 ? std::strerror(code) : "the system gives no reason", suggestion);
  }
  if (text.empty()) throw UserError(name + " is empty");
  return text;
}

std::vector<LinkCurve::Point> read_link_points(ObjectReader& reader, DocumentProblems& problems) {
  std::vector<LinkCurve::Point> points;
  reader.for_each("points", [&](const Json& entry, const std::string& path) {
    ObjectReader point(entry, path, problems);
    std::uint64_t bytes = 0;
    double time_s = 0;
    point.require({"bytes", "time_s"});
    point.read("bytes", bytes);
    point.read("time_s", time_s);
    point.finish();
    points.push_back({Bytes(bytes), Seconds(time_s)});
  });
  return points;
}

}  // namespace heteroperf
