#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "runners/cluster/rank_device.hpp"
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/kernel_table.hpp"

namespace heteroperf {

/// Takes the kernels of the module for CUDA devices, once it is loaded. It is never unloaded.
void use_device_kernels(const DeviceKernels& kernels);
const DeviceKernels& device_kernels();

/// The operators that are no kernels of the table.
enum class ProductOperator { product, convolution, attention };
constexpr std::array<const char*, 3> value_names(ProductOperator) {
  return {"product", "convolution", "attention"};
}

/// The device that the operators of one rank compute with: the kernels and products of its device,
/// and the count of those that it lacks.
class ActiveDevice {
 public:
  /// Throws UserError for a chip or rules that name operators that there are not, or a device whose
  /// instruction set this processor has not.
  explicit ActiveDevice(const RankDevice& device, FallbackRules rules = {});

  /// The kernels for the host's memory or a GPU's. A null entry is a kernel that the device lacks.
  /// Throws SystemError{run_failed} when the device is lost.
  const KernelTable& kernels(Element element, bool on_gpu);
  /// Those of float32 products on the host.
  const ProductKernels& products() const { return *products_; }
  const char* instruction_set() const { return instruction_set_; }

  enum class Making { native, exact, substituted };
  Making making(ProductOperator op) const { return making_[static_cast<std::size_t>(op)]; }
  /// The host would make such a product in the same way.
  bool makes_as_host(ProductOperator op) const {
    return making(op) == Making::native && !product_fault_ &&
           (!device_.chip ||
            (device_.chip->products == OperandFormat::stored && device_.chip->sum_order == 0));
  }
  /// The format of operands on the way into a product.
  OperandFormat operand_format() const {
    return device_.chip ? device_.chip->products : OperandFormat::stored;
  }
  /// The order in which a sum's `terms` are added, as indices; none: as they stand.
  std::optional<at::Tensor> sum_order(std::int64_t terms) const;

  const RankDevice& device() const { return device_; }
  const Substitutions& substitutions() const { return substitutions_; }

  /// From now on the host's reference computes every operator whose name fits the pattern. False
  /// where no operator's name does.
  bool replace(const std::string& pattern);
  /// Another function takes a kernel's place: tests plant faults so.
  template <class Kernel>
  void plant(Element element, Kernel KernelTable::*kernel, Kernel function) {
    table_of(element).*kernel = function;
  }
  /// A function sees the operands and the result of every product, and gives what takes the
  /// result's place.
  using ProductFault = std::function<at::Tensor(ProductOperator, const at::Tensor& a,
                                                const at::Tensor& b, const at::Tensor& result)>;
  void plant(ProductFault fault) { product_fault_ = std::move(fault); }
  const ProductFault& product_fault() const { return product_fault_; }

 private:
  friend class Substitute;

  KernelTable& table_of(Element element) { return tables_[static_cast<std::size_t>(element)]; }

  RankDevice device_;
  FallbackRules rules_;
  std::array<KernelTable, 3> tables_{};
  const ProductKernels* products_ = nullptr;
  const char* instruction_set_ = "";
  std::array<Making, 3> making_{};
  std::uint64_t calls_left_ = 0;  ///< 0: never lost
  Substitutions substitutions_;
  ProductFault product_fault_;
};

/// The calling thread computes on this device from now on. Throws UserError as ActiveDevice does.
void use_device(const RankDevice& device, FallbackRules rules = {});

/// The device of the calling thread: that of its innermost DeviceScope, else the one that
/// use_device() gave, else the host's fastest.
ActiveDevice& active_device();

/// The calling thread's operators compute on this device while the scope stands.
class DeviceScope {
 public:
  explicit DeviceScope(ActiveDevice& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  ActiveDevice* before_;
};

/// One run of an operator that the device lacks, on copies in the host's memory. Its seconds are
/// those from its first copy to copy_back() or give(), its bytes all that is copied.
class Substitute {
 public:
  /// Throws UserError where the rules deny it; warns of an operator's first one where they say so.
  Substitute(ActiveDevice& device, const std::string& name);

  /// A copy of the tensor, with its strides. A `written` one goes back.
  at::Tensor copy(const at::Tensor& tensor, bool written);
  void copy_back();
  /// A result that the host made, in the memory of the device; the run ends with it.
  at::Tensor give(const at::Tensor& result, at::Device device);

 private:
  struct Written {
    at::Tensor here, there;
  };
  SubstitutionCount& count_;
  std::optional<double> begin_s_;  ///< when the first copy began
  std::vector<Written> written_;
};

/// The operands as the device multiplies them: rounded to its format.
at::Tensor as_operand(const at::Tensor& tensor);

/// A product that the active device does not make as the host would: make(a, b) gets the operands
/// in the device's format, or in float64 on the host where the device is exact or lacks the
/// product. The result has a's type and device. An undefined b stays so.
template <class Make>
at::Tensor device_product(ProductOperator op, const at::Tensor& a, const at::Tensor& b,
                          const Make& make) {
  ActiveDevice& device = active_device();
  if (device.making(op) == ActiveDevice::Making::native) {
    const at::Tensor result = make(as_operand(a), as_operand(b));
    return device.product_fault() ? device.product_fault()(op, a, b, result) : result;
  }
  const auto exact = [&](const at::Tensor& left, const at::Tensor& right) {
    return make(left.to(at::kDouble), right.defined() ? right.to(at::kDouble) : right)
        .to(a.scalar_type());
  };
  if (device.making(op) == ActiveDevice::Making::exact) return exact(a, b);
  Substitute substitute(device, to_string(op));
  return substitute.give(exact(substitute.copy(a, false), substitute.copy(b, false)), a.device());
}

/// The name of a table's member: "layer_norm".
template <class Kernel>
const char* kernel_name(Kernel KernelTable::*kernel) {
  static const KernelTable table{};
  const auto* const first = reinterpret_cast<const char*>(&table);
  const auto offset = reinterpret_cast<const char*>(&(table.*kernel)) - first;
  return kernel_names[static_cast<std::size_t>(offset) / sizeof(Kernel)];
}

}  // namespace heteroperf
