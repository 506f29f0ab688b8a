// The use cases of Apex Amp. The numbers are those of the advanced use cases in its documentation;
// 11 (checkpointing) and 13 (distributed training) have more tests in checkpoint_test.cpp and
// ranks_test.cpp, 12 (coming from the older interfaces) in tests/legacy.
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "amp/training.h"
#include "mezzo/autocast.h"

namespace mezzo::amp {
namespace {

const std::vector<std::string> kTrainingLevels{"O0", "O1", "O2", "O4", "O5"};

// 1
TEST(UseCase, Gan) {
  for (const std::string& level : kTrainingLevels) {
    torch::manual_seed(1);
    torch::nn::Sequential generator(torch::nn::Linear(3, 8), torch::nn::ReLU(),
                                    torch::nn::Linear(8, 4));
    TinyNet judge;
    torch::optim::Adam generator_adam(generator->parameters(), 1e-2);
    torch::optim::Adam judge_adam(judge->parameters(), 1e-2);
    Options options = at_level(level);
    options.num_losses = 3;
    auto [models, optimizers] =
        initialize(std::tie(judge, generator), std::tie(judge_adam, generator_adam), options);
    auto& [d, g] = models;
    auto& [opt_d, opt_g] = optimizers;
    const at::Tensor real = inputs();
    const auto verdict = [&d = d](const at::Tensor& images, std::int64_t label) {
      return torch::nn::functional::cross_entropy(d(images),
                                                  torch::full({images.size(0)}, label, at::kLong));
    };
    for (int step = 0; step < 5; ++step) {
      opt_d.zero_grad();
      scale_loss(verdict(real, 1), opt_d, {.loss_id = 0}).backward();
      const at::Tensor fake = g(torch::randn({8, 3}));
      scale_loss(verdict(fake.detach(), 0), opt_d, {.loss_id = 1}).backward();
      EXPECT_TRUE(opt_d.step().applied()) << level;
      opt_g.zero_grad();
      scale_loss(verdict(fake, 1), opt_g, {.loss_id = 2}).backward();
      EXPECT_TRUE(opt_g.step().applied()) << level;
    }
  }
}

// 2
TEST(UseCase, GradientClippingByNormAndByValue) {
  for (const std::string& level : kTrainingLevels) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 1.0);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    scale_loss(loss_of(model) * 10, optimizer).backward();
    torch::nn::utils::clip_grad_norm_(master_params(optimizer), 0.5);
    double squares = 0;
    for (const at::Tensor& master : master_params(optimizer))
      squares += master.grad().pow(2).sum().item<double>();
    EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-3) << level;
    torch::nn::utils::clip_grad_value_(master_params(optimizer), 0.01);
    for (const at::Tensor& master : master_params(optimizer)) {
      EXPECT_LE(master.grad().abs().max().item<double>(), 0.0101) << level;
    }
    EXPECT_TRUE(optimizer.step().applied());
  }
}

/// y = x * w, with a backward of its own.
struct Multiply : torch::autograd::Function<Multiply> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x * w;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

struct CustomImpl : torch::nn::Module {
  CustomImpl()
      : line(register_module("line", torch::nn::Linear(4, 3))),
        w(register_parameter("w", torch::ones({3}))) {}
  at::Tensor forward(const at::Tensor& x) { return Multiply::apply(line(x), w); }
  torch::nn::Linear line;
  at::Tensor w;
};
TORCH_MODULE(Custom);

// 3
TEST(UseCase, CustomAutogradFunctions) {
  for (const std::string& level : kTrainingLevels) {
    Custom net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    scale_loss(model(inputs()).sum(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
    EXPECT_FALSE(net->w.eq(1).all().item<bool>()) << level;
  }
}

/// A layer that insists on float, as a user would force it.
struct ForcedImpl : torch::nn::Module {
  ForcedImpl() : line(register_module("line", torch::nn::Linear(4, 2))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor low = line(x);
    const DisableCasts no_casts;
    seen = low.to(at::kFloat).matmul(torch::eye(2)).scalar_type();
    return low;
  }
  torch::nn::Linear line;
  at::ScalarType seen = at::ScalarType::Undefined;
};
TORCH_MODULE(Forced);

// 4
TEST(UseCase, ForcingALayerToAType) {
  for (const std::string& level : kTrainingLevels) {
    Forced net;
    auto model = initialize(net, at_level(level));
    model(inputs());
    EXPECT_EQ(net->seen, at::kFloat) << level;
  }
}

// 5, 6, 7
TEST(UseCase, SeveralModelsOptimizersAndLosses) {
  for (const std::string& level : kTrainingLevels) {
    TinyNet first;
    TinyNet second;
    torch::optim::SGD sgd({first->parameters()}, 0.1);
    torch::optim::Adam adam(second->parameters(), 1e-2);
    Options options = at_level(level);
    options.num_losses = 2;
    auto [models, optimizers] = initialize(std::tie(first, second), std::tie(sgd, adam), options);
    auto& [a, b] = models;
    const at::Tensor shared = loss_of(a) + loss_of(b);
    scale_loss(shared, optimizers, {.loss_id = 0}).backward();
    scale_loss(loss_of(a), std::get<0>(optimizers), {.loss_id = 1}).backward();
    EXPECT_TRUE(std::get<0>(optimizers).step().applied()) << level;
    EXPECT_TRUE(std::get<1>(optimizers).step().applied()) << level;
  }
}

TEST(UseCase, SeveralModelsUnderOneOptimizer) {
  Line first;
  Line second;
  torch::optim::SGD sgd({first->line->weight, second->line->weight}, 0.125);
  auto [models, optimizer] = initialize(std::tie(first, second), sgd, at_level("O2"));
  auto& [a, b] = models;
  const at::Tensor x = torch::ones({1, 3});
  scale_loss(a(x).sum() + 2 * b(x).sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_TRUE(
      torch::allclose(master_params(optimizer)[0] - master_params(optimizer)[1], 0.125 * x));
}

// 8, 9
TEST(UseCase, SeveralBackwardsBeforeAStepAndAccumulationAcrossIterations) {
  for (const std::string& level : kTrainingLevels) {
    Line accumulated;
    Line at_once;
    torch::optim::SGD first_sgd(accumulated->parameters(), 0.125);
    torch::optim::SGD second_sgd(at_once->parameters(), 0.125);
    auto [a, opt_a] = initialize(accumulated, first_sgd, at_level(level));
    auto [b, opt_b] = initialize(at_once, second_sgd, at_level(level));
    const at::Tensor x = torch::tensor({{0.5F, -1.0F, 2.0F}, {1.0F, 0.25F, -0.5F}});
    for (int micro = 0; micro < 2; ++micro) {
      scale_loss(a(x.slice(0, micro, micro + 1)).sum() / 2, opt_a).backward();
      for (const at::Tensor& master : master_params(opt_a)) {
        EXPECT_LE(master.grad().abs().max().item<double>(), 2.0) << "unscaled after each block";
      }
    }
    scale_loss(b(x).sum() / 2, opt_b).backward();
    opt_a.step();
    opt_b.step();
    EXPECT_TRUE(torch::allclose(master_params(opt_a)[0], master_params(opt_b)[0], 1e-6)) << level;
  }
}

// 6
TEST(UseCase, EveryOptimizerThatOwnsAParameterOfALossIsPassedToIt) {
  for (const std::string& level : kTrainingLevels) {
    TinyNet net;
    torch::optim::SGD lower(net->first->parameters(), 0.1);
    torch::optim::Adam upper(net->second->parameters(), 1e-2);
    auto [model, optimizers] = initialize(net, std::tie(lower, upper), at_level(level));
    auto& [opt_lower, opt_upper] = optimizers;
    scale_loss(loss_of(model), {opt_lower, opt_upper}).backward();
    EXPECT_TRUE(opt_lower.step().applied()) << level;
    EXPECT_TRUE(opt_upper.step().applied()) << level;
    if (opt_lower.properties().loss_scale.is_dynamic()) {
      scale_loss(loss_of(model) * kInf, {opt_lower, opt_upper}).backward();
      EXPECT_TRUE(opt_lower.step().skipped()) << level;
      EXPECT_TRUE(opt_upper.step().skipped()) << level;
    }
  }
}

// 7
TEST(UseCase, EachLossHasAScaleWhateverTheOptimizersAre) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level("O2");
  options.num_losses = 3;
  auto [model, optimizer] = initialize(net, sgd, options);
  scale_loss(loss_of(model), optimizer, {.loss_id = 0}).backward();
  scale_loss(loss_of(model) * kInf, optimizer, {.loss_id = 2}).backward();
  EXPECT_TRUE(optimizer.step().skipped());
  EXPECT_EQ(optimizer.loss_scale(0), 1024);
  EXPECT_EQ(optimizer.loss_scale(1), 1024);
  EXPECT_EQ(optimizer.loss_scale(2), 512);
}

// 11
TEST(UseCase, ThreeEntriesInOneArchiveResumeTheTraining) {
  for (const std::string& level : kTrainingLevels) {
    const auto train = [](auto& model, auto& optimizer, int steps) {
      for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        scale_loss(loss_of(model), optimizer).backward();
        optimizer.step();
      }
    };
    TinyNet net;
    torch::optim::Adam adam(net->parameters(), 1e-2);
    auto [model, optimizer] = initialize(net, adam, at_level(level));
    train(model, optimizer, 3);
    torch::serialize::OutputArchive archive;
    torch::serialize::OutputArchive of_model(archive.compilation_unit());
    torch::serialize::OutputArchive of_optimizer(archive.compilation_unit());
    torch::serialize::OutputArchive of_amp(archive.compilation_unit());
    of_model << model;
    of_optimizer << optimizer;
    of_amp << state_dict(optimizer);
    archive.write("model", of_model);
    archive.write("optimizer", of_optimizer);
    archive.write("amp", of_amp);
    std::stringstream file;
    archive.save_to(file);
    train(model, optimizer, 3);

    TinyNet other;
    torch::optim::Adam other_adam(other->parameters(), 1e-2);
    auto [resumed, resumed_optimizer] = initialize(other, other_adam, at_level(level));
    torch::serialize::InputArchive in, in_model, in_optimizer, in_amp;
    in.load_from(file);
    in.read("amp", in_amp);
    in.read("optimizer", in_optimizer);
    in.read("model", in_model);
    StateDict scales;
    in_amp >> scales;
    load_state_dict(resumed_optimizer, scales);
    in_optimizer >> resumed_optimizer;
    in_model >> resumed;
    train(resumed, resumed_optimizer, 3);
    for (std::size_t i = 0; i < master_params(optimizer).size(); ++i) {
      EXPECT_TRUE(torch::equal(master_params(resumed_optimizer)[i], master_params(optimizer)[i]))
          << level;
    }
  }
}

/// A batch of the user's own class.
struct Pages {
  at::Tensor words = inputs();
  at::Tensor lengths = torch::full({8}, 4, at::kLong);
  Pages to(at::ScalarType type) const { return {words.to(type), lengths}; }
};

struct SequenceReaderImpl : torch::nn::Module {
  SequenceReaderImpl() : line(register_module("line", torch::nn::Linear(4, 2))) {}
  std::map<std::string, at::Tensor> forward(const Pages& pages) {
    EXPECT_EQ(pages.words.scalar_type(), line->weight.scalar_type());
    return {{"scores", line(pages.words)}, {"lengths", pages.lengths}};
  }
  torch::nn::Linear line;
};
TORCH_MODULE(SequenceReader);

// 10
TEST(UseCase, CustomBatchTypes) {
  for (const std::string level : {"O0", "O2", "O3", "O5"}) {
    SequenceReader net;
    auto model = initialize(net, at_level(level));
    const auto result = model(Pages{});
    EXPECT_EQ(result.at("scores").scalar_type(), at::kFloat) << level;
    EXPECT_EQ(result.at("lengths").scalar_type(), at::kLong) << level;
  }
}

TEST(UseCase, TruncatedBackpropagationThroughTime) {
  for (const std::string& level : kTrainingLevels) {
    torch::nn::GRU gru(torch::nn::GRUOptions(4, 3));
    torch::optim::SGD sgd(gru->parameters(), 0.1);
    auto [model, optimizer] = initialize(gru, sgd, at_level(level));
    at::Tensor hidden = torch::zeros({1, 2, 3});
    for (int piece = 0; piece < 3; ++piece) {
      optimizer.zero_grad();
      auto [output, next] = model(torch::ones({5, 2, 4}), hidden);
      scale_loss(output.mean(), optimizer).backward();
      EXPECT_TRUE(optimizer.step().applied()) << level;
      hidden = next.detach();
    }
  }
}

struct SparseImpl : torch::nn::Module {
  SparseImpl()
      : words(register_module(
            "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 4).sparse(true)))) {}
  at::Tensor forward(const at::Tensor& ids) { return words(ids); }
  torch::nn::Embedding words;
};
TORCH_MODULE(Sparse);

TEST(UseCase, SparseGradients) {
  for (const std::string& level : kLevels) {
    for (const bool adagrad : {false, true}) {
      Sparse net;
      std::unique_ptr<torch::optim::Optimizer> inner;
      if (adagrad) {
        inner = std::make_unique<torch::optim::Adagrad>(net->parameters(), 0.1);
      } else {
        inner = std::make_unique<torch::optim::SGD>(net->parameters(), 0.125);
      }
      auto [model, optimizer] = initialize(net, *inner, at_level(level));
      const at::Tensor before = master_params(optimizer)[0].detach().clone();
      const at::Tensor ids = torch::tensor({1, 3, 3});
      scale_loss(model(ids).sum(), optimizer).backward();
      scale_loss(model(ids).sum(), optimizer).backward();
      EXPECT_TRUE(master_params(optimizer)[0].grad().is_sparse()) << level;
      EXPECT_TRUE(optimizer.step().applied()) << level;
      const at::Tensor moved = before - master_params(optimizer)[0].detach();
      if (!adagrad) {
        EXPECT_NEAR(moved[1][0].item<double>(), 0.25, 1e-3) << level;
        EXPECT_NEAR(moved[3][0].item<double>(), 0.5, 1e-3) << level;
      }
      EXPECT_EQ(moved[0][0].item<double>(), 0.0) << level;
    }
  }
}

struct MixedImpl : torch::nn::Module {
  MixedImpl()
      : line(register_module("line", torch::nn::Linear(4, 2))),
        exact(register_parameter("exact", torch::ones({2}, at::kDouble))),
        table(register_buffer("table", torch::arange(4))) {}
  at::Tensor forward(const at::Tensor& x) { return line(x).to(at::kDouble) * exact + table.sum(); }
  torch::nn::Linear line;
  at::Tensor exact;
  at::Tensor table;
};
TORCH_MODULE(Mixed);

TEST(UseCase, AModelWithDoubleAndIntegerParts) {
  for (const std::string& level : kTrainingLevels) {
    Mixed net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_EQ(net->exact.scalar_type(), at::kDouble) << level;
    EXPECT_EQ(net->table.scalar_type(), at::kLong) << level;
    const at::Tensor output = model(inputs());
    EXPECT_EQ(output.scalar_type(), at::kDouble) << level;
    scale_loss(output.mean(), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied()) << level;
    EXPECT_FALSE(net->exact.eq(1).all().item<bool>()) << level;
  }
}

TEST(UseCase, AnOptimizerThatOwnsMoreThanTheModel) {
  Line net;
  at::Tensor extra = torch::ones({1}, at::TensorOptions().requires_grad(true));
  torch::optim::SGD sgd({net->line->weight, extra}, 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  scale_loss((model(torch::ones({1, 3})) * extra).sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_FALSE(extra.eq(1).all().item<bool>());
}

TEST(UseCase, RetainedGraphs) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  const at::Tensor loss = model(torch::ones({1, 3})).sum();
  scale_loss(loss, optimizer).backward({}, /*retain_graph=*/true);
  scale_loss(loss, optimizer).backward();
  EXPECT_TRUE(torch::allclose(master_params(optimizer)[0].grad(), torch::full({1, 3}, 2.0F)));
}

TEST(UseCase, TwoTrainingsLiveSideBySide) {
  Line half;
  Line plain;
  torch::optim::SGD half_sgd(half->parameters(), 0.125);
  torch::optim::SGD plain_sgd(plain->parameters(), 0.125);
  auto [a, opt_a] = initialize(half, half_sgd, at_level("O2"));
  auto [b, opt_b] = initialize(plain, plain_sgd, at_level("O0"));
  const at::Tensor x = torch::ones({1, 3});
  scale_loss(a(x).sum() * kInf, opt_a).backward();
  scale_loss(b(x).sum(), opt_b).backward();
  EXPECT_TRUE(opt_a.step().skipped());
  EXPECT_TRUE(opt_b.step().applied());
  EXPECT_EQ(opt_b.loss_scale(), 1);
  EXPECT_EQ(half->line->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(plain->line->weight.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace mezzo::amp
