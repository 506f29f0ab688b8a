// Errors in loops of which some ranks have fewer batches, and what comes after them.
#include <gmock/gmock.h>

#include "mezzo/parallel.h"
#include "parallel/branches.h"
#include "parallel/several.h"

namespace mezzo::parallel {
namespace {

using testing::HasSubstr;
using testing_ranks::at;
using testing_ranks::Branches;
using testing_ranks::expect_all_pass;
using testing_ranks::net_of;
using testing_ranks::Rank;
using testing_ranks::start;

at::Tensor input_of(int step, std::int64_t features) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank()));
  return torch::randn({5, features});
}

void expect_same_on_all(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor all = world().all_gather(tensor.detach());
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
  }
}

void expect_same_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  expect_same_on_all(gradients);
}

const Rank kFirst("join whose first backward is an error", [] {
  start();
  Branches net = net_of(1);
  DistributedDataParallel ddp(net, {.message_size = 40, .find_unused_parameters = false});
  auto guard = ddp.join();
  if (rank() != 1) {
    const at::Tensor loss = ddp(input_of(0, 6), true, false).square().mean();
    try {
      loss.backward();
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("every parameter needs a gradient"));
    }
  }
  guard.close();
  at("all together again");
  ddp.zero_grad();
  ddp(input_of(1, 6)).square().mean().backward();
  expect_same_gradients(net->parameters());
});

TEST(Join, ARankThatHasLeftDoesNotWaitForAFirstBackwardThatIsAnError) {
  expect_all_pass("join whose first backward is an error", {.ranks = 3});
}

// One network behind another, each in a wrapper of its own.
struct Chain {
  Chain() { torch::manual_seed(3); }
  void zero_grad() const {
    inner.zero_grad();
    outer.zero_grad();
  }

  torch::nn::Linear first{3, 3}, second{3, 1};
  DistributedDataParallel<torch::nn::Linear> inner{first, {.message_size = 1}};
  DistributedDataParallel<torch::nn::Linear> outer{second, {.message_size = 1}};
};

void expect_average_of_own_gradients(const Chain& chain, const at::Tensor& x) {
  chain.zero_grad();
  chain.outer(chain.inner(x)).square().mean().backward();
  const std::vector<at::Tensor> weights{chain.first->weight.detach().clone().requires_grad_(),
                                        chain.second->weight.detach().clone().requires_grad_()};
  const at::Tensor hidden = torch::linear(x, weights[0], chain.first->bias.detach());
  torch::linear(hidden, weights[1], chain.second->bias.detach()).square().mean().backward();
  const std::vector<at::Tensor> averages{weights[0].grad().clone(), weights[1].grad().clone()};
  all_reduce_average(averages);
  EXPECT_TRUE(torch::allclose(chain.first->weight.grad(), averages[0], 1e-4, 1e-6));
  EXPECT_TRUE(torch::allclose(chain.second->weight.grad(), averages[1], 1e-4, 1e-6));
}

const Rank kEnds("join that breaks at the end of a backward", [] {
  start();
  const Chain chain;
  auto of_inner = chain.inner.join();
  auto of_outer = chain.outer.join();
  expect_average_of_own_gradients(chain, input_of(0, 3));
  chain.zero_grad();
  try {
    at::Tensor hidden = chain.inner(input_of(1, 3));
    if (rank() == 1) hidden = hidden.detach();
    chain.outer(hidden).square().mean().backward();
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("different places of their loops"));
  }
  EXPECT_THROW(of_inner.close(), Error);
  EXPECT_THROW(of_outer.close(), Error);
  at("all together again");
  for (const int step : {2, 3}) expect_average_of_own_gradients(chain, input_of(step, 3));
});

TEST(Join, GradientsAreRightAfterALoopThatBrokeAtTheEndOfABackward) {
  expect_all_pass("join that breaks at the end of a backward", {.ranks = 3});
}

const Rank kUnequal("join that breaks after a rank has left", [] {
  start();
  const Chain chain;
  torch::optim::SGD optimizer(chain.first->parameters(), 0.5);
  const auto step = [&](int number) {
    chain.inner.zero_grad();
    chain.inner(input_of(number, 3)).square().mean().backward();
    optimizer.step();
  };
  if (rank() == 1) {
    // Its end tells nobody of an error.
    const auto guard = chain.inner.join();
  } else {
    auto guard = chain.inner.join();
    step(0);
    chain.first->bias.set_requires_grad(rank() == 0);
    EXPECT_THROW(step(1), Error);
    EXPECT_THROW(guard.close(), Error);
    chain.first->bias.set_requires_grad(true);
  }
  at("all together again");
  if (std::getenv("AGAIN") != nullptr) {
    auto again = chain.inner.join();
    expect_same_on_all(chain.first->parameters());
    again.close();
  } else {
    chain.inner(input_of(2, 3));
    expect_same_on_all(chain.first->parameters());
  }
  step(3);
  expect_same_on_all(chain.first->parameters());
});

TEST(Join, RanksAreEqualAgainAfterALoopThatBroke) {
  expect_all_pass("join that breaks after a rank has left", {.ranks = 3});
  expect_all_pass("join that breaks after a rank has left",
                  {.ranks = 3, .environment = {{"AGAIN", "1"}}});
}

}  // namespace
}  // namespace mezzo::parallel
