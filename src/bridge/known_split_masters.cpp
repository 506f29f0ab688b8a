// Questions about split masters: LibTorch's operators know how a float rounds to bfloat16, the
// float itself must come back, and a step on the halves is one on the float.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/kept_lists.h"
#include "bridge/known_answers.h"
#include "kernels/cuda_library.h"
#include "kernels/split_master.h"

namespace mezzo::bridge {
namespace {

/// Steps the row, whose master is `masters`, down its gradient.
void ask_step(const kernels::cuda::Interface& cuda, const at::Tensor& masters, kernels::StepRow row,
              const at::Tensor& weight, Answers& answers) {
  constexpr double kRate = 0.1;
  const at::Device device = masters.device();
  const kernels::cuda::Stream stream = current_stream(device);
  const at::Tensor grad = known_numbers(masters.sizes(), 2, at::kFloat, device);
  const at::Tensor counter = at::zeros({1}, grad.options().dtype(at::kLong));
  const at::Tensor running = at::zeros({1}, grad.options().dtype(at::kDouble));
  row.grad = grad.const_data_ptr();
  row.grad_dtype = DType::kFloat32;
  const kernels::cuda::RowState state{counter.mutable_data_ptr<std::int64_t>(),
                                      running.mutable_data_ptr<double>()};
  const kernels::SgdRecipe recipe{.lr = kRate};
  kernels::check_cuda(
      cuda, cuda.sgd(kept_list(cuda, device, stream), &row, &state, 1, &recipe, 1, {}, stream),
      "sgd");
  const Answered joined(masters.numel(), at::kFloat, device);
  kernels::check_cuda(
      cuda,
      cuda.join_masters(&row, joined.tensor().mutable_data_ptr<float>(), index_of(device), stream),
      "join");
  joined.expect(answers, "step: master", masters.sub(grad, kRate), tolerance_of(at::kFloat));
  answers.expect("step: weight", weight, joined.tensor().to(at::kBFloat16), 0);
}

}  // namespace

void ask_split_masters(const kernels::cuda::Interface& cuda, const at::Device& device,
                       Answers& answers) {
  constexpr std::int64_t kCount = 1000;
  const int index = index_of(device);
  const kernels::cuda::Stream stream = current_stream(device);
  // Whole numbers from 2^8 on that lie between two of bfloat16's: ties, to an even one and to an
  // odd.
  const at::Tensor ties =
      known_numbers({kCount}, 0, at::kFloat, device).mul_(60).round_().mul_(2).add_(257 + 128);
  const at::Tensor masters = at::cat({known_numbers({kCount}, 1, at::kFloat, device), ties});
  const std::int64_t count = masters.numel();
  const Answered weight(count, at::kBFloat16, device);
  const Answered remainder(count, at::kShort, device);
  const Answered tie(kernels::words_of_ties(count), at::kInt, device);
  const Answered joined(count, at::kFloat, device);
  kernels::StepRow row;
  row.param = weight.tensor().mutable_data_ptr();
  row.param_dtype = DType::kBFloat16;
  row.remainder = remainder.tensor().mutable_data_ptr();
  row.ties = static_cast<std::uint32_t*>(tie.tensor().mutable_data_ptr());
  row.count = count;
  kernels::check_cuda(
      cuda, cuda.split_masters(&row, masters.const_data_ptr<float>(), index, stream), "split");
  kernels::check_cuda(
      cuda, cuda.join_masters(&row, joined.tensor().mutable_data_ptr<float>(), index, stream),
      "join");
  weight.expect(answers, "split: weight", masters.to(at::kBFloat16), 0);
  joined.expect(answers, "join: master", masters, 0);
  ask_step(cuda, masters, row, weight.tensor(), answers);
}

}  // namespace mezzo::bridge
