#include "imagenet/train/meter.h"

#include <mezzo/process_group.h>
#include <torch/types.h>

#include <algorithm>

namespace examples::imagenet {

Meter::Meter(at::Device device) : sums_(torch::zeros({4}, device).to(at::kDouble)) {}

void Meter::add(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& labels) {
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t kGuesses = 5;
  const std::int64_t guesses = std::min(kGuesses, logits.size(1));
  const at::Tensor best = std::get<1>(logits.detach().topk(guesses, 1));
  const at::Tensor right = best.eq(labels.unsqueeze(1));
  const auto images = static_cast<double>(labels.size(0));
  sums_ += torch::stack({loss.detach().to(at::kDouble) * images,
                         right.select(1, 0).sum().to(at::kDouble), right.sum().to(at::kDouble),
                         torch::full({}, images, sums_.options())});
}

at::Tensor Meter::sums() const {
  at::Tensor all = sums_.clone();
  if (mezzo::parallel::is_initialized()) mezzo::parallel::world().all_reduce(all);
  return all.cpu();
}

void Meter::set_sums(const at::Tensor& sums) {
  sums_ = sums.to(sums_.device());
}

Figures Meter::figures() const {
  const at::Tensor all = sums();
  const auto* sum = all.const_data_ptr<double>();
  const double images = std::max(sum[3], 1.);
  return {sum[0] / images, sum[1] / images, sum[2] / images, sum[3]};
}

}  // namespace examples::imagenet
