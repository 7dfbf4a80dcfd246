#include "runners/engine/probe/operation_observer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>

#include "metrics/base/error.hpp"
#include "runners/engine/probe/operation_rules.hpp"

#ifndef NDEBUG
#error "LibTorch is built with NDEBUG: without it RecordFunction has another layout"
#endif

namespace heteroperf {
namespace {

thread_local OperationObserver* active_observer = nullptr;

/// What the end of a call needs from its start.
struct ObservedCall final : at::ObserverContext {
  const OperationRule* rule = nullptr;
  Ops ops;                         ///< of the call or per output element
  std::uint64_t calls_before = 0;  ///< of suspects: did anything inside count?
};

}  // namespace

struct ObserverCalls {
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
