// The independent witness of the operation count. LibTorch's dispatcher reports every operator that
// is called; a fixed list of rules says how many operations a call of each has. A run compares the
// sum with the count that it claims from the model graph. The rules know nothing of the graph: they
// look at the tensors of the call alone.
#include "runners/engine/probe/operation_observer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

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

Ops convolution_backward(Inputs inputs) {
  const at::Tensor& gradient = inputs.at(0).toTensor();
  const auto mask = inputs.back().toBoolList();
  const std::uint64_t products = (mask.get(0) ? 1U : 0U) + (mask.get(1) ? 1U : 0U);
  return per_output_of(inputs.at(2).toTensor()) * static_cast<std::uint64_t>(gradient.numel()) *
         products;
}

/// Scores Q Kᵀ and their product with V; T²/2 pairs when causal.
Ops attention_products(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       bool causal) {
  const std::uint64_t width = extent(query, 3) + extent(value, 3);
  const Ops full =
      Ops(2) * extent(query, 0) * extent(query, 1) * extent(query, 2) * extent(key, 2) * width;
  return causal ? full / 2 : full;
}
/// Query, key and value stand from input `first` on, behind the gradient where there is one; the
/// causal flag is input `causal`. A backward pass has twice the products.
template <std::size_t first, std::size_t causal>
Ops attention(Inputs inputs) {
  const Ops forward =
      attention_products(inputs.at(first).toTensor(), inputs.at(first + 1).toTensor(),
                         inputs.at(first + 2).toTensor(), inputs.at(causal).toBool());
  return first == 0 ? forward : 2 * forward;
}

constexpr auto per_output = OperationRule::Per::output_element;
constexpr std::array<OperationRule, 23> rules{{
    {"aten::mm", product_of_first},
    {"aten::bmm", product_of_first},
    {"aten::addmm", product_behind_sum},
    {"aten::addmm_", product_behind_sum},
    {"aten::_addmm_activation", product_behind_sum},
    {"aten::baddbmm", product_behind_sum},
    {"aten::baddbmm_", product_behind_sum},
    {"mkldnn::_linear_pointwise", linear},
    {"aten::conv2d", convolution, per_output},
    {"aten::convolution", convolution, per_output},
    {"aten::_convolution", convolution, per_output},
    {"aten::convolution_overrideable", convolution, per_output},
    {"aten::mkldnn_convolution", convolution, per_output},
    {"aten::thnn_conv2d", convolution, per_output},
    {"aten::convolution_backward", convolution_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention<0, 4>},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention<1, 7>},
    {"aten::_scaled_dot_product_flash_attention", attention<0, 4>},
    {"aten::_scaled_dot_product_flash_attention_backward", attention<1, 11>},
    {"aten::_scaled_dot_product_efficient_attention", attention<0, 6>},
    {"aten::_scaled_dot_product_efficient_attention_backward", attention<1, 11>},
    // device_attention() reports these where it writes the products out.
    {"heteroperf::attention", attention<0, 3>},
    {"heteroperf::attention_backward", attention<1, 4>},
}};

/// Parts of names that suggest a tensor operation, and parts of names that only look so.
constexpr std::array<std::string_view, 6> suspicious{"matmul", "linear",    "einsum",
                                                     "conv",   "attention", "dot"};
constexpr std::array<std::string_view, 2> innocent{"upsample", "convert"};

bool contains(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

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

const OperationRule* find_operation_rule(std::string_view name) {
  const auto match = std::find_if(rules.begin(), rules.end(),
                                  [&](const OperationRule& rule) { return rule.name == name; });
  return match == rules.end() ? nullptr : &*match;
}

bool looks_like_tensor_operation(std::string_view name) {
  if (name.rfind("heteroperf::", 0) == 0) return true;
  const auto in_name = [&](std::string_view part) { return contains(name, part); };
  if (std::any_of(innocent.begin(), innocent.end(), in_name)) return false;
  return std::any_of(suspicious.begin(), suspicious.end(), in_name) || has_product_word(name);
}

namespace {

thread_local OperationObserver* active_observer = nullptr;

/// The notes that the start of a call leaves for its end.
struct ObservedCall final : at::ObserverContext {
  const OperationRule* rule = nullptr;
  Ops ops;                         ///< the call's, or per output element
  std::uint64_t calls_before = 0;  ///< tells whether anything inside a suspect counted
};

}  // namespace

struct ObserverCalls {
  /// Looks at a call that begins. Calls inside a counted one are passed over.
  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& call) {
    OperationObserver* observer = active_observer;
    if (observer == nullptr || observer->counted_depth_ > 0) return nullptr;
    const OperationRule* rule = find_operation_rule(call.name());
    if (rule == nullptr && !looks_like_tensor_operation(call.name())) return nullptr;
    auto context = std::make_unique<ObservedCall>();
    context->rule = rule;
    context->calls_before = observer->calls_;
    if (rule != nullptr) {
      // Counted before the depth grows, so that a throwing rule leaves it right.
      context->ops = rule->count(call.inputs());
      ++observer->counted_depth_;
    }
    return context;
  }

  /// A suspect inside which nothing was counted is an operator that the list lacks.
  static void end(const at::RecordFunction& call, at::ObserverContext* opaque) {
    auto* context = static_cast<ObservedCall*>(opaque);
    OperationObserver* observer = active_observer;
    if (context == nullptr || observer == nullptr) return;
    if (context->rule == nullptr) {
      if (observer->calls_ == context->calls_before) observer->unknown_.insert(call.name());
      return;
    }
    --observer->counted_depth_;
    ++observer->calls_;
    const bool per_output = context->rule->per == OperationRule::Per::output_element;
    observer->executed_ += per_output ? context->ops * output_elements(call) : context->ops;
  }

  static std::uint64_t output_elements(const at::RecordFunction& call) {
    return static_cast<std::uint64_t>(call.outputs().at(0).toTensor().numel());
  }
};

OperationObserver::OperationObserver() {
  HETEROPERF_EXPECT(active_observer == nullptr);
  active_observer = this;
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&ObserverCalls::start, &ObserverCalls::end)
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
