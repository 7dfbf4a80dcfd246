#include "runners/cluster/efficiency_matrix.hpp"

#include <fmt/format.h>

#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/cluster_json.hpp"

namespace heteroperf {
namespace {

constexpr const char* matrix_format_name = "heteroperf-efficiency";
constexpr int matrix_format_version = 1;

/// Writes provenance and source behind an entry.
void put_origin(Json& entry, const Origin& origin) {
  entry["provenance"] = to_string(origin.provenance);
  if (!origin.source.empty()) entry["source"] = origin.source;
}

Json rate_json(const EfficiencyMatrix::OperationKey& key, const EfficiencyMatrix::Rate& rate) {
  Json entry = {{"class", key.device_class}, {"precision", key.precision}};
  if (!key.operation.empty()) entry["operation"] = key.operation;
  if (!key.shape.empty()) entry["shape"] = key.shape;
  entry["ops_per_second"] = rate.rate.value();
  put_origin(entry, rate.origin);
  return entry;
}

Json value_json(const EfficiencyMatrix::DeviceKey& key, const EfficiencyMatrix::Value& value) {
  Json entry = {{"class", key.first}, {"quantity", to_string(key.second)}, {"value", value.value}};
  put_origin(entry, value.origin);
  return entry;
}

Json link_json(const EfficiencyMatrix::LinkKey& key, const EfficiencyMatrix::Curve& curve) {
  Json entry = {{"scope", to_string(std::get<0>(key))},
                {"between", {std::get<1>(key), std::get<2>(key)}},
                {"points", Json(link_points_json(curve.curve))}};
  put_origin(entry, curve.origin);
  return entry;
}

/// Builds a matrix from a document and notes every problem on the way.
class MatrixReader {
 public:
  explicit MatrixReader(const std::string& origin) : problems_(origin) {}

  EfficiencyMatrix read(const Json& document) {
    ObjectReader reader(document, "", problems_);
    reader.expect_format(matrix_format_name, matrix_format_version);
    reader.for_each("operations", *this, &MatrixReader::read_rate);
    reader.for_each("devices", *this, &MatrixReader::read_device);
    reader.for_each("links", *this, &MatrixReader::read_link);
    reader.finish();
    problems_.throw_if_any();
    return std::move(matrix_);
  }

 private:
  /// Reads what ends every entry.
  static void finish(ObjectReader& reader, Origin& origin) {
    reader.read("provenance", origin.provenance);
    reader.read("source", origin.source);
    reader.finish();
  }

  /// Adds an entry, or notes the problems with it; one that is there already is a problem.
  template <class Map, class Key, class Entry>
  void add(const Map& map, const Key& key, const Entry& entry, const std::string& path) {
    if (map.contains(key)) return problems_.add(path + " is there twice");
    try {
      matrix_.add(key, entry);
    } catch (const UserError& error) {
      problems_.add_all(error, path + ": ");
    }
  }

  /// Reads one entry of "operations".
  void read_rate(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    EfficiencyMatrix::OperationKey key;
    EfficiencyMatrix::Rate rate;
    reader.require({"class", "precision", "ops_per_second"});
    reader.read("class", key.device_class);
    reader.read("operation", key.operation);
    reader.read("shape", key.shape);
    reader.read("precision", key.precision);
    reader.read("ops_per_second", rate.rate);
    finish(reader, rate.origin);
    add(matrix_.rates(), key, rate, path);
  }

  /// Reads one entry of "devices".
  void read_device(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    EfficiencyMatrix::DeviceKey key;
    EfficiencyMatrix::Value number;
    reader.require({"class", "quantity", "value"});
    reader.read("class", key.first);
    reader.read("quantity", key.second);
    reader.read("value", number.value);
    finish(reader, number.origin);
    add(matrix_.values(), key, number, path);
  }

  /// Reads one entry of "links".
  void read_link(const Json& value, const std::string& path) {
    ObjectReader reader(value, path, problems_);
    LinkScope scope = LinkScope::classes;
    std::vector<std::string> ends;
    reader.require({"scope", "between", "points"});
    reader.read("scope", scope);
    reader.read("between", ends);
    std::vector<LinkCurve::Point> points = read_link_points(reader, problems_);
    Origin origin;
    finish(reader, origin);
    if (ends.size() != 2) {
      problems_.add(fmt::format("{}.between has {} ends", path, ends.size()), "two names");
      return;
    }
    try {
      add_link(scope, ends, {LinkCurve(std::move(points)), origin}, path);
    } catch (const UserError& error) {
      problems_.add_all(error, path + ": ");
    }
  }

  /// Adds a link. The other direction of a known link with the same curve adds nothing.
  void add_link(LinkScope scope, const std::vector<std::string>& ends,
                const EfficiencyMatrix::Curve& curve, const std::string& path) {
    if (const EfficiencyMatrix::Curve* known = matrix_.link(scope, ends[0], ends[1])) {
      if (known->curve == curve.curve) return;
      problems_.add(fmt::format("{}: the link of {} and {} is there with another curve", path,
                                ends[0], ends[1]),
                    "a link is the same in both directions", "Give it once.");
      return;
    }
    matrix_.add(scope, ends[0], ends[1], curve);
  }

  DocumentProblems problems_;
  EfficiencyMatrix matrix_;
};

}  // namespace

std::string efficiency_matrix_text(const EfficiencyMatrix& matrix) {
  Json document = {{"_format", matrix_format_name},
                   {"_version", matrix_format_version},
                   {"operations", Json::array()},
                   {"devices", Json::array()},
                   {"links", Json::array()}};
  for (const auto& [key, rate] : matrix.rates())
    document["operations"].push_back(rate_json(key, rate));
  for (const auto& [key, value] : matrix.values())
    document["devices"].push_back(value_json(key, value));
  for (const auto& [key, curve] : matrix.links())
    document["links"].push_back(link_json(key, curve));
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

EfficiencyMatrix parse_efficiency_matrix(const std::string& text, const std::string& origin) {
  return MatrixReader(origin).read(parse_strict_json(text, origin, matrix_format_name));
}

EfficiencyMatrix read_efficiency_matrix(const std::filesystem::path& file) {
  return parse_efficiency_matrix(read_text_file(file, "efficiency file"), file.string());
}

}  // namespace heteroperf
