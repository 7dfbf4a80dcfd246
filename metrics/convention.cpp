#include "metrics/convention.hpp"

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

struct Row {
  Convention value;
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

}  // namespace

const char* to_string(Convention convention) { return name_of(table, convention); }
const char* description(Convention convention) { return row_of(table, convention).description; }

Convention parse_convention(const std::string& name) {
  return parse_name(table, "counting convention", name);
}

}  // namespace heteroperf
