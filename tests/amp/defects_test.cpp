// Defects that were found in Apex Amp's code, each as a test that Mezzo has not got it. The numbers
// only count them. 19 to 25 (optimizers and kernels) are in the files of this name in tests/optim
// and tests/nn, 26 to 32 (parallel training) in that of tests/parallel.
#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "amp/optimizer_state.h"
#include "amp/training.h"
#include "mezzo/autocast.h"
#include "mezzo/error.h"
#include "mezzo/optim.h"

namespace mezzo::amp {
namespace {

TEST(Defect, Number1EveryModelOfAListIsCast) {
  std::vector<std::shared_ptr<LineImpl>> pointers;
  for (int i = 0; i < 3; ++i) pointers.push_back(std::make_shared<LineImpl>());
  const auto models = initialize(pointers, at_level("O2"));
  ASSERT_EQ(models.size(), 3U);
  for (const auto& model : models) {
    EXPECT_EQ(model.module()->line->weight.scalar_type(), at::kHalf);
    EXPECT_EQ(model(row()).template item<float>(), 1.5F) << "0.5 + 0.5 + 0.5";
  }
}

TEST(Defect, Number2DoublesStayDoubles) {
  for (const std::string& level : kLevels) {
    Line net;
    net->to(at::kDouble);
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor out = model(row().to(at::kDouble));
    EXPECT_EQ(out.scalar_type(), at::kDouble) << level;
    scale_loss(out.sum(), optimizer).backward();
    optimizer.step();
    EXPECT_EQ(net->line->weight.scalar_type(), at::kDouble) << level;
  }
}

/// A tensor as key, which hashing by identity makes possible.
struct ByIdentity {
  bool operator()(const at::Tensor& a, const at::Tensor& b) const {
    return a.unsafeGetTensorImpl() < b.unsafeGetTensorImpl();
  }
};
using Table = std::map<at::Tensor, at::Tensor, ByIdentity>;

struct LookUpImpl : torch::nn::Module {
  LookUpImpl() : line(register_module("line", torch::nn::Linear(3, 1))) {}
  Table forward(const Table& table) {
    Table result;
    for (const auto& [key, value] : table) result.emplace(key, line(value));
    return result;
  }
  torch::nn::Linear line;
};
TORCH_MODULE(LookUp);

TEST(Defect, Number3KeysOfMapsAreNotCastAndMapsKeepTheirType) {
  LookUp net;
  auto model = initialize(net, at_level("O2"));
  const at::Tensor key = row();
  const Table result = model(Table{{key, row()}});
  ASSERT_EQ(result.size(), 1U);
  EXPECT_TRUE(result.begin()->first.is_same(key));
  EXPECT_EQ(result.begin()->second.scalar_type(), at::kFloat);
}

TEST(Defect, Numbers4And5WrappedModelsAndOptimizersAreRefusedAloneAndInLists) {
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  Line other;
  torch::optim::SGD other_sgd(other->parameters(), 0.1);
  EXPECT_THROW(initialize(model, other_sgd), ConfigError);
  EXPECT_THROW(initialize(other, sgd), ConfigError);
  EXPECT_THROW(initialize(std::tie(other), std::tie(other_sgd, sgd)), ConfigError);
  EXPECT_EQ(other->line->weight.scalar_type(), at::kFloat) << "nothing was changed";
}

struct ExtrasImpl : torch::nn::Module {
  ExtrasImpl()
      : line(register_module("line", torch::nn::Linear(3, 1))),
        nothing(register_buffer("nothing", at::Tensor())),
        table(register_buffer("table", torch::arange(4))),
        mask(register_buffer("mask", torch::ones({2}, at::kBool))) {}
  at::Tensor forward(const at::Tensor& x) { return line(x); }
  torch::nn::Linear line;
  at::Tensor nothing;
  at::Tensor table;
  at::Tensor mask;
};
TORCH_MODULE(Extras);

TEST(Defect, Number6StatesWithEntriesThatAreNoFloatsAreSavedAsTheyAre) {
  for (const std::string& level : kLevels) {
    Extras net;
    auto model = initialize(net, at_level(level));
    EXPECT_NO_THROW(model(row()));
    const auto values = model_state_dict(model);
    EXPECT_EQ(values["table"].scalar_type(), at::kLong) << level;
    EXPECT_EQ(values["mask"].scalar_type(), at::kBool) << level;
    EXPECT_EQ(values["line.weight"].scalar_type(), at::kFloat) << level;
  }
}

TEST(Defect, Number7ASecondInitializeSharesNothingWithTheFirst) {
  Line first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.125);
  torch::optim::SGD second_sgd(second->parameters(), 0.125);
  auto [a, opt_a] = initialize(first, first_sgd, at_level("O2"));
  auto [b, opt_b] = initialize(second, second_sgd, at_level("O1"));
  scale_loss(a(row()).sum() * kInf, opt_a).backward();
  scale_loss(b(row()).sum(), opt_b).backward();
  EXPECT_TRUE(opt_a.step().skipped());
  EXPECT_TRUE(opt_b.step().applied());
  EXPECT_EQ(opt_a.loss_scale(), 512);
  EXPECT_EQ(opt_b.loss_scale(), 1024);
}

TEST(Defect, Number8TuplesOfOptimizersAreScopedLikeLists) {
  Line first;
  Line second;
  torch::optim::SGD first_sgd(first->parameters(), 0.125);
  torch::optim::SGD second_sgd(second->parameters(), 0.125);
  auto [models, optimizers] =
      initialize(std::tie(first, second), std::tie(first_sgd, second_sgd), at_level("O2"));
  auto& [a, b] = models;
  for (int i = 0; i < 2; ++i) scale_loss(a(row()).sum() + b(row()).sum(), optimizers).backward();
  EXPECT_TRUE(torch::allclose(master_params(std::get<1>(optimizers))[0].grad(), 2 * row()));
}

TEST(Defect, Number9AccumulationAtAStaticScaleOfOneKeepsFloatGradients) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Options options = at_level("O2");
  options.loss_scale = 1.0;
  auto [model, optimizer] = initialize(net, sgd, options);
  scale_loss(loss_of(model), optimizer).backward();
  const at::Tensor once = net->norm->weight.grad().clone();
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(torch::allclose(net->norm->weight.grad(), 2 * once, 1e-2, 1e-3));
}

TEST(Defect, Number10DelayedUnscalingInTheFirstIterationKeepsFloatGradients) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  scale_loss(loss_of(model), optimizer, {.delay_unscale = true}).backward();
  const at::Tensor scaled = net->norm->weight.grad().clone() / 1024;
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(torch::allclose(net->norm->weight.grad(), 2 * scaled, 1e-2, 1e-3));
}

TEST(Defect, Number11StepsAndClearingBeforeAnyBackwardDoNotCrash) {
  for (const std::string& level : kLevels) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    EXPECT_NO_THROW(optimizer.zero_grad());
    EXPECT_TRUE(optimizer.step().empty()) << level;
  }
}

TEST(Defect, Number12AnUnfrozenParameterHasAMasterAndUnscaledGradients) {
  TinyNet net;
  net->first->weight.requires_grad_(false);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  scale_loss(loss_of(model), optimizer).backward();
  optimizer.step();
  net->first->weight.requires_grad_(true);
  optimizer.zero_grad();
  scale_loss(loss_of(model), optimizer).backward();
  const at::Tensor master = master_params(optimizer)[0];
  EXPECT_EQ(master.scalar_type(), at::kFloat);
  EXPECT_LT(master.grad().abs().max().item<double>(), 10) << "unscaled";
  EXPECT_TRUE(net->first->weight.grad().is_same(master.grad())) << "shown";
  EXPECT_TRUE(optimizer.step().applied());
  EXPECT_TRUE(torch::equal(net->first->weight, master.to(at::kHalf)));
  optimizer.zero_grad();
  EXPECT_FALSE(master.grad().defined());
}

TEST(Defect, Number13ANetworkThatIsLoadedLateGivesItsValuesToTheMasters) {
  Line trained;
  {
    const torch::NoGradGuard no_grad;
    trained->line->weight.fill_(0.1);  // half cannot hold it
  }
  std::stringstream file;
  torch::save(trained, file);
  Line net;
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
  scale_loss(model(row()).sum(), optimizer).backward();
  optimizer.step();
  torch::load(model, file);
  EXPECT_TRUE(torch::equal(master_params(optimizer)[0], trained->line->weight));
}

TEST(Defect, Number14OptimizerStateIsNotRoundedThroughHalf) {
  Line net;
  torch::optim::Adam adam(net->parameters(), 1e-3);
  auto [model, optimizer] = initialize(net, adam, at_level("O2"));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    scale_loss(model(row() * 1e-3).sum(), optimizer).backward();
    optimizer.step();
  }
  const auto second_moment = [](torch::optim::Adam& each) {
    return static_cast<torch::optim::AdamParamState&>(*each.state().begin()->second)
        .exp_avg_sq()
        .clone();
  };
  const at::Tensor moment = second_moment(adam);
  EXPECT_LT(moment.max().item<double>(), 6e-8) << "half would hold zero";
  std::stringstream file;
  torch::save(optimizer, file);
  Line other;
  torch::optim::Adam other_adam(other->parameters(), 1e-3);
  auto [other_model, other_optimizer] = initialize(other, other_adam, at_level("O2"));
  torch::load(other_optimizer, file);
  EXPECT_TRUE(torch::equal(second_moment(other_adam), moment));
}

TEST(Defect, Number15AGroupAddedToAFusedOptimizerIsSteppedFromItsFirstGradient) {
  for (const bool deferred : {false, true}) {
    TinyNet net;
    optim::FusedSGD sgd(net->first->parameters(), optim::FusedSGDOptions(0.1));
    Options options = at_level("O2");
    options.defer_unscale = deferred;
    auto [model, optimizer] = initialize(net, sgd, options);
    scale_loss(loss_of(model), optimizer).backward();
    optimizer.step();
    optimizer.add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
    const at::Tensor before = master_params(optimizer)[2].detach().clone();
    optimizer.zero_grad();
    scale_loss(loss_of(model), optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());
    const at::Tensor moved = (master_params(optimizer)[2].detach() - before).abs().max();
    EXPECT_GT(moved.item<double>(), 0) << deferred;
    EXPECT_LT(moved.item<double>(), 1) << deferred << ": by an unscaled gradient";
  }
}

TEST(Defect, Number16ScopesSurviveExceptionsAndNest) {
  TinyNet net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, at_level("O1"));
  const auto breaks = [&model = model, &optimizer = optimizer] {
    const ScaledLoss scaled = scale_loss(loss_of(model), optimizer);
    throw std::runtime_error("inside");
  };
  EXPECT_THROW(breaks(), std::runtime_error);
  scale_loss(loss_of(model), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
  const auto type = model.call([](TinyNetImpl& each) {
    const DisableCasts outer;
    { const DisableCasts inner; }
    return each.first(inputs()).scalar_type();
  });
  EXPECT_EQ(type, at::kFloat) << "leaving the inner scope switched casts on";
}

TEST(Defect, Number17TheDynamicScaleHasAFloorAndNeverIsZero) {
  for (const std::string level : {"O1", "O2"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.125);
    Options options = at_level(level);
    options.init_loss_scale = 0x1p-12;
    auto [model, optimizer] = initialize(net, sgd, options);
    for (int step = 0; step < 40; ++step) {
      scale_loss(model(row()).sum() * kInf, optimizer).backward();
      EXPECT_TRUE(optimizer.step().skipped()) << level;
    }
    EXPECT_EQ(optimizer.loss_scale(), 0x1p-14) << level;
    scale_loss(model(row() * 1024).sum(), optimizer).backward();
    EXPECT_TRUE(torch::equal(master_params(optimizer)[0].grad(), row() * 1024)) << level;
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

TEST(Defect, Number18NothingOfASkippedStepStaysInGradients) {
  for (const std::string level : {"O1", "O2", "O5"}) {
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    Options options = at_level(level);
    options.loss_scale = "dynamic";
    auto [model, optimizer] = initialize(net, sgd, options);
    scale_loss(loss_of(model) * kInf, optimizer).backward();
    EXPECT_TRUE(optimizer.step().skipped()) << level;
    for (const at::Tensor& master : master_params(optimizer)) {
      EXPECT_FALSE(master.grad().defined()) << level;
    }
    scale_loss(loss_of(model), optimizer).backward();  // no zero_grad
    EXPECT_TRUE(optimizer.step().applied()) << level;
  }
}

}  // namespace
}  // namespace mezzo::amp
