#include "metrics/convention.hpp"

#include <fmt/format.h>

#include <vector>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

struct Row {
  Convention convention;
  const char* name;
  const char* description;
};

constexpr Row table[] = {
    {Convention::strict, "strict",
     "2 per multiply-add of matmul, convolution and attention; true backward; causal T^2/2 pairs"},
    {Convention::aiperf, "aiperf",
     "the AIPerf profiler's formulas, bit for bit; image classifiers without attention"},
    {Convention::mac, "mac",
     "multiply-adds of the forward pass (matmul, convolution, full attention); no backward"},
    {Convention::palm, "palm",
     "6N + 12LHQT per token (PaLM, appendix B), full attention; language models"},
    {Convention::megatron_full, "megatron-full",
     "Megatron-LM before March 2025: 3 x forward matmuls, full attention; language models"},
    {Convention::megatron_causal, "megatron-causal",
     "Megatron-LM since March 2025: 3 x forward matmuls, half attention; language models"},
};

const Row& row(Convention convention) {
  for (const Row& entry : table) {
    if (entry.convention == convention) return entry;
  }
  HETEROPERF_EXPECT(!"a convention without a row");
  return table[0];
}

}  // namespace

const char* to_string(Convention convention) { return row(convention).name; }
const char* description(Convention convention) { return row(convention).description; }

Convention parse_convention(const std::string& name) {
  std::vector<std::string> names;
  for (const Row& entry : table) {
    if (name == entry.name) return entry.convention;
    names.emplace_back(entry.name);
  }
  const std::string near = nearest_name(name, names);
  throw UserError(fmt::format("there is no counting convention '{}'", name),
                  "strict, aiperf, mac, palm, megatron-full, megatron-causal",
                  near.empty() ? "" : fmt::format("Did you mean '{}'?", near));
}

}  // namespace heteroperf
