// Three linear layers of 4096 on a batch of 512: what mixed precision costs beside the products is
// weight traffic.
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "core/torch.h"
#include "cuda_steps.h"
#include "cuda_timing.h"
#include "mezzo/amp.h"
#include "mezzo/optim.h"
#include "native_autocast.h"

namespace mezzo::bench {
namespace {

torch::nn::Sequential three_layers() {
  torch::nn::Sequential net(torch::nn::Linear(4096, 4096), torch::nn::Linear(4096, 4096),
                            torch::nn::Linear(4096, 4096));
  net->to(at::kCUDA);
  return net;
}

}  // namespace

void run_cuda_weights(Report& report, int repeats, double bandwidth) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const at::Tensor x = at::randn({512, 4096}, options);
  const at::Tensor target = at::randn({512, 4096}, options);

  auto net = three_layers();
  optim::FusedSGD sgd(net->parameters(), optim::FusedSGDOptions(1e-3));
  amp::Options given;
  given.opt_level = "O1";
  given.defer_unscale = true;
  given.verbosity = 0;
  auto [model, optimizer] = amp::initialize(net, sgd, given);
  const auto ours = [&model = model, &optimizer = optimizer, &x, &target] {
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(model(x), target);
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
  };

  auto native = three_layers();
  torch::optim::SGD plain(native->parameters(), torch::optim::SGDOptions(1e-3));
  amp::GradScaler scaler;
  const auto peer = [&] {
    plain.zero_grad();
    at::Tensor loss;
    {
      const NativeAutocast cast(at::kHalf, at::kCUDA);
      loss = at::mse_loss(native->forward(x), target);
    }
    scaler.scale(loss).backward();
    scaler.step(plain);
    scaler.update();
  };
  add_on_cuda(report, "o1.weights 3x4096, batch 512", "native autocast, GradScaler, torch::optim",
              interleave_on_cuda(ours, peer, repeats), 1.4, std::nullopt, bandwidth);
}

}  // namespace mezzo::bench
