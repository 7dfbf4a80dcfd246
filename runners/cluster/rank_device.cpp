// The devices that a rank may compute on, read from their names and from the files of emulated
// chips.
//
// A device of the host is a set of kernels: the fastest, those of one instruction set, or the
// reference. An emulated chip is the host with another chip's numerics: products whose operands are
// rounded first, sums in another order, operators that are missing. So a machine without the chip
// can show what its numerics do to a training, and what a missing operator costs.
//
// An instruction set holds for LibTorch's libraries as well. They choose once per process, from the
// environment, so the ranks of one process cannot have unlike ones.
#include "runners/cluster/rank_device.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "metrics/base/text_file.hpp"
#include "runners/cluster/cluster.hpp"

namespace heteroperf {
namespace {

constexpr const char* emulated_prefix = "emulated:";
constexpr const char* chip_format_name = "heteroperf-chip";
constexpr int chip_format_version = 1;

struct NamedDevice {
  const char* name;
  bool on_gpu;
  KernelSet kernels;
};
constexpr NamedDevice named_devices[] = {
    {"cpu", false, KernelSet::fastest},       {"cuda", true, KernelSet::fastest},
    {"cpu:base", false, KernelSet::base},     {"cpu:avx2", false, KernelSet::avx2},
    {"cpu:avx512", false, KernelSet::avx512}, {"cpu:exact", false, KernelSet::exact}};

/// A substitute reads what a device holds and writes it back, so nothing can take their place.
const std::set<std::string> needed_operators{"copy", "allocate"};

EmulatedChip read_chip(const Json& document, const std::string& where) {
  DocumentProblems problems(where);
  EmulatedChip chip;
  ObjectReader reader(document, "", problems);
  reader.expect_format(chip_format_name, chip_format_version);
  reader.require({"name", "precisions"});
  reader.read("name", chip.name);
  reader.read("precisions", chip.precisions);
  reader.read("products", chip.products);
  reader.read("sum_order", chip.sum_order);
  reader.read("lacks", chip.lacks);
  reader.read("memory_bytes", chip.memory_bytes);
  reader.read("lost_after_calls", chip.lost_after_calls);
  reader.finish();
  // The reader has told of a name that is missing or no text.
  const Json* const name = reader.value("name");
  constexpr std::size_t longest_name = 64;
  const bool is_word = !chip.name.empty() && chip.name.size() <= longest_name &&
                       std::ranges::all_of(chip.name, [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
                       });
  if (name != nullptr && name->is_string() && !is_word) {
    problems.add(
        fmt::format("name \"{}\" is no word", chip.name.substr(0, longest_name)),
        "up to 64 of the letters a to z, digits, _, - and .; it stands in lists of devices");
  }
  const std::vector<std::string> known{"fp32", "bf16", "fp64"};
  const Json* const precisions = reader.value("precisions");
  if (precisions != nullptr && precisions->is_array() && precisions->empty())
    problems.add("precisions is empty", "the chip could hold no number");
  for (const std::string& precision : chip.precisions) {
    if (std::ranges::find(known, precision) != known.end()) continue;
    problems.add(fmt::format("precision \"{}\" is not known", precision), "fp32, bf16 or fp64");
  }
  for (const std::string& pattern : chip.lacks) {
    if (!needed_operators.contains(pattern)) continue;
    problems.add(fmt::format("the chip lacks {}", pattern),
                 "a substitute reads and writes the chip's memory, so nothing can replace it",
                 "Name the operators that are missing: `heteroperf ops` lists them");
  }
  problems.throw_if_any();
  return chip;
}

EmulatedChip find_chip(const std::string& file_or_name) {
  std::error_code error;
  if (std::filesystem::exists(file_or_name, error) ||
      file_or_name.find_first_of("/.") != std::string::npos) {
    return parse_chip(
        read_text_file(file_or_name, "device file",
                       fmt::format("Shipped are {}.", fmt::join(shipped_chip_names(), ", "))),
        file_or_name);
  }
  for (const detail::ShippedText& shipped : detail::shipped_chips()) {
    if (file_or_name == shipped.name) return parse_chip(shipped.text, shipped.name);
  }
  throw unknown_name("shipped chip", file_or_name, shipped_chip_names());
}

/// The names of an instruction set in the environment of ATen, oneDNN and MKL.
struct LibraryNames {
  const char *aten, *onednn, *mkl;
};
LibraryNames library_names(KernelSet set) {
  if (set == KernelSet::avx512) return {"avx512", "AVX512_CORE", "AVX512"};
  if (set == KernelSet::avx2) return {"avx2", "AVX2", "AVX2"};
  return {"default", "SSE41", "SSE4_2"};
}

}  // namespace

bool has_instructions(KernelSet set) {
#if defined(__x86_64__)
  if (set == KernelSet::avx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  if (set == KernelSet::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  }
  return true;
#else
  return set != KernelSet::avx2 && set != KernelSet::avx512;
#endif
}

bool RankDevice::has_precision(const std::string& precision) const {
  return !chip || std::ranges::find(chip->precisions, precision) != chip->precisions.end();
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const NamedDevice& device : named_devices) names.emplace_back(device.name);
  names.push_back(std::string(emulated_prefix) + "NAME");
  return names;
}

std::vector<std::string> shipped_chip_names() {
  std::vector<std::string> names;
  for (const detail::ShippedText& shipped : detail::shipped_chips()) {
    names.emplace_back(shipped.name);
  }
  return names;
}

EmulatedChip parse_chip(const std::string& text, const std::string& where) {
  return read_chip(parse_strict_json(text, where, chip_format_name), where);
}

RankDevice read_device(const std::string& name) {
  if (name.starts_with(emulated_prefix)) {
    const EmulatedChip chip = find_chip(name.substr(std::string(emulated_prefix).size()));
    return {.name = emulated_prefix + chip.name, .chip = chip};
  }
  for (const NamedDevice& device : named_devices) {
    if (name == device.name) return {name, device.on_gpu, device.kernels, {}};
  }
  throw unknown_name("device", name, device_names());
}

void limit_libraries(const std::vector<RankDevice>& devices) {
  std::set<KernelSet> wanted;
  std::set<std::string> names;
  for (const RankDevice& device : devices) {
    if (device.on_gpu || device.kernels == KernelSet::exact) continue;
    wanted.insert(device.kernels);
    names.insert(device.name);
  }
  if (wanted.size() > 1) {
    throw UserError(
        fmt::format("ranks on {} in one process", fmt::join(names, " and ")),
        "LibTorch's libraries take one instruction set per process",
        "Use --transport mpi, where every rank is a process of its own, or the same for all");
  }
  if (wanted.empty() || *wanted.begin() == KernelSet::fastest) return;
  const LibraryNames library = library_names(*wanted.begin());
  setenv("ATEN_CPU_CAPABILITY", library.aten, 1);
  setenv("ONEDNN_MAX_CPU_ISA", library.onednn, 1);
  setenv("MKL_ENABLE_INSTRUCTIONS", library.mkl, 1);
}

FallbackRules FallbackRules::parse(const std::string& text) {
  FallbackRules rules;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto equals = part.rfind('=');
    const bool by_pattern = equals != std::string::npos;
    const std::string word = by_pattern ? part.substr(equals + 1) : part;
    const auto decision = find_value<Fallback>(word);
    if (!decision || equals == 0) {
      throw UserError(fmt::format("\"{}\" says nothing of a fallback", part),
                      "expected deny, warn or allow, or PATTERN= before one of them",
                      "Write warn, or warn,layer_norm*=deny");
    }
    rules.rules_.push_back({by_pattern ? part.substr(0, equals) : "*", *decision});
  }
  return rules;
}

Fallback FallbackRules::decision_for(const std::string& name) const {
  Fallback decision = Fallback::warn;
  for (const Rule& rule : rules_) {
    if (fits(rule.pattern, name)) decision = rule.decision;
  }
  return decision;
}

bool fits(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace heteroperf
