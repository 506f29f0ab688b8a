// Averages gradients over the ranks, where there are several.
#pragma once

#include <mezzo/parallel.h>

#include <functional>
#include <optional>

namespace examples::imagenet {

inline bool has_several_ranks() {
  return mezzo::parallel::is_initialized() && mezzo::parallel::world_size() > 1;
}

class Averaging {
 public:
  /// All ranks get rank 0's weights. `by_reducer`: after the backward pass, not during it.
  template <class Model>
  Averaging(const Model& model, bool by_reducer)
      : call_([model](const at::Tensor& x) { return model->forward(x); }) {
    if (!has_several_ranks()) return;
    if (by_reducer) {
      reducer_.emplace(model->parameters());
    } else {
      call_ = mezzo::parallel::DistributedDataParallel<Model>(model, {.delay_allreduce = true});
    }
  }

  /// The model's forward.
  at::Tensor operator()(const at::Tensor& images) const { return call_(images); }

  /// After a backward pass, before its gradients are looked at.
  void finish() {
    if (reducer_) reducer_->reduce();
  }

 private:
  std::function<at::Tensor(const at::Tensor&)> call_;
  std::optional<mezzo::parallel::Reducer> reducer_;
};

}  // namespace examples::imagenet
