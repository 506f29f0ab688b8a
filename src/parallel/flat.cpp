#include "parallel/flat.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace mezzo::parallel {

std::vector<std::vector<std::size_t>> by_type(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      const at::Tensor& first = tensors[group.front()];
      return first.scalar_type() == tensors[i].scalar_type() &&
             first.device() == tensors[i].device();
    });
    if (same != groups.end()) {
      same->push_back(i);
    } else {
      groups.push_back({i});
    }
  }
  return groups;
}

at::Tensor flatten_chosen(const std::vector<at::Tensor>& tensors,
                          const std::vector<std::size_t>& chosen) {
  return flatten_chosen(tensors, chosen, tensors[chosen.front()].options(), 0);
}

at::Tensor flatten_chosen(const std::vector<at::Tensor>& tensors,
                          const std::vector<std::size_t>& chosen, const at::TensorOptions& options,
                          std::int64_t extra) {
  std::int64_t elements = extra;
  for (std::size_t i : chosen) elements += tensors[i].numel();
  at::Tensor flat = at::zeros({elements}, options.requires_grad(false));
  std::int64_t at = 0;
  for (std::size_t i : chosen) {
    const std::int64_t count = tensors[i].numel();
    flat.narrow(0, at, count).view(tensors[i].sizes()).copy_(tensors[i].detach());
    at += count;
  }
  return flat;
}

void unflatten_chosen(const at::Tensor& flat, const std::vector<at::Tensor>& tensors,
                      const std::vector<std::size_t>& chosen) {
  std::int64_t at = 0;
  for (std::size_t i : chosen) {
    const std::int64_t count = tensors[i].numel();
    tensors[i].detach().copy_(flat.narrow(0, at, count).view(tensors[i].sizes()));
    at += count;
  }
}

}  // namespace mezzo::parallel
