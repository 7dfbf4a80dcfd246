#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/plan/sailor/sailor_table_json.hpp"

namespace heteroperf {
namespace {

constexpr int most_of_node = 64;
/// A curve and the peak beside it say the same within this factor, measured at 1 GB.
constexpr double same_unit = 5;

/// [[a, b, c], peak]: the curve in GB/s and the peak in bytes per second.
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

class NetworkReader {
 public:
  NetworkReader(SailorTableFile& file, SailorInputs& inputs) : file_(file), inputs_(inputs) {}

  void read() {
    for_each_end(file_.document(), "",
                 [&](const SailorLinkEnd& from, const Json& ends, const std::string& at) {
                   for_each_end(
                       ends, at,
                       [&](const SailorLinkEnd& to, const Json& value, const std::string& where) {
                         inputs_.network.emplace(std::pair(from, to),
                                                 read_curve(value, where, file_.problems()));
                       });
                 });
    for (const auto& [pair, ignored] : inputs_.network) check_reverse(pair.first, pair.second);
  }

 private:
  /// zone → device → number of devices.
  template <class Visit>
  void for_each_end(const Json& zones, const std::string& path, Visit visit) {
    file_.for_each(
        zones, path, [&](const std::string& zone, const Json& devices, const std::string& at) {
          file_.for_each(
              devices, at,
              [&](const std::string& device, const Json& counts, const std::string& below) {
                file_.for_each(
                    counts, below,
                    [&](const std::string& count, const Json& value, const std::string& where) {
                      const auto number = file_.number(count, where, 1, most_of_node);
                      if (number)
                        visit(SailorLinkEnd{zone, device, static_cast<int>(*number)}, value, where);
                    });
              });
        });
  }

  void check_reverse(const SailorLinkEnd& from, const SailorLinkEnd& to) {
    if (inputs_.network.count({to, from}) != 0) return;
    inputs_.one_way_links.push_back(fmt::format("{} x{} in {} to {} x{} in {}", from.device,
                                                from.devices, from.zone, to.device, to.devices,
                                                to.zone));
  }

  SailorTableFile& file_;
  SailorInputs& inputs_;
};

}  // namespace

void read_sailor_network(const std::filesystem::path& path, SailorInputs& inputs) {
  SailorTableFile file(path);
  NetworkReader(file, inputs).read();
  file.problems().throw_if_any();
}

void read_sailor_within_node(const std::filesystem::path& path, SailorInputs& inputs) {
  SailorTableFile file(path);
  file.for_each(file.document(), "",
                [&](const std::string& device, const Json& counts, const std::string& at) {
                  file.for_each(
                      counts, at,
                      [&](const std::string& count, const Json& value, const std::string& where) {
                        const auto number = file.number(count, where, 2, most_of_node);
                        if (!number) return;
                        inputs.within_node[{device, static_cast<int>(*number)}] =
                            read_curve(value, where, file.problems());
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
