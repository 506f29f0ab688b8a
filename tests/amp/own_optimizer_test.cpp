// Optimizers that are neither LibTorch's nor ours.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "amp/training.h"
#include "mezzo/amp.h"
#include "mezzo/checkpoint.h"

namespace mezzo::amp {
namespace {

/// An optimizer with state of its own and no save().
struct SilentOptions : torch::optim::OptimizerCloneableOptions<SilentOptions> {
  double get_lr() const override { return 0.1; }
  void set_lr(const double) override {}
};
struct SilentState : torch::optim::OptimizerCloneableParamState<SilentState> {};
class SilentOptimizer : public torch::optim::Optimizer {
 public:
  explicit SilentOptimizer(std::vector<at::Tensor> params)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(params))},
                  std::make_unique<SilentOptions>()) {}
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (at::Tensor& p : group.params()) {
        if (!p.grad().defined()) continue;
        p.sub_(p.grad(), 0.1);
        if (state().count(p.unsafeGetTensorImpl()) == 0)
          state()[p.unsafeGetTensorImpl()] = std::make_unique<SilentState>();
      }
    }
    return {};
  }
};

TEST(SilentOptimizer, WhoseSaveWritesNothingIsRefusedByItsName) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    SilentOptimizer own(net->parameters());
    auto [model, optimizer] = initialize(net, own, at_level(level));
    const std::string path = testing::TempDir() + "own.safetensors";
    EXPECT_NO_THROW(save_checkpoint(path, model, optimizer)) << "nothing would be lost";
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
    const auto save = [&, &model = model, &optimizer = optimizer] {
      save_checkpoint(path, model, optimizer);
    };
    EXPECT_THROW(save(), UnsupportedError) << level;
    std::stringstream file;
    try {
      torch::save(optimizer, file);
      FAIL() << level;
    } catch (const UnsupportedError& error) {
      EXPECT_NE(std::string(error.what()).find("SilentOptimizer"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace mezzo::amp
