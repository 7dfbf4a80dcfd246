#include "runners/comm/discovery/descriptor_json.hpp"

#include <array>

#include "metrics/base/strict_json.hpp"

namespace heteroperf {
namespace {

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
  NetworkCard card;
  double bandwidth = 0;
  reader.require({"name", "bandwidth_bytes_per_s"});
  reader.read("name", card.name);
  reader.read("bandwidth_bytes_per_s", bandwidth);
  reader.finish();
  if (bandwidth < 0) problems.add(path + " has a negative bandwidth");
  card.bandwidth = BytesPerSecond(bandwidth);
  descriptor.cards.push_back(std::move(card));
}

}  // namespace

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

}  // namespace heteroperf
