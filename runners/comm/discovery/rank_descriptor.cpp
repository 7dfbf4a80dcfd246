// A rank's description of itself: how it is found, written as JSON, read, and exchanged. It is read
// strictly, since a rank of another version of the program may have written it; one that makes no
// sense ends the run on every rank alike.
#include "runners/comm/discovery/rank_descriptor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "metrics/base/strict_json.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/cluster/topology.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

constexpr const char* unknown = "unknown";

/// Reads the vendor, which x86 calls "vendor_id"; ARM has the implementer's number.
std::string cpu_vendor(const SystemFiles& files) {
  for (const char* key : {"vendor_id", "CPU implementer"}) {
    const auto vendor = files.field("proc/cpuinfo", key, ':');
    if (vendor) return *vendor;
  }
  return unknown;
}

/// Counts the cores that are online, at most as many as the control group lets run at once. The
/// cores to which this rank is bound do not matter.
std::uint32_t cores_of_host(const UsableCores& usable) {
  const auto online = static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (!usable.quota) return online;
  return std::clamp(static_cast<std::uint32_t>(*usable.quota), 1u, online);
}

/// A text of the descriptor and its key in JSON.
struct TextKey {
  const char* name;
  std::string RankDescriptor::*member;
};

constexpr std::array text_keys = {TextKey{"vendor", &RankDescriptor::vendor},
                                  TextKey{"model", &RankDescriptor::model},
                                  TextKey{"library", &RankDescriptor::library},
                                  TextKey{"host", &RankDescriptor::host},
                                  TextKey{"label", &RankDescriptor::label},
                                  TextKey{"library_version", &RankDescriptor::library_version}};

void read_card(const Json& entry, const std::string& path, RankDescriptor& descriptor,
               DocumentProblems& problems) {
  ObjectReader reader(entry, path, problems);
  NetworkCard& card = descriptor.cards.emplace_back();
  reader.require({"name", "bandwidth_bytes_per_s"});
  reader.read("name", card.name);
  reader.read("bandwidth_bytes_per_s", card.bandwidth);
  reader.finish();
  if (card.bandwidth.value() < 0) problems.add(path + " has a negative bandwidth");
}

}  // namespace

std::string host_id(const SystemFiles& files) {
  const char* given = std::getenv("HETEROPERF_HOST_ID");
  if (given != nullptr && *given != 0) return given;
  const auto boot = files.text("proc/sys/kernel/random/boot_id");
  return boot ? host_name() + ":" + (*boot).substr(0, (*boot).find('-')) : host_name();
}

RankDescriptor describe_this_rank(const std::string& library, const std::string& label) {
  const SystemFiles files;
  const Machine machine = probe_machine(files);
  RankDescriptor descriptor{.vendor = cpu_vendor(files),
                            .model = machine.cpu_model ? *machine.cpu_model : unknown,
                            .library = library,
                            .host = host_id(files),
                            .cards = network_cards(running_interfaces(), machine.cores.cpus, files),
                            .label = label,
                            .host_cores = cores_of_host(machine.cores)};
  for (NetworkCard& card : descriptor.cards) card.name = descriptor.host + "/" + card.name;
  return descriptor;
}

std::string descriptor_text(const RankDescriptor& descriptor) {
  Json document = Json::object();
  for (const TextKey& key : text_keys) document[key.name] = descriptor.*key.member;
  document["host_cores"] = descriptor.host_cores;
  document["cards"] = Json::array();
  for (const NetworkCard& card : descriptor.cards) {
    Json entry = Json::object();
    entry["name"] = card.name;
    entry["bandwidth_bytes_per_s"] = card.bandwidth.value();
    document["cards"].push_back(std::move(entry));
  }
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankDescriptor parse_descriptor(const std::string& text, const std::string& origin) {
  const Json document = parse_strict_json(text, origin);
  DocumentProblems problems(origin);
  RankDescriptor descriptor;
  ObjectReader reader(document, "", problems);
  for (const TextKey& key : text_keys) {
    reader.require({key.name});
    reader.read(key.name, descriptor.*key.member);
  }
  reader.require({"host_cores", "cards"});
  reader.read("host_cores", descriptor.host_cores);
  reader.for_each("cards", [&](const Json& entry, const std::string& path) {
    read_card(entry, path, descriptor, problems);
  });
  reader.finish();
  problems.throw_if_any();
  return descriptor;
}

std::vector<RankDescriptor> gather_descriptors(Communicator& world, const RankDescriptor& local) {
  const std::vector<std::string> texts = gather_texts(world, descriptor_text(local));
  std::vector<RankDescriptor> descriptors;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    try {
      descriptors.push_back(
          parse_descriptor(texts[r], fmt::format("the description of rank {}", r)));
    } catch (const UserError& error) {
      throw SystemError(fmt::format("rank {} describes itself in a way that is not understood", r),
                        error.what(), "Start the same version of the program on every host");
    }
  }
  return descriptors;
}

}  // namespace heteroperf
