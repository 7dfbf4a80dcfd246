#include "suite/verbs/pack_report_json.hpp"

#include <nlohmann/json.hpp>

#include "suite/verbs/whole_number_json.hpp"

namespace heteroperf {

std::string pack_json_text(const PackedArchive& packed) {
  const nlohmann::ordered_json json{{"_format", "heteroperf-pack"},
                                    {"_version", 1},
                                    {"archive", packed.file.string()},
                                    {"files", packed.files},
                                    {"bytes", whole_number_json(packed.bytes)},
                                    {"sha256", packed.sha256}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heteroperf
