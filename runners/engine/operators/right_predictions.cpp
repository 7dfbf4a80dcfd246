// Counts right predictions, where every rank has all classes and where each has some of them.
//
// With cut classes every rank finds its own best class. The ranks agree on the largest logit; those
// that have it name their class, the others one that does not exist, and the smallest name wins. So
// of equal logits the lowest class counts, as with whole rows.
#include "runners/engine/operators/right_predictions.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <limits>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

std::uint64_t count_equal(const at::Tensor& classes, const at::Tensor& targets) {
  const at::Tensor right = classes.eq(targets);
  return static_cast<std::uint64_t>(right.sum().item().toLong());
}

}  // namespace

std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets) {
  return count_equal(at::argmax(logits, -1), targets);
}

std::uint64_t count_right(const at::Tensor& logits, const at::Tensor& targets,
                          std::int64_t first_class, Communicator& group) {
  const at::Tensor best = at::argmax(logits, -1);
  const at::Tensor local = logits.gather(-1, best.unsqueeze(-1))
                               .squeeze(-1)
                               .contiguous()
                               .to(accumulation_type(logits.scalar_type()));
  const at::Tensor top = local.clone();
  all_reduce(group, top, Reduction::max);
  // Ranks below the top name a class that none has.
  const at::Tensor classes = best.add(first_class).contiguous();
  classes.masked_fill_(local.lt(top), std::numeric_limits<std::int64_t>::max());
  all_reduce(group, classes, Reduction::min);
  return count_equal(classes, targets);
}

}  // namespace heteroperf
