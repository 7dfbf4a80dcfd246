#include "runners/cluster/cluster_json.hpp"

#include <cmath>
#include <string_view>
#include <type_traits>

#include "metrics/base/error.hpp"

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

/// A key of a device class: the function that takes its value over, and the words for what it must
/// be.
struct DeviceKey {
  const char* name;
  bool (*read)(const json& value, DeviceClass& device);
  const char* expected;
};

/// Tells if a value is a whole number from 1 to a million.
bool is_count(const json& value) {
  return value.is_number_integer() && value >= 1 && value <= 1'000'000;
}

/// Reads the rates by precision, each of which must be positive.
bool read_rates(const json& value, DeviceClass& device) {
  if (!value.is_object()) return false;
  for (const auto& [precision, rate] : value.items()) {
    if (!rate.is_number() || !(rate.get<double>() > 0)) return false;
    device.rates[precision] = OpsPerSecond(rate.get<double>());
  }
  return true;
}

/// Reads a number of 0 or more.
template <std::optional<double> DeviceClass::*value>
bool read_amount(const json& json_value, DeviceClass& device) {
  if (!json_value.is_number() || !(json_value.get<double>() >= 0)) return false;
  if (!std::isfinite(json_value.get<double>())) return false;
  device.*value = json_value.get<double>();
  return true;
}

/// Lists every key of a device class.
const std::vector<DeviceKey>& device_keys() {
  static const std::vector<DeviceKey> keys = {
      {"name",
       [](const json& v, DeviceClass& d) {
         return v.is_string() && !(d.name = v.get<std::string>()).empty();
       },
       "a text"},
      {"kind",
       [](const json& v, DeviceClass& d) {
         return v.is_string() &&
                (d.kind = parse_value_name<DeviceKind>("device kind", v.get<std::string>()), true);
       },
       "cpu, cuda or paced"},
      {"memory_bytes",
       [](const json& v, DeviceClass& d) {
         return v.is_number_unsigned() && (d.memory = Bytes(v.get<std::uint64_t>()), true);
       },
       "a whole number of bytes"},
      {"count", [](const json& v, DeviceClass& d) { return is_count(v) && (d.count = v, true); },
       "a number from 1 to 1000000"},
      {"threads",
       [](const json& v, DeviceClass& d) { return is_count(v) && (d.threads = v, true); },
       "a number from 1 to 1000000"},
      {"rates_ops_per_second", &read_rates, "an object of positive rates by precision"},
      {"price_per_hour", &read_amount<&DeviceClass::price_per_hour>, "a price, 0 or more"},
      {"idle_watts", &read_amount<&DeviceClass::idle_watts>, "watts, 0 or more"},
      {"busy_watts", &read_amount<&DeviceClass::busy_watts>, "watts, 0 or more"},
  };
  return keys;
}

/// Finds a key by its name; null where there is none.
const DeviceKey* find_key(const std::string& name) {
  for (const DeviceKey& key : device_keys()) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

/// Notes an unknown key with the nearest known one.
void report_unknown(const std::string& name, const std::string& where, ProblemList& problems) {
  std::vector<std::string> names;
  for (const DeviceKey& key : device_keys()) names.emplace_back(key.name);
  const std::string near = nearest_name(name, names);
  problems.add("unknown key \"" + name + "\" in " + where, "",
               near.empty() ? "" : "did you mean \"" + near + "\"?");
}

/// Reads one key of a device class, or notes what it must be.
void read_entry(const std::string& name, const json& value, const std::string& where,
                DeviceClass& device, ProblemList& problems) {
  const DeviceKey* key = find_key(name);
  if (key == nullptr) return report_unknown(name, where, problems);
  try {
    if (!key->read(value, device)) {
      problems.add(where + "." + name + " is " + value.dump(),
                   std::string("must be ") + key->expected);
    }
  } catch (const UserError& error) {
    for (const Problem& p : error.problems())
      problems.add(where + ": " + p.problem, p.why, p.suggestion);
  }
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
  if (device.price_per_hour) entry["price_per_hour"] = *device.price_per_hour;
  if (device.idle_watts) entry["idle_watts"] = *device.idle_watts;
  if (device.busy_watts) entry["busy_watts"] = *device.busy_watts;
  return entry;
}

DeviceClass device_class_from_json(const json& value, const std::string& where) {
  ProblemList problems;
  DeviceClass device;
  if (!value.is_object()) {
    problems.add(where + " is " + value.dump(), "must be an object");
    problems.throw_if_any();
  }
  for (const auto& [name, entry] : value.items()) read_entry(name, entry, where, device, problems);
  for (const char* required : {"name", "kind", "memory_bytes"}) {
    if (!value.contains(required)) problems.add(where + " has no \"" + required + "\"");
  }
  problems.throw_if_any();
  return device;
}

}  // namespace heteroperf
