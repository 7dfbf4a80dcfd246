// HexiScale (FlashFlex) describes machines by a list of how many there are of which devices; here
// such a list becomes a cluster with one label per machine.
//
// The list gives rates, memory and the bandwidth within a machine; the links between machines come
// from the command line. A label per machine lets each have its own inner links. All counts are
// bounded before memory is taken, since links grow with the square of the machines.
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {
namespace {

constexpr int most_of_a_machine = 1024;
/// Links are given machine by machine, and the pairs grow with the square.
constexpr int most_machines = 512;
constexpr double most_value = 1e9;

/// One line of `machine_specs`.
struct Spec {
  double teraflops = 0, memory_gb = 0, within_gb_per_s = 0;
};

/// Reads specs first, then how many machines there are of each, and lays out ranks machine by
/// machine: rank numbers are HexiScale's device numbers. Links come last, when all machines are
/// known.
class MachineReader {
 public:
  MachineReader(const std::string& origin, const HexiScaleLinks& links)
      : problems_(origin), origin_(origin), links_(links) {}

  Cluster read(const Json& document) {
    ObjectReader reader(document, "", problems_);
    reader.require({"machine_specs", "machine_amounts"});
    if (const Json* specs = object(reader, "machine_specs")) read_specs(*specs);
    if (const Json* amounts = object(reader, "machine_amounts")) read_amounts(*amounts);
    reader.value("baseline_machines");  // it describes a cluster of equal peak rate, for comparison
    reader.finish();
    const double between = links_.between_machines.value();
    if (!(std::isfinite(between) && between > 0)) {
      problems_.add(fmt::format("the bandwidth between machines is {} bytes/s", between),
                    "the file does not say it", "Give one that is positive.");
    }
    if (problems_.empty() && cluster_.ranks.empty()) problems_.add("there are no devices");
    problems_.throw_if_any();
    link_machines();
    check_cluster(cluster_);
    return std::move(cluster_);
  }

 private:
  /// The object at a key; null, and a note, where it is none.
  const Json* object(ObjectReader& reader, const char* key) {
    const Json* value = reader.value(key);
    if (value == nullptr || value->is_object()) return value;
    note_wrong(*value, key, "an object", problems_);
    return nullptr;
  }

  void read_specs(const Json& specs) {
    for (const auto& [name, value] : specs.items()) {
      const std::string path = "machine_specs." + name;
      std::vector<double> numbers;
      if (!value.is_array() || value.size() != 3) {
        note_wrong(value, path, "[teraflops, GB, GB/s within a machine]", problems_);
        continue;
      }
      const bool fits = read_value(value, path, numbers, problems_);
      for (std::size_t i = 0; fits && i < numbers.size(); ++i) {
        if (numbers[i] > 0 && numbers[i] <= most_value) continue;
        problems_.add(fmt::format("{} is {}", element_path(path, i), numbers[i]),
                      "must be positive, in teraflops, GB and GB/s");
      }
      specs_[name] = {numbers[0], numbers[1], numbers[2]};
    }
  }

  /// A class that no machine has any devices of is no class of the cluster.
  void read_amounts(const Json& amounts) {
    std::vector<std::string> known;
    for (const auto& [name, ignored] : specs_) known.push_back(name);
    for (const auto& [name, machines] : amounts.items()) {
      const std::string path = "machine_amounts." + name;
      if (specs_.count(name) == 0) {
        problems_.add(fmt::format("{} has no specs", path), "", did_you_mean(name, known));
        continue;
      }
      if (!machines.is_object()) {
        note_wrong(machines, path, "{devices per machine: machines}", problems_);
        continue;
      }
      const std::size_t before = cluster_.ranks.size();
      for (const auto& [devices, count] : machines.items()) {
        add_machines(name, devices, count, path + "." + devices);
      }
      if (cluster_.ranks.size() > before) add_class(name, cluster_.ranks.size() - before);
    }
  }

  /// Adds `count` machines of `devices` devices each; both are bounded before anything is
  /// allocated.
  void add_machines(const std::string& name, const std::string& devices, const Json& count,
                    const std::string& path) {
    const auto each = parse_integer(devices).value_or(0);
    if (each < 1 || each > most_of_a_machine) {
      problems_.add(fmt::format("{} is named {}", path, shown(Json(devices))),
                    fmt::format("must be a number of devices from 1 to {}", most_of_a_machine));
      return;
    }
    int machines = 0;
    if (!read_value(count, path, machines, problems_, 0, most_machines)) return;
    machines_ += machines;
    if (machines_ > most_machines ||
        cluster_.ranks.size() + static_cast<std::size_t>(machines * each) > most_cluster_ranks) {
      problems_.add(
          fmt::format("{} is machine {}", path, machines_),
          fmt::format("at most {} machines and {} devices", most_machines, most_cluster_ranks));
      return;
    }
    for (int m = 0; m < machines; ++m) {
      const std::string label = fmt::format("machine{}", labels_.size());
      labels_.push_back(label);
      within_.push_back(specs_[name].within_gb_per_s);
      cluster_.ranks.insert(cluster_.ranks.end(), each, RankPlace{name, label, label, {}});
    }
  }

  /// Peak rates of data sheets are for half precision.
  void add_class(const std::string& name, std::size_t count) {
    DeviceClass& device = cluster_.classes.emplace_back();
    device.name = name;
    device.kind = DeviceKind::cuda;
    device.memory = Bytes(static_cast<std::uint64_t>(specs_[name].memory_gb * 1e9));
    device.count = static_cast<int>(count);
    device.rates["bf16"] = OpsPerSecond(specs_[name].teraflops * 1e12);
  }

  /// Within a machine the list gives the bandwidth; between machines the command line does.
  void link_machines() {
    const std::string source = "HexiScale: " + origin_;
    for (std::size_t a = 0; a < labels_.size(); ++a) {
      cluster_.links.push_back({labels_[a], labels_[a], std::nullopt,
                                LinkCurve(links_.latency_within, BytesPerSecond(within_[a] * 1e9)),
                                source});
      for (std::size_t b = a + 1; b < labels_.size(); ++b) {
        cluster_.links.push_back({labels_[a], labels_[b], std::nullopt,
                                  LinkCurve(links_.latency_between, links_.between_machines),
                                  "given"});
      }
    }
  }

  DocumentProblems problems_;
  std::string origin_;
  HexiScaleLinks links_;
  std::map<std::string, Spec> specs_;
  std::vector<std::string> labels_;  ///< by machine
  std::vector<double> within_;       ///< GB/s, by machine
  int machines_ = 0;
  Cluster cluster_;
};

/// The numbers of "B,L,W"; nothing where one of them is none.
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  if (text.ends_with(',')) return numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    double value = 0;
    const char* end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= 0 && value <= most_value)) return {};
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

Cluster parse_hexiscale(const std::string& text, const std::string& origin,
                        const HexiScaleLinks& links) {
  return MachineReader(origin, links).read(parse_strict_json(text, origin));
}

Cluster find_machine(const std::string& source) {
  constexpr std::string_view prefix = "hexiscale:";
  if (!source.starts_with(prefix)) return find_cluster(source);
  const std::string list = source.substr(prefix.size());
  const std::size_t at = list.rfind('@');
  const std::vector<double> given = numbers_of(at == std::string::npos ? "" : list.substr(at + 1));
  if (given.empty() || given.size() > 3) {
    throw UserError(fmt::format("{} does not say how machines are linked", source),
                    "HexiScale's list has no links between machines",
                    "Give hexiscale:FILE@B[,L[,W]]: B GB/s and L µs between machines, W µs within "
                    "one.");
  }
  const auto seconds = [&](std::size_t i) {
    return Seconds(i < given.size() ? given[i] * 1e-6 : 0.0);
  };
  const std::string path = list.substr(0, at);
  const std::string text = read_text_file(path, "HexiScale file");
  require_stated_format(text, path, "HexiScale machine list");
  return parse_hexiscale(text, path, {BytesPerSecond(given[0] * 1e9), seconds(1), seconds(2)});
}

}  // namespace heteroperf
