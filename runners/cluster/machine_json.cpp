#include "runners/cluster/cluster_json.hpp"

#include <cmath>

#include "metrics/base/strict_json.hpp"

namespace heteroperf {
namespace {

using nlohmann::json;

json plain(const Bytes& bytes) { return bytes.value(); }
json plain(const std::variant<std::int64_t, double, std::string>& value) {
  return std::visit([](const auto& held) { return json(held); }, value);
}
template <class T>
json plain(const T& value) {
  return value;
}

/// Writes a value with its source, or the reason why there is none.
template <class T>
json observed(const Observed<T>& value) {
  if (value) return {{"value", plain(*value)}, {"source", value.source}};
  return {{"status", to_string(value.status)}, {"source", value.source}, {"reason", value.reason}};
}

/// Writes a list with its source; an empty one is unavailable.
json listed(json values, const std::string& source, const std::string& reason) {
  if (!values.empty()) return {{"value", std::move(values)}, {"source", source}};
  return {{"status", to_string(Availability::unavailable)},
          {"source", source},
          {"reason", reason.empty() ? "none reported" : reason}};
}

/// Lists the caches; an empty list has a reason.
json caches_json(const Topology& topology) {
  json list = json::array();
  for (const CacheLevel& cache : topology.caches) {
    list.push_back({{"level", cache.level},
                    {"kind", cache.kind},
                    {"size_bytes", cache.size.value()},
                    {"count", cache.count}});
  }
  return listed(std::move(list), topology.source, topology.reason);
}

/// Lists the memory nodes; an empty list has a reason.
json numa_json(const Topology& topology) {
  json list = json::array();
  for (const NumaNode& node : topology.numa_nodes) {
    json entry = {{"id", node.id}, {"memory_bytes", node.memory.value()}};
    if (!node.cpus.empty()) entry["cpus"] = to_list(node.cpus);
    list.push_back(std::move(entry));
  }
  return listed(std::move(list), topology.source, topology.reason);
}

/// The keys of a device class that may be absent and are 0 or more, with their words in messages.
constexpr struct {
  const char* key;
  std::optional<double> DeviceClass::*member;
  const char* expected;
} tariff_keys[] = {{"price_per_hour", &DeviceClass::price_per_hour, "a price, 0 or more"},
                   {"idle_watts", &DeviceClass::idle_watts, "watts, 0 or more"},
                   {"busy_watts", &DeviceClass::busy_watts, "watts, 0 or more"}};

/// Reads the rates by precision, each of which must be positive.
void read_rates(ObjectReader& reader, DeviceClass& device) {
  constexpr const char* name = "rates_ops_per_second";
  const Json* const rates = reader.value(name);
  if (rates == nullptr) return;
  bool fits = rates->is_object();
  for (const auto& [precision, rate] : rates->items()) {
    fits = fits && rate.is_number() && rate.get<double>() > 0;
    if (fits) device.rates[precision] = OpsPerSecond(rate.get<double>());
  }
  if (fits) return;
  note_wrong(*rates, reader.path_of(name), "an object of positive rates by precision",
             reader.problems());
}

}  // namespace

json to_json(const Machine& machine) {
  json facts = json::object();
  for (const Fact& fact : machine.facts) facts[fact.name] = observed(fact.value);
  json cores = {
      {"usable", {{"value", to_list(machine.cores.cpus)}, {"source", machine.cores.source}}},
      {"usable_count", machine.cores.count()},
      {"quota", observed(machine.cores.quota)}};
  return {{"host", observed(machine.host)},
          {"os", observed(machine.os)},
          {"kernel", observed(machine.kernel)},
          {"container", observed(machine.container)},
          {"cpu",
           {{"model", observed(machine.cpu_model)},
            {"sockets", observed(machine.topology.sockets)},
            {"cores", observed(machine.topology.cores)},
            {"logical_cpus", observed(machine.topology.logical_cpus)},
            {"governor", observed(machine.governor)},
            {"caches", caches_json(machine.topology)}}},
          {"cores", std::move(cores)},
          {"memory",
           {{"total_bytes", observed(machine.memory_total)},
            {"available_bytes", observed(machine.memory_available)},
            {"limit_bytes", observed(machine.memory_limit)},
            {"numa_nodes", numa_json(machine.topology)}}},
          {"facts", std::move(facts)}};
}

json to_json(const ProcessContext& context) {
  json libraries = json::array();
  for (const LoadedLibrary& library : context.libraries) {
    json entry = {{"path", library.path}};
    if (!library.build_id.empty()) entry["build_id"] = library.build_id;
    libraries.push_back(std::move(entry));
  }
  return {{"libraries", std::move(libraries)}, {"environment", context.environment}};
}

json to_json(const DeviceClass& device) {
  json rates = json::object();
  for (const auto& [precision, rate] : device.rates) rates[precision] = rate.value();
  json entry = {{"name", device.name},
                {"kind", to_string(device.kind)},
                {"memory_bytes", device.memory.value()},
                {"count", device.count},
                {"threads", device.threads}};
  if (!rates.empty()) entry["rates_ops_per_second"] = std::move(rates);
  for (const auto& [key, member, ignored] : tariff_keys) {
    if (device.*member) entry[key] = *(device.*member);
  }
  return entry;
}

DeviceClass read_device_class(const Json& json, const std::string& path,
                              DocumentProblems& problems) {
  constexpr int most_devices = 1'000'000;
  ObjectReader reader(json, path, problems);
  DeviceClass device;
  reader.require({"name", "kind", "memory_bytes"});
  reader.read("name", device.name);
  const Json* const name = reader.value("name");
  if (name != nullptr && *name == "") note_wrong(*name, reader.path_of("name"), "a text", problems);
  reader.read("kind", device.kind);
  reader.read("memory_bytes", device.memory);
  reader.read("count", device.count, 1, most_devices);
  reader.read("threads", device.threads, 1, most_devices);
  read_rates(reader, device);
  for (const auto& [key, member, expected] : tariff_keys) {
    const Json* const value = reader.value(key);
    if (value == nullptr) continue;
    const double amount = value->is_number() ? value->get<double>() : -1;
    if (std::isfinite(amount) && amount >= 0) {
      device.*member = amount;
    } else {
      note_wrong(*value, reader.path_of(key), expected, problems);
    }
  }
  reader.finish();
  return device;
}

}  // namespace heteroperf
