#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heteroperf {

/// The kernels that a rank on the host computes with: those of an instruction set, or `exact`, the
/// reference, which computes in float64.
enum class KernelSet { fastest, base, avx2, avx512, exact };
constexpr std::array<const char*, 5> value_names(KernelSet) {
  return {"fastest", "base", "avx2", "avx512", "exact"};
}
/// True where this processor has the instructions.
bool has_instructions(KernelSet set);

/// The format that a product's operands are rounded to before they are multiplied.
enum class OperandFormat { stored, tf32, bf16, fp16 };
constexpr std::array<const char*, 4> value_names(OperandFormat) {
  return {"stored", "tf32", "bf16", "fp16"};
}

/// The numerics of another chip, which the host computes with. Only its times are the host's.
struct EmulatedChip {
  std::string name = {};
  /// Those it can hold numbers in: "fp32", "bf16", "fp64".
  std::vector<std::string> precisions = {};
  OperandFormat products = OperandFormat::stored;
  /// Above 0: the terms of products, convolutions and sums over rows are added in an order that is
  /// drawn from this number.
  std::uint64_t sum_order = 0;
  std::vector<std::string> lacks = {};  ///< patterns of operators' names, * for any letters
  std::uint64_t memory_bytes = 0;       ///< 0: the host's
  std::uint64_t lost_after_calls = 0;   ///< above 0: the device disappears after so many kernels
  friend bool operator==(const EmulatedChip&, const EmulatedChip&) = default;
};

/// The device that a rank computes on, as `--device` names it.
struct RankDevice {
  std::string name = "cpu";
  bool on_gpu = false;
  KernelSet kernels = KernelSet::fastest;
  std::optional<EmulatedChip> chip = {};

  /// This host's best instruction set and its own numerics.
  bool is_plain() const { return kernels == KernelSet::fastest && !chip; }
  /// True where LibTorch's own code must be held to the instruction set too.
  bool limits_libraries() const {
    return kernels != KernelSet::fastest && kernels != KernelSet::exact;
  }
  /// True for a device that has the number format "fp32", "bf16" or "fp64".
  bool has_precision(const std::string& precision) const;
};

/// The names that a device may have: "cpu", …, "emulated:NAME".
std::vector<std::string> device_names();
/// The names of the shipped chips: what `emulated:` may be followed by besides a file.
std::vector<std::string> shipped_chip_names();
/// Reads a device by its name, and the file of an emulated chip. Throws UserError with everything
/// wrong in the file, and for a chip that lacks what nothing can take the place of.
RankDevice read_device(const std::string& name);
/// Reads a chip's file; `where` names it.
EmulatedChip parse_chip(const std::string& text, const std::string& where);

/// Holds the libraries in LibTorch (ATen, oneDNN, MKL) to the instruction set of the devices of
/// this process, which must be called before LibTorch is loaded: they look at the environment once.
/// Throws UserError where devices of one process want unlike instruction sets.
void limit_libraries(const std::vector<RankDevice>& devices);

/// Says what is done where a device lacks an operator.
enum class Fallback { deny, warn, allow };
constexpr std::array<const char*, 3> value_names(Fallback) { return {"deny", "warn", "allow"}; }

/// A decision for all operators, and others for some by pattern: "warn,softmax*=deny". The last
/// that fits an operator's name holds.
class FallbackRules {
 public:
  FallbackRules() = default;
  /// Throws UserError that names the part that is wrong.
  static FallbackRules parse(const std::string& text);
  Fallback decision_for(const std::string& name) const;

  /// A rule for operators whose names fit the pattern. The last rule that fits holds.
  struct Rule {
    std::string pattern;
    Fallback decision;
  };
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

/// The work of the host's reference in place of an operator that a device lacks.
struct SubstitutionCount {
  std::uint64_t calls = 0, bytes = 0;  ///< bytes copied to the host and back
  double seconds = 0;
};
using Substitutions = std::map<std::string, SubstitutionCount>;  ///< by the operator's name

/// True where the pattern, in which * stands for any letters, fits the whole name.
bool fits(const std::string& pattern, const std::string& name);

}  // namespace heteroperf
