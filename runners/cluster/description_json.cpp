#include "runners/cluster/description_json.hpp"

namespace heteroperf {

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
