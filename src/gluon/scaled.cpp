// init_trainer, scale_loss, unscale, and the scale that output operators take.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "core/autograd_node.h"
#include "core/scalar_type.h"
#include "gluon/trainer_state.h"
#include "mezzo/autocast.h"
#include "mezzo/gluon.h"

namespace mezzo::gluon {
namespace detail {
namespace {

struct LiveTrainers {
  std::mutex mutex;
  std::vector<TrainerState*> all;
};

LiveTrainers& live_trainers() {
  static LiveTrainers* const trainers = new LiveTrainers;  // trainers may outlive main
  return *trainers;
}

/// The leaves of the graph that `data` was computed by.
std::unordered_set<const c10::TensorImpl*> leaves_behind(const at::Tensor& data) {
  using torch::autograd::Node;
  std::unordered_set<const c10::TensorImpl*> leaves;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  const NodePointer start = torch::autograd::impl::gradient_edge(data).function;
  visit(start.get());
  while (!open.empty()) {
    Node& node = *open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node))
      leaves.insert(leaf->variable.unsafeGetTensorImpl());
    for (const auto& edge : node.next_edges()) visit(edge.function.get());
  }
  return leaves;
}

bool moves_one_of(const TrainerState& trainer,
                  const std::unordered_set<const c10::TensorImpl*>& leaves) {
  return std::ranges::any_of(trainer.replicas, [&](const NamedParameters& replica) {
    return std::ranges::any_of(replica.tensors, [&](const at::Tensor& parameter) {
      return leaves.contains(parameter.unsafeGetTensorImpl());
    });
  });
}

/// A trainer without a scale would not divide by another one's.
void check_no_other_moves(const at::Tensor& data, const std::vector<TrainerState*>& without_scale) {
  if (without_scale.empty() || !data.requires_grad()) return;
  const auto leaves = leaves_behind(data);
  for (const TrainerState* other : without_scale) {
    if (!moves_one_of(*other, leaves)) continue;
    raise<ConfigError>("gluon",
                       "an output operator with 2 trainers, of which one has a loss scale, and the "
                       "other moves parameters that the operator's data come from: its steps would "
                       "not divide by the scale. Use an ordinary loss, or one trainer");
  }
}

}  // namespace

void enter_live(TrainerState& trainer) {
  const std::lock_guard lock(live_trainers().mutex);
  live_trainers().all.push_back(&trainer);
}

void leave_live(TrainerState& trainer) {
  const std::lock_guard lock(live_trainers().mutex);
  std::erase(live_trainers().all, &trainer);
}

double output_scale(const at::Tensor& data) {
  const std::lock_guard lock(live_trainers().mutex);
  std::vector<TrainerState*> scaled, without_scale;
  for (TrainerState* trainer : live_trainers().all)
    (trainer->scaler ? scaled : without_scale).push_back(trainer);
  if (scaled.empty()) return 1;
  if (scaled.size() > 1) {
    raise<ConfigError>("gluon", "an output operator with ", scaled.size(),
                       " trainers that have a loss scale: its gradient ignores what arrives from "
                       "above, and nothing says whose scale it should take. Use an ordinary loss "
                       "with scale_loss, or one trainer");
  }
  check_no_other_moves(data, without_scale);
  if (data.requires_grad()) scaled.front()->mark_scaled();
  return scaled.front()->scaler->scale();
}

}  // namespace detail

namespace {

constexpr const char* kScaleLoss = "gluon::scale_loss";

at::Tensor scaled_by(const at::Tensor& loss, double scale) {
  if (!loss.defined() || !loss.is_floating_point()) {
    raise<ConfigError>(kScaleLoss, "a loss is ",
                       loss.defined() ? "no tensor of floating type" : "undefined");
  }
  if (!loss.requires_grad()) {
    raise<ConfigError>(kScaleLoss,
                       "autograd does not record this loss: it was computed without gradients, or "
                       "from nothing that wants one");
  }
  return (is_low(loss.scalar_type()) ? loss.to(at::kFloat) : loss).mul(scale);
}

}  // namespace

void init_trainer(Trainer& trainer, TrainerScale scale) {
  constexpr const char* kInitTrainer = "gluon::init_trainer";
  detail::TrainerState& state = trainer.state();
  if (!detail::has_live_handle()) {
    raise<ConfigError>(kInitTrainer, "AMP not initialized, did you forget to call gluon::init()?");
  }
  if (state.scaler) {
    raise<ConfigError>(kInitTrainer,
                       "this trainer has a loss scale already; call it once for each trainer");
  }
  // Output operators of other threads look for trainers that have one.
  const std::lock_guard lock(detail::live_trainers().mutex);
  state.scaler.emplace(scale);
  if (state.loaded_scale) state.scaler->set_numbers(*state.loaded_scale);
  state.loaded_scale.reset();
}

ScaledLoss scale_loss(const at::Tensor& loss, Trainer& trainer) {
  return scale_loss(std::vector<at::Tensor>{loss}, trainer);
}

ScaledLoss scale_loss(const std::vector<at::Tensor>& losses, Trainer& trainer) {
  detail::TrainerState& state = trainer.state();
  if (!state.scaler) {
    raise<ConfigError>(kScaleLoss,
                       "Loss scaler is not initialized, did you forget to call "
                       "gluon::init_trainer()?");
  }
  if (losses.empty()) raise<ConfigError>(kScaleLoss, "there are no losses");
  const amp::DisableCasts no_casts;
  std::vector<at::Tensor> scaled;
  scaled.reserve(losses.size());
  for (const at::Tensor& loss : losses) scaled.push_back(scaled_by(loss, state.scaler->scale()));
  state.mark_scaled();
  return ScaledLoss(std::move(scaled));
}

void ScaledLoss::backward(bool retain_graph, bool create_graph) {
  std::vector<at::Tensor> ones;
  for (const at::Tensor& loss : losses_) ones.push_back(at::ones_like(loss));
  torch::autograd::backward(losses_, ones, retain_graph || create_graph, create_graph);
}

const at::Tensor& ScaledLoss::value() const {
  if (losses_.size() != 1) {
    raise(kScaleLoss, "value() of ", losses_.size(), " losses; values() has them");
  }
  return losses_.front();
}

void unscale(Trainer& trainer) {
  if (!trainer.state().scaler) {
    raise<ConfigError>("gluon::unscale",
                       "the trainer has no loss scale, did you forget to call "
                       "gluon::init_trainer()?");
  }
  trainer.state().unscale();
}

}  // namespace mezzo::gluon
