// Questions about split masters: LibTorch's operators know how a float rounds to bfloat16, and the
// float itself must come back.
#include <ATen/ops/cat.h>

#include "bridge/device.h"
#include "bridge/device_index.h"
#include "bridge/known_answers.h"
#include "kernels/cuda_library.h"
#include "kernels/split_master.h"

namespace mezzo::bridge {

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
}

}  // namespace mezzo::bridge
