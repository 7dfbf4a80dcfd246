// Sailor's network file, zone → device → number of devices → the same of the receiver → a bandwidth
// curve; and the parts of reading such files that need no template.
//
// A link is described for each number of devices of a node that send or receive together. Links
// have a direction; some pairs have one direction only, and stay so.
#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/plan/rivals/sailor/sailor_table_json.hpp"

namespace heteroperf {
namespace {

constexpr int most_of_node = 64;
/// A curve and the peak beside it say the same within this factor, measured at 1 GB.
constexpr double same_unit = 5;

/// Reads [[a, b, c], peak]: the curve is in GB/s and the peak in bytes per second.
SailorCurve read_curve(const Json& value, const std::string& path, DocumentProblems& problems) {
  if (!value.is_array() || value.empty() || value.size() > 2) {
    note_wrong(value, path, "[[a, b, c], peak]", problems);
    return {};
  }
  const double any = -1e300;
  const std::vector<double> abc = read_numbers(value[0], path + "[0]", 3, any, problems);
  const SailorCurve curve{abc[0], abc[1], abc[2]};
  double peak = 0;
  if (value.size() < 2 || !read_value(value[1], path + "[1]", peak, problems)) return curve;
  const double rate = curve.bytes_per_second(1e9);
  if (!(rate > 0) || !(peak > 0) || rate > same_unit * peak || peak > same_unit * rate) {
    problems.add(fmt::format("{} gives {:.3g} bytes/s at 1 GB and a peak of {:.3g} bytes/s", path,
                             rate, peak),
                 "the curve is in GB/s, the peak in bytes/s");
  }
  return curve;
}

/// Calls `visit(end, value, path)` with every end of a link: an object of zones holds objects of
/// devices, these hold values by the number of devices.
template <class Visit>
void for_each_end(SailorTableFile& file, const Json& zones, const std::string& path, Visit visit) {
  file.for_each(zones, path, [&](const std::string& zone, const Json& devices, const auto& at) {
    file.for_each(devices, at, [&](const std::string& device, const Json& counts, const auto& in) {
      file.for_each(counts, in, [&](const auto& count, const Json& value, const auto& where) {
        const auto number = file.number(count, where, 1, most_of_node);
        if (number) visit(SailorLinkEnd{zone, device, static_cast<int>(*number)}, value, where);
      });
    });
  });
}

}  // namespace

void read_sailor_network(const std::filesystem::path& path, SailorInputs& inputs) {
  SailorTableFile file(path);
  for_each_end(file, file.document(), "", [&](const auto& from, const Json& ends, const auto& at) {
    for_each_end(file, ends, at, [&](const auto& to, const Json& value, const auto& where) {
      inputs.network.emplace(std::pair(from, to), read_curve(value, where, file.problems()));
    });
  });
  file.problems().throw_if_any();
}

Json SailorTableFile::read_document(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  require_stated_format(text, file.string(), "file of Sailor's");
  return parse_strict_json(text, file.string());
}

std::optional<std::int64_t> SailorTableFile::number(const std::string& key, const std::string& path,
                                                    std::int64_t least, std::int64_t most) {
  const bool digits =
      !key.empty() && key.size() <= 9 &&
      std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::int64_t value = digits ? std::stoll(key) : -1;
  if (digits && value >= least && value <= most) return value;
  problems_.add(fmt::format("{} is named {}", path, shown(Json(key))),
                fmt::format("must be a whole number from {} to {}", least, most));
  return std::nullopt;
}

std::vector<double> read_numbers(const Json& value, const std::string& path, std::size_t count,
                                 double least, DocumentProblems& problems) {
  std::vector<double> numbers;
  if (!value.is_array() || value.size() != count) {
    note_wrong(value, path, fmt::format("a list of {} numbers", count), problems);
    return std::vector<double>(count);
  }
  read_value(value, path, numbers, problems);
  for (std::size_t i = 0; i < count; ++i) {
    if (numbers[i] >= least) continue;
    problems.add(fmt::format("{} is {}", element_path(path, i), numbers[i]),
                 fmt::format("must be {} or more", least));
  }
  return numbers;
}

}  // namespace heteroperf
