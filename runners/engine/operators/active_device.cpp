// The device that a thread's operators compute on. Every kernel is taken from its table, and every
// product asks it how it is to be made, so that one program can hold ranks of unlike devices.
//
// A device that lacks a kernel has a null entry in its table. The reference then runs on the host
// in its place: the tensors are copied there, and those that the kernel writes are copied back. So
// a new device trains from its first kernel on, and what the missing ones cost is counted.
//
// An emulated chip rounds the operands of its products and adds terms in an order of its own. The
// order is a permutation that depends on the drawn number and the count of terms alone, so a run
// can be repeated.
#include "runners/engine/operators/active_device.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

const DeviceKernels* loaded_kernels = nullptr;

thread_local ActiveDevice* innermost = nullptr;
thread_local std::unique_ptr<ActiveDevice> thread_device;

/// The build of the kernels that the device asks for. Throws UserError where this processor lacks
/// the instructions.
KernelVariant variant_for(const RankDevice& device) {
  const std::vector<KernelVariant> variants = kernel_variants();
  if (!device.limits_libraries()) return variants.front();
  for (const KernelVariant& variant : variants) {
    if (std::strcmp(variant.name, to_string(device.kernels)) == 0) return variant;
  }
  throw UserError(fmt::format("no device {}", device.name),
                  fmt::format("this processor lacks {}", to_string(device.kernels)),
                  fmt::format("Its kernels are those of {}", variants.front().name));
}

/// Every member of a kernel table is a pointer to a function, in the order of kernel_names.
void take_away(KernelTable& table, std::size_t index) {
  static_assert(sizeof(KernelTable) == std::size(kernel_names) * sizeof(void (*)()));
  auto* const entry = reinterpret_cast<char*>(&table) + index * sizeof(void (*)());
  std::memset(entry, 0, sizeof(void (*)()));
}

/// Rounds a float32 to `bits` bits behind the point, to nearest, ties to even. NaN and infinity
/// stay.
float round_mantissa(float value, int bits) {
  const auto pattern = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t exponent = 0x7f800000u;
  if ((pattern & exponent) == exponent) return value;
  const int dropped = 23 - bits;
  const std::uint32_t half = (1u << (dropped - 1)) - 1 + ((pattern >> dropped) & 1u);
  return std::bit_cast<float>((pattern + half) & ~((1u << dropped) - 1));
}

}  // namespace

// The kernels are compiled once per instruction set, and the tables of all builds are in the
// program.
std::vector<KernelVariant> kernel_variants() {
  std::vector<KernelVariant> runnable;
#if defined(__x86_64__)
  if (has_instructions(KernelSet::avx512)) {
    runnable.push_back({"avx512", avx512_kernels, avx512_products});
  }
  if (has_instructions(KernelSet::avx2)) {
    runnable.push_back({"avx2", avx2_kernels, avx2_products});
  }
#endif
  runnable.push_back({"base", baseline_kernels, baseline_products});
  return runnable;
}

void use_device_kernels(const DeviceKernels& kernels) { loaded_kernels = &kernels; }

const DeviceKernels& device_kernels() {
  HETEROPERF_EXPECT(loaded_kernels != nullptr);
  return *loaded_kernels;
}

namespace {

/// The names by which a device may lack operators.
std::vector<std::string> operator_names() {
  std::vector<std::string> names(std::begin(kernel_names), std::end(kernel_names));
  for (const char* product : value_names(ProductOperator())) names.emplace_back(product);
  return names;
}
/// A pattern that fits no operator's name would do nothing, and nobody would know.
void require_operators(const std::string& pattern, const std::string& where,
                       ProblemList& problems) {
  const std::vector<std::string> names = operator_names();
  if (std::ranges::any_of(names, [&](const std::string& name) { return fits(pattern, name); })) {
    return;
  }
  problems.add(where, "no operator has this name",
               suggest_name(pattern, names, fmt::format("They are {}", fmt::join(names, ", "))));
}

}  // namespace

ActiveDevice::ActiveDevice(const RankDevice& device, FallbackRules rules)
    : device_(device), rules_(std::move(rules)) {
  const KernelVariant variant = variant_for(device);
  const bool exact = device.kernels == KernelSet::exact;
  products_ = &variant.products();
  instruction_set_ = exact ? to_string(KernelSet::exact) : variant.name;
  for (const Element element : {Element::float32, Element::float64, Element::bfloat16}) {
    table_of(element) = device.on_gpu ? device_kernels().table(element)
                        : exact       ? reference_kernels(element)
                                      : variant.kernels(element);
  }
  making_.fill(exact ? Making::exact : Making::native);
  ProblemList problems;
  for (const FallbackRules::Rule& rule : rules_.rules()) {
    require_operators(rule.pattern,
                      fmt::format("--fallback {}={}", rule.pattern, to_string(rule.decision)),
                      problems);
  }
  if (device.chip) {
    calls_left_ = device.chip->lost_after_calls;
    for (const std::string& pattern : device.chip->lacks) {
      require_operators(pattern, fmt::format("{} lacks \"{}\"", device.name, pattern), problems);
      replace(pattern);
    }
  }
  problems.throw_if_any();
}

bool ActiveDevice::replace(const std::string& pattern) {
  bool is_known = false;
  for (std::size_t i = 0; i < std::size(kernel_names); ++i) {
    if (!fits(pattern, kernel_names[i])) continue;
    is_known = true;
    for (KernelTable& table : tables_) take_away(table, i);
  }
  for (std::size_t i = 0; i < making_.size(); ++i) {
    if (!fits(pattern, to_string(static_cast<ProductOperator>(i)))) continue;
    is_known = true;
    making_[i] = Making::substituted;
  }
  return is_known;
}

const KernelTable& ActiveDevice::kernels(Element element, bool on_gpu) {
  if (calls_left_ > 0 && --calls_left_ == 0) {
    throw SystemError(fmt::format("{} disappeared", device_.name),
                      "the device answers no more (lost_after_calls)",
                      "Resume from the last checkpoint on another device", ErrorKind::run_failed);
  }
  if (on_gpu == device_.on_gpu) return table_of(element);
  // A rank on a GPU computes some small things on the host.
  return on_gpu ? device_kernels().table(element) : kernel_variants().front().kernels(element);
}

std::optional<at::Tensor> ActiveDevice::sum_order(std::int64_t terms) const {
  if (!device_.chip || device_.chip->sum_order == 0 || terms < 2) return std::nullopt;
  at::Tensor order = at::empty({terms}, at::TensorOptions().dtype(at::kLong));
  auto* const index = order.data_ptr<std::int64_t>();
  std::iota(index, index + terms, std::int64_t{0});
  RandomStream draw(random_bits(device_.chip->sum_order, terms));
  for (std::int64_t i = terms - 1; i > 0; --i) {
    std::swap(index[i], index[draw.below(static_cast<std::uint64_t>(i) + 1)]);
  }
  return order;
}

void use_device(const RankDevice& device, FallbackRules rules) {
  thread_device = std::make_unique<ActiveDevice>(device, std::move(rules));
}

ActiveDevice& active_device() {
  if (innermost != nullptr) return *innermost;
  if (thread_device != nullptr) return *thread_device;
  static ActiveDevice fastest{RankDevice()};
  return fastest;
}

DeviceScope::DeviceScope(ActiveDevice& device) : before_(innermost) { innermost = &device; }
DeviceScope::~DeviceScope() { innermost = before_; }

Substitute::Substitute(ActiveDevice& device, const std::string& name)
    : count_(device.substitutions_[name]) {
  if (count_.calls++ > 0) return;
  const Fallback decision = device.rules_.decision_for(name);
  if (decision == Fallback::deny) {
    throw UserError(fmt::format("{} has no {}", device.device_.name, name),
                    "--fallback denies that the host computes it",
                    "Use --fallback warn, or another device");
  }
  if (decision == Fallback::warn) {
    fmt::print(stderr, "heteroperf: warning: {} has no {}: the host's reference computes it\n",
               device.device_.name, name);
  }
}

at::Tensor Substitute::copy(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) return tensor;
  if (!begin_s_) {
    // Work that was queued before is no part of the substitution.
    if (tensor.is_cuda()) device_kernels().wait(tensor.device().index());
    begin_s_ = monotonic_s();
  }
  at::Tensor here =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  here.copy_(tensor);
  count_.bytes += static_cast<std::uint64_t>(tensor.nbytes());
  if (written) written_.push_back({here, tensor});
  return here;
}

void Substitute::copy_back() {
  for (const Written& tensor : written_) {
    tensor.there.copy_(tensor.here);
    count_.bytes += static_cast<std::uint64_t>(tensor.here.nbytes());
  }
  count_.seconds += monotonic_s() - begin_s_.value_or(monotonic_s());
}

at::Tensor Substitute::give(const at::Tensor& result, at::Device device) {
  const at::Tensor there = result.to(device);
  count_.bytes += static_cast<std::uint64_t>(result.nbytes());
  count_.seconds += monotonic_s() - begin_s_.value_or(monotonic_s());
  return there;
}

at::Tensor as_operand(const at::Tensor& tensor) {
  const OperandFormat format = active_device().operand_format();
  if (format == OperandFormat::stored || !tensor.defined()) return tensor;
  if (format == OperandFormat::bf16) return tensor.to(at::kBFloat16).to(tensor.scalar_type());
  if (format == OperandFormat::fp16) return tensor.to(at::kHalf).to(tensor.scalar_type());
  if (tensor.scalar_type() == at::kBFloat16) return tensor;
  constexpr int tf32_bits = 10;
  const at::Tensor rounded = tensor.to(at::kFloat, false, true);
  auto* const values = rounded.data_ptr<float>();
  std::transform(values, values + rounded.numel(), values,
                 [](float value) { return round_mantissa(value, tf32_bits); });
  return rounded.to(tensor.scalar_type());
}

}  // namespace heteroperf
