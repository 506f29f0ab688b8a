// zero_grad(false) leaves zeros where gradients were, also where a step took them or an overflow
// dropped them: weights that a batch does not use go on by momentum and decay, as in float.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "amp/training.h"
#include "mezzo/amp.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

/// Two lines, of which a batch may use one.
struct TwoLinesImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, bool both) { return both ? a(x) + b(x) : a(x); }
  Line a = register_module("a", Line());
  Line b = register_module("b", Line());
};
TORCH_MODULE(TwoLines);

struct Zeroed : testing::TestWithParam<std::tuple<std::string, bool, bool, int>> {
  static std::string level() { return std::get<0>(GetParam()); }
  static bool defers() { return std::get<1>(GetParam()); }
  static bool fused() { return std::get<2>(GetParam()); }
  static int way() { return std::get<3>(GetParam()); }

  std::unique_ptr<torch::optim::Optimizer> optimizer_of(std::vector<at::Tensor> parameters) const {
    const auto options = torch::optim::SGDOptions(0.0625).momentum(0.75).weight_decay(0.125);
    if (!fused()) return std::make_unique<torch::optim::SGD>(std::move(parameters), options);
    return std::make_unique<optim::FusedSGD>(
        std::move(parameters), optim::FusedSGDOptions(0.0625).momentum(0.75).weight_decay(0.125));
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, Zeroed,
                         testing::Combine(testing::Values("O0", "O1", "O2", "O4", "O5"),
                                          testing::Bool(), testing::Bool(),
                                          testing::Values(0, 1, 2)));

TEST_P(Zeroed, WeightsThatABatchDoesNotUseKeepMomentumAndDecay) {
  TwoLines wide;
  wide->to(at::kDouble);
  torch::optim::SGD reference(wide->parameters(),
                              torch::optim::SGDOptions(0.0625).momentum(0.75).weight_decay(0.125));
  TwoLines net;
  const auto inner = optimizer_of(net->parameters());
  Options options = at_level(level());
  options.defer_unscale = defers();
  options.check_finite = true;
  auto [model, optimizer] = initialize(net, *inner, options);
  for (int i = 0; i < 8; ++i) {
    const bool both = i % 3 == 0;
    const bool overflows = i == 4;
    if (way() == 0) {
      optimizer.zero_grad(false);
    } else if (way() == 1) {
      model.zero_grad(false);
    } else {
      optimizer.zero_grad(true);
    }
    way() == 2 ? reference.zero_grad(true) : reference.zero_grad(false);
    wide(row().to(at::kDouble), both).sum().backward();
    scale_loss(model(row(), both).sum() * (overflows ? kInf : 1.0), optimizer).backward();
    EXPECT_EQ(optimizer.step().applied(), !overflows) << i;
    if (!overflows) reference.step();
    for (std::size_t p = 0; p < 2; ++p) {
      EXPECT_TRUE(torch::allclose(master_params(optimizer)[p].to(at::kDouble),
                                  wide->parameters()[p], 0,
                                  level() == "O4" || level() == "O5" ? 4e-2 : 4e-3))
          << i << ": " << master_params(optimizer)[p] << wide->parameters()[p];
    }
  }
}

}  // namespace
}  // namespace mezzo::amp
