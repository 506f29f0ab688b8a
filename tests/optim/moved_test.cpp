// An optimizer whose contents were moved away does what LibTorch's own does.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "mezzo/error.h"
#include "mezzo/optim.h"
#include "optim/step_context.h"
#include "optim/trajectory.h"

namespace mezzo::optim {
namespace {

using namespace testing_support;

struct Silent final : StepContext {
  LowCopy low_copy(const at::Tensor& /*parameter*/) override { return {}; }
  void stepped(bool /*applied*/) override { ++steps; }
  int steps = 0;
};

// For both kinds: steps, saves, loads of an archive without groups.
template <typename Optimizer>
std::string saved_by(Optimizer& optimizer) {
  std::ostringstream file;
  torch::save(optimizer, file);
  return file.str();
}

template <typename Optimizer>
void load_into(Optimizer& optimizer, const std::string& saved) {
  std::istringstream file(saved);
  torch::load(optimizer, file);
}

TEST(MovedFrom, StepsSavesAndLoadsNothing) {
  const auto params = make_parameters();
  set_gradients(params, 0);
  torch::optim::Adam theirs(make_parameters());
  const torch::optim::Adam taken(std::move(theirs));
  FusedAdam ours(params, FusedAdamOptions(0.1));
  const std::string full = saved_by(ours);
  FusedAdam all(std::move(ours));
  const auto before = values(params);

  // NOLINTBEGIN(bugprone-use-after-move): what is left is what is tested
  theirs.step();
  ours.step();
  EXPECT_EQ(ours.step([] { return torch::ones({}); }).item<double>(), 1);
  ours.step_unless(torch::zeros({1}));
  at::Tensor found = torch::zeros({1});
  step_checked(ours, found, {});
  ours.zero_grad();
  EXPECT_TRUE(identical(params, before));
  const std::string nothing = saved_by(ours);
  load_into(ours, nothing);
  load_into(theirs, saved_by(theirs));
  EXPECT_THROW(load_into(ours, full), Error);
  EXPECT_TRUE(ours.state().empty());
  settle_step_counts(ours);
  // NOLINTEND(bugprone-use-after-move)

  all.step();
  EXPECT_FALSE(identical(params, before));
}

TEST(MovedFrom, GivesALenderBack) {
  const auto params = make_parameters();
  set_gradients(params, 0);
  FusedAdam ours(params, FusedAdamOptions(0.1));
  const auto lender = std::make_shared<Silent>();
  set_step_context(ours, lender);
  FusedAdam all(std::move(ours));
  set_step_context(ours, nullptr);  // NOLINT(bugprone-use-after-move)
  all.step();
  EXPECT_EQ(lender->steps, 1) << "what was lent went along";
  ours = std::move(all);
  set_step_context(ours, nullptr);
  ours.step();
  EXPECT_EQ(lender->steps, 1);
}

}  // namespace
}  // namespace mezzo::optim
