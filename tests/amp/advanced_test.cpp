// The pieces of docs/advanced.md: each compiles, runs, and is the same text.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "amp/training.h"
#include "mezzo/attention.h"
#include "mezzo/autocast.h"
#include "mezzo/recompute.h"
#include "mezzo/reparameterization.h"
#include "mezzo/rnn.h"

namespace mezzo::amp {
namespace {

namespace amp = mezzo::amp;

TEST(Advanced, Clipping) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  amp::scale_loss(loss_of(model), optimizer).backward();
  torch::nn::utils::clip_grad_norm_(amp::master_params(optimizer), 1.0);
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, AccumulationOverMicroBatches) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  for (int micro = 0; micro < 4; ++micro) {
    amp::scale_loss(loss_of(model) / 4, optimizer).backward();
  }
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, SeveralModelsOptimizersAndLosses) {
  TinyNet net_d;
  TinyNet net_g;
  torch::optim::SGD sgd_d(net_d->parameters(), 0.01);
  torch::optim::SGD sgd_g(net_g->parameters(), 0.01);
  auto [models, optimizers] = amp::initialize(std::tie(net_d, net_g), std::tie(sgd_d, sgd_g),
                                              {.opt_level = "O2", .num_losses = 2, .verbosity = 0});
  auto& [d, g] = models;
  auto& [opt_d, opt_g] = optimizers;
  amp::scale_loss(loss_of(d), opt_d, {.loss_id = 0}).backward();
  amp::scale_loss(loss_of(d) + loss_of(g), {opt_d, opt_g}, {.loss_id = 1}).backward();
  opt_d.step();
  opt_g.step();
  EXPECT_EQ(opt_d.applied_steps() + opt_d.skipped_steps(), 1);
}

TEST(Advanced, MoreThanABackwardPassInTheScope) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  {
    amp::ScaledLoss scaled = amp::scale_loss(loss_of(model), optimizer);
    scaled.backward();
  }
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, GradientPenaltiesAndAutogradGrad) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  at::Tensor x = inputs().requires_grad_(true);
  at::Tensor out = model(x).sum();
  auto gradients = torch::autograd::grad({optimizer.scale(out)}, {x}, {}, true, true);
  optimizer.unscale(gradients);
  at::Tensor penalty = gradients[0].pow(2).sum();
  amp::scale_loss(out + penalty, optimizer).backward();
  optimizer.step();
  // The second derivative of a batch norm may overflow half: a step is made or skipped.
  EXPECT_EQ(optimizer.applied_steps() + optimizer.skipped_steps(), 1);
}

TEST(Advanced, Closures) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  optimizer.step([&model = model, &optimizer = optimizer] {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model);
    amp::scale_loss(loss, optimizer).backward();
    return loss;
  });
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, LearningRateSchedules) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  torch::optim::StepLR step_lr(optimizer.inner(), 10, 0.5);
  amp::Schedule schedule(step_lr, optimizer);
  amp::scale_loss(loss_of(model), optimizer).backward();
  optimizer.step();
  schedule.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, MovingAveragesOfWeights) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  const std::string path = testing::TempDir() + "mezzo_averages.ckpt";
  amp::Ema ema(model, 0.999, {.warmup = true});
  amp::scale_loss(loss_of(model), optimizer).backward();
  optimizer.step();
  ema.update();
  {
    const auto swapped = ema.swapped();
    model(inputs());
  }
  amp::save_checkpoint(path, model, optimizer, {.averages = {ema}});
  EXPECT_EQ(ema.updates(), 1);
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

TEST(Advanced, FreezingUnfreezingAddingGroups) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  for (at::Tensor& parameter : net->second->parameters()) parameter.requires_grad_(false);
  amp::scale_loss(loss_of(model), optimizer).backward();
  optimizer.step();
  for (at::Tensor& parameter : net->second->parameters()) parameter.requires_grad_(true);
  amp::scale_loss(loss_of(model), optimizer).backward();
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, ALoopThatKeepsItsOwnOptimizer) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  amp::GradScaler scaler;
  at::Tensor loss;
  {
    amp::Autocast casts(Policy::defaults());
    loss = loss_of(net);
  }
  scaler.scale(loss).backward();
  scaler.step(sgd);
  scaler.update();
  // The first scale of a training may be too high.
  EXPECT_TRUE(scaler.get_scale() == 65536 || scaler.get_scale() == 32768);
}

TEST(Advanced, FunctionsAndLayersOfOnesOwn) {
  struct Gate : torch::autograd::Function<Gate> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
      context->save_for_backward({x});
      return x.sigmoid() * x;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      const at::Tensor s = context->get_saved_variables()[0].sigmoid();
      return {gradients[0] * (s + context->get_saved_variables()[0] * s * (1 - s))};
    }
  };
  TinyNet net;
  auto model = amp::initialize(net, at_level("O1"));
  const at::Tensor x = inputs();
  auto gate = amp::float_function([](const at::Tensor& each) { return Gate::apply(each); });
  at::Tensor out = model.call([&](TinyNetImpl& each) {
    at::Tensor hidden = gate(each.first(x));
    const amp::DisableCasts in_float;
    return each.second(hidden);
  });
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  EXPECT_NO_THROW(out.sum().backward());
}

struct Batch {
  at::Tensor pixels;
  std::vector<std::string> names;
  Batch to(at::ScalarType type) const { return {pixels.to(type), names}; }
};

struct ReaderImpl : torch::nn::Module {
  ReaderImpl() : line(register_module("line", torch::nn::Linear(4, 2))) {}
  at::Tensor forward(const Batch& batch) { return line(batch.pixels); }
  torch::nn::Linear line;
};
TORCH_MODULE(Reader);

TEST(Advanced, BatchesOfOnesOwn) {
  Reader reader;
  auto model = amp::initialize(reader, at_level("O2"));
  at::Tensor out = model(Batch{inputs(), {"first", "second"}});
  EXPECT_EQ(out.scalar_type(), at::kFloat);
}

TEST(Advanced, TruncatedBackpropagationThroughTime) {
  torch::nn::GRU gru(torch::nn::GRUOptions(4, 3));
  torch::optim::SGD sgd(gru->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(gru, sgd, at_level("O2"));
  const std::vector<at::Tensor> pieces(3, torch::ones({5, 2, 4}));
  at::Tensor hidden = torch::zeros({1, 2, 3});
  for (const at::Tensor& piece : pieces) {
    optimizer.zero_grad();
    auto [output, next] = model(piece, hidden);
    amp::scale_loss(output.mean(), optimizer).backward();
    optimizer.step();
    hidden = next.detach();
  }
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, AttentionWithPaddedKeys) {
  const at::Tensor x = torch::randn({5, 3, 8});
  const at::Tensor padding = torch::arange(5).unsqueeze(0) >= torch::tensor({5, 4, 2}).unsqueeze(1);
  mezzo::nn::MultiheadAttention attention(mezzo::nn::MultiheadAttentionOptions(8, 2));
  torch::optim::SGD sgd(attention->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(attention, sgd, at_level("O2"));
  auto [y, weights] = model(x, x, x, padding, /*need_weights=*/false);
  amp::scale_loss(y.mean(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_FALSE(weights.defined());
}

TEST(Advanced, RecurrentLayersThatKeepTheirState) {
  const std::vector<at::Tensor> pieces{torch::randn({5, 2, 4}), torch::randn({5, 2, 4})};
  mezzo::rnn::mLSTM lstm(
      mezzo::rnn::Options{.input_size = 4, .hidden_size = 8, .num_layers = 2, .output_size = 3});
  torch::optim::SGD sgd(lstm->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(lstm, sgd, at_level("O2"));
  lstm->init_hidden(2);
  for (const at::Tensor& piece : pieces) {
    optimizer.zero_grad();
    lstm->detach_hidden();
    auto [output, hidden] = model(piece);
    amp::scale_loss(output.mean(), optimizer).backward();
    optimizer.step();
  }
  EXPECT_EQ(optimizer.skipped_steps(), 0);
  EXPECT_GT(lstm->kept_hidden()[1].abs().sum().item<double>(), 0);
}

TEST(Advanced, RecurrentCellsOfOnesOwn) {
  const std::vector<at::Tensor> pieces{torch::randn({5, 2, 4})};
  mezzo::rnn::Cell leaky{.step = [](const mezzo::rnn::Step& step) -> mezzo::rnn::Hidden {
    at::Tensor gates = step.gates + torch::linear(step.hidden[0], step.weight_hh, step.bias_hh);
    return {0.9 * step.hidden[0] + 0.1 * torch::tanh(gates)};
  }};
  mezzo::rnn::Recurrent net(mezzo::rnn::Options{.input_size = 4, .hidden_size = 8}, leaky);
  auto [output, hidden] = net(pieces[0]);
  EXPECT_TRUE(output[-1].equal(hidden[0][0]));
}

TEST(Advanced, LibTorchsEncoderWithPaddedKeys) {
  const at::Tensor x = torch::randn({5, 3, 8});
  const at::Tensor padding = torch::arange(5).unsqueeze(0) >= torch::tensor({5, 4, 2}).unsqueeze(1);
  torch::nn::TransformerEncoder encoder(torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16), 2));
  torch::optim::SGD sgd(encoder->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(encoder, sgd, at_level("O2"));
  amp::scale_loss(model(x, at::Tensor(), padding).mean(), optimizer).backward();
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
}

TEST(Advanced, WeightNormalisation) {
  TinyNet net;
  mezzo::apply_weight_norm(*net);
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  amp::scale_loss(loss_of(model), optimizer).backward();
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
  EXPECT_TRUE(amp::model_state_dict(model).contains("first.weight_g"));
}

TEST(Advanced, PartsThatRunAgainInTheBackwardPass) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  at::Tensor out = model.call([&](TinyNetImpl& each) {
    at::Tensor hidden = recompute(each.first, inputs());
    return recompute([&each](at::Tensor h) { return each.second(torch::relu(each.norm(h))); },
                     hidden);
  });
  amp::scale_loss(out.sum(), optimizer).backward();
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0);
  EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(), 1);
}

TEST(Advanced, Checkpoints) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.01);
  auto [model, optimizer] = amp::initialize(net, sgd, at_level("O2"));
  const std::string path = testing::TempDir() + "mezzo_advanced.ckpt";
  amp::save_checkpoint(path, model, optimizer, {.entries = {{"epoch", "3"}}});
  amp::Checkpoint found = amp::load_checkpoint(path, model, optimizer);
  EXPECT_EQ(found.entries.at("epoch"), "3");
  EXPECT_EQ(std::remove(path.c_str()), 0);
}

std::string without_indentation(std::istream& in) {
  std::string result;
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find_first_not_of(' ');
    if (first != std::string::npos) result += line.substr(first) + "\n";
  }
  return result;
}

TEST(Advanced, ThePageShowsWhatIsTestedHere) {
  std::ifstream source("tests/amp/advanced_test.cpp");
  std::ifstream page("docs/advanced.md");
  const std::string tested = without_indentation(source);
  std::string text = without_indentation(page);
  int pieces = 0;
  for (auto begin = text.find("```cpp\n"); begin != std::string::npos;
       begin = text.find("```cpp\n", begin)) {
    begin += 7;
    const std::string piece = text.substr(begin, text.find("```", begin) - begin);
    EXPECT_NE(tested.find(piece), std::string::npos) << piece;
    ++pieces;
  }
  EXPECT_GE(pieces, 14);
}

}  // namespace
}  // namespace mezzo::amp
