// The independent witness of the operation count. LibTorch's dispatcher reports every operator that
// is called; a fixed list of rules says how many operations a call of each has. A run compares the
// sum with the count that it claims from the model graph. The rules know nothing of the graph: they
// look at the tensors of the call alone.
#include "runners/engine/probe/operation_observer.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <memory>

#include "metrics/base/error.hpp"

#ifndef NDEBUG
#error "LibTorch is built with NDEBUG: without it RecordFunction has another layout"
#endif

namespace heteroperf {
namespace {

using Inputs = c10::ArrayRef<c10::IValue>;

/// The size of one dimension.
std::uint64_t extent(const at::Tensor& tensor, std::int64_t dim) {
  return static_cast<std::uint64_t>(tensor.size(dim));
}

/// {…, m, k} · {…, k, n} with equal leading extents.
Ops product(const at::Tensor& a, const at::Tensor& b) {
  const auto elements = static_cast<std::uint64_t>(a.numel());
  return Ops(2) * elements * extent(b, b.dim() - 1);
}

Ops product_of_first(Inputs inputs) {
  return product(inputs.at(0).toTensor(), inputs.at(1).toTensor());
}
Ops product_behind_sum(Inputs inputs) {
  return product(inputs.at(1).toTensor(), inputs.at(2).toTensor());
}

/// x {…, k} and a weight {n, k}, not transposed.
Ops linear(Inputs inputs) {
  const auto elements = static_cast<std::uint64_t>(inputs.at(0).toTensor().numel());
  return Ops(2) * elements * extent(inputs.at(1).toTensor(), 0);
}

/// Multiply-adds behind one output element of a convolution, times 2.
Ops per_output_of(const at::Tensor& weight) {
  return Ops(2) * (static_cast<std::uint64_t>(weight.numel()) / extent(weight, 0));
}
Ops convolution(Inputs inputs) { return per_output_of(inputs.at(1).toTensor()); }

Ops own_convolution(Inputs inputs) {
  const at::Tensor& result = inputs.at(1).toTensor();
  return per_output_of(inputs.at(0).toTensor()) * static_cast<std::uint64_t>(result.numel());
}

Ops convolution_backward(Inputs inputs) {
  const at::Tensor& gradient = inputs.at(0).toTensor();
  const auto mask = inputs.back().toBoolList();
  const std::uint64_t products = (mask.get(0) ? 1U : 0U) + (mask.get(1) ? 1U : 0U);
  return per_output_of(inputs.at(2).toTensor()) * static_cast<std::uint64_t>(gradient.numel()) *
         products;
}

/// Scores Q Kᵀ and their product with V; T²/2 pairs when causal. Query, key and value stand from
/// input `first` on, behind the gradient where there is one; the causal flag is input `causal`. A
/// backward pass has twice the products.
template <std::size_t first, std::size_t causal>
Ops attention(Inputs inputs) {
  const at::Tensor &query = inputs.at(first).toTensor(), &key = inputs.at(first + 1).toTensor();
  const std::uint64_t width = extent(query, 3) + extent(inputs.at(first + 2).toTensor(), 3);
  const Ops full =
      Ops(2) * extent(query, 0) * extent(query, 1) * extent(query, 2) * extent(key, 2) * width;
  const Ops forward = inputs.at(causal).toBool() ? full / 2 : full;
  return first == 0 ? forward : 2 * forward;
}

/// Counts the operations of one call of a LibTorch operator in the `strict` convention: 2 per
/// multiply-add, tensor operations alone. A causal mask halves the pairs; attention's backward pass
/// has four products.
struct OperationRule {
  std::string_view name;  ///< without overload: "aten::mm"
  Ops (*count)(Inputs inputs);
  bool per_output = false;  ///< multiply by the elements of the (first) output
};

constexpr std::array<OperationRule, 25> rules{{
    {"aten::mm", product_of_first},
    {"aten::bmm", product_of_first},
    {"aten::addmm", product_behind_sum},
    {"aten::addmm_", product_behind_sum},
    {"aten::_addmm_activation", product_behind_sum},
    {"aten::baddbmm", product_behind_sum},
    {"aten::baddbmm_", product_behind_sum},
    {"mkldnn::_linear_pointwise", linear},
    {"aten::conv2d", convolution, true},
    {"aten::convolution", convolution, true},
    {"aten::_convolution", convolution, true},
    {"aten::convolution_overrideable", convolution, true},
    {"aten::mkldnn_convolution", convolution, true},
    {"aten::thnn_conv2d", convolution, true},
    {"aten::convolution_backward", convolution_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention<0, 4>},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention<1, 7>},
    {"aten::_scaled_dot_product_flash_attention", attention<0, 4>},
    {"aten::_scaled_dot_product_flash_attention_backward", attention<1, 11>},
    {"aten::_scaled_dot_product_efficient_attention", attention<0, 6>},
    {"aten::_scaled_dot_product_efficient_attention_backward", attention<1, 11>},
    // product_into() reports this, whichever way it takes.
    {"heteroperf::product", product_of_first},
    // A pass of our own convolution: weights, and the result or its gradient.
    {"heteroperf::convolution", own_convolution},
    // Our own attention reports these, and device_attention() where it writes the products out.
    {"heteroperf::attention", attention<0, 3>},
    {"heteroperf::attention_backward", attention<1, 4>},
}};

/// Parts of names that suggest a tensor operation, and parts of names that only look so.
constexpr std::array<std::string_view, 6> suspicious{"matmul", "linear",    "einsum",
                                                     "conv",   "attention", "dot"};
constexpr std::array<std::string_view, 2> innocent{"upsample", "convert"};

// "addmm", "_scaled_mm", "mm_", "addmv", but not "lgamma" or "cummax".
bool has_product_word(std::string_view name) {
  for (const std::string_view word : {"mm", "mv"}) {
    for (std::size_t at = name.find(word); at != std::string_view::npos;
         at = name.find(word, at + 1)) {
      if (at + 2 == name.size() || name[at + 2] == '_') return true;
    }
  }
  return false;
}

}  // namespace

bool looks_like_tensor_operation(std::string_view name) {
  if (name.rfind("heteroperf::", 0) == 0) return true;
  const auto in_name = [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  if (std::ranges::any_of(innocent, in_name)) return false;
  return std::ranges::any_of(suspicious, in_name) || has_product_word(name);
}

namespace {

thread_local OperationObserver* active_observer = nullptr;

}  // namespace

/// The notes that the start of a call leaves for its end.
struct OperationObserver::Call final : at::ObserverContext {
  const OperationRule* rule = nullptr;
  Ops ops;                         ///< the call's, or per output element
  std::uint64_t calls_before = 0;  ///< tells whether anything inside a suspect counted
};

std::unique_ptr<at::ObserverContext> OperationObserver::start(const at::RecordFunction& call) {
  OperationObserver* observer = active_observer;
  if (observer == nullptr || observer->counted_depth_ > 0) return nullptr;
  const auto rule = std::ranges::find(rules, call.name(), &OperationRule::name);
  if (rule == rules.end() && !looks_like_tensor_operation(call.name())) return nullptr;
  auto context = std::make_unique<Call>();
  context->calls_before = observer->calls_;
  if (rule != rules.end()) {
    context->rule = &*rule;
    // Counted before the depth grows, so that a throwing rule leaves it right.
    context->ops = rule->count(call.inputs());
    ++observer->counted_depth_;
  }
  return context;
}

void OperationObserver::end(const at::RecordFunction& call, at::ObserverContext* opaque) {
  auto* context = static_cast<Call*>(opaque);
  OperationObserver* observer = active_observer;
  if (context == nullptr || observer == nullptr) return;
  if (context->rule == nullptr) {
    if (observer->calls_ == context->calls_before) observer->unknown_.insert(call.name());
    return;
  }
  --observer->counted_depth_;
  ++observer->calls_;
  if (context->rule->per_output) {
    const at::Tensor& output = call.outputs().at(0).toTensor();
    context->ops = context->ops * static_cast<std::uint64_t>(output.numel());
  }
  observer->executed_ += context->ops;
}

OperationObserver::OperationObserver() {
  HETEROPERF_EXPECT(active_observer == nullptr);
  active_observer = this;
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&OperationObserver::start, &OperationObserver::end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

OperationObserver::~OperationObserver() {
  at::removeCallback(callback_);
  active_observer = nullptr;
}

ObservedOperations OperationObserver::observed() const {
  return {executed_, calls_, {unknown_.begin(), unknown_.end()}};
}

}  // namespace heteroperf
