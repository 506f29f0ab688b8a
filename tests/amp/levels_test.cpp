#include <gmock/gmock.h>

#include "amp/training.h"
#include "mezzo/autocast.h"
#include "mezzo/cast_counts.h"
#include "mezzo/hardware.h"

namespace mezzo::amp {
namespace {

TEST(Levels, ThreeLinesTrainAtEveryLevel) {
  for (const std::string& level : kLevels) {
    torch::manual_seed(1);
    TinyNet net;
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    double first = 0;
    double last = 0;
    for (int step = 0; step < 30; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = loss_of(model);
      scale_loss(loss, optimizer).backward();
      optimizer.step();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, 0.7 * first) << level;
    EXPECT_EQ(optimizer.applied_steps() + optimizer.skipped_steps(), 30) << level;
    EXPECT_LE(optimizer.skipped_steps(), 3) << level;
  }
}

TEST(Levels, GiveWeightsTheirTypes) {
  struct Row {
    std::string level;
    at::ScalarType weight, norm, statistics;
  };
  const std::vector<Row> rows{
      {"O0", at::kFloat, at::kFloat, at::kFloat}, {"O1", at::kFloat, at::kFloat, at::kFloat},
      {"O2", at::kHalf, at::kFloat, at::kFloat},  {"O3", at::kHalf, at::kHalf, at::kHalf},
      {"O4", at::kFloat, at::kFloat, at::kFloat}, {"O5", at::kBFloat16, at::kFloat, at::kFloat}};
  for (const Row& row : rows) {
    TinyNet net;
    auto model = initialize(net, at_level(row.level));
    EXPECT_EQ(net->first->weight.scalar_type(), row.weight) << row.level;
    EXPECT_EQ(net->norm->weight.scalar_type(), row.norm) << row.level;
    EXPECT_EQ(net->norm->running_mean.scalar_type(), row.statistics) << row.level;
    EXPECT_EQ(net->norm->num_batches_tracked.scalar_type(), at::kLong) << row.level;
  }
}

TEST(Levels, KeepBatchNormsWithoutParametersInFloatToo) {
  TinyNet net(/*affine=*/false);
  auto model = initialize(net, at_level("O2"));
  EXPECT_EQ(net->norm->running_mean.scalar_type(), at::kFloat);
  EXPECT_EQ(model(inputs()).scalar_type(), at::kFloat);
}

TEST(Levels, AcceptEveryFloatingInputAndGiveFloat) {
  for (const std::string& level : kLevels) {
    TinyNet net;
    auto model = initialize(net, at_level(level));
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      EXPECT_EQ(model(inputs().to(type)).scalar_type(), at::kFloat) << level << " " << type;
    }
  }
}

TEST(Levels, OutputsAreCastAsAsked) {
  for (const std::string level : {"O0", "O2", "O3"}) {
    TinyNet net;
    Options options = at_level(level);
    options.cast_model_outputs = at::kBFloat16;
    EXPECT_EQ(initialize(net, options)(inputs()).scalar_type(), at::kBFloat16);
    options.cast_model_outputs = at::ScalarType::Undefined;
    EXPECT_EQ(initialize(net, options)(inputs()).scalar_type(),
              level == "O0" ? at::kFloat : at::kHalf);
  }
}

TEST(Levels, NeverTouchDoublesUnlessToldSo) {
  TinyNet net;
  net->to(at::kDouble);
  {
    auto model = initialize(net, at_level("O0"));
    EXPECT_EQ(net->first->weight.scalar_type(), at::kDouble);
    EXPECT_EQ(model(inputs().to(at::kDouble)).scalar_type(), at::kDouble);
  }
  const auto before = values_of(*net);
  {
    Options options = at_level("O2");
    options.cast_model_type = at::kHalf;
    auto model = initialize(net, options);
    EXPECT_EQ(net->first->weight.scalar_type(), at::kHalf);
    EXPECT_EQ(model(inputs().to(at::kDouble)).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(net->first->weight.scalar_type(), at::kDouble);
}

TEST(Levels, KeepTheTypesThatTheCallerChose) {
  TinyNet net;
  net->first->to(at::kHalf);
  Options options = at_level("O0");
  options.cast_model_type = at::ScalarType::Undefined;
  auto model = initialize(net, options);
  EXPECT_EQ(net->first->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(net->second->weight.scalar_type(), at::kFloat);
  const at::Tensor features = model.call(&TinyNetImpl::features, inputs().to(at::kHalf));
  EXPECT_EQ(features.scalar_type(), at::kFloat);
}

TEST(Levels, RunOtherMembersAndCallablesUnderTheSameCasts) {
  TinyNet net;
  auto model = initialize(net, at_level("O2"));
  EXPECT_EQ(model.call(&TinyNetImpl::features, inputs()).scalar_type(), at::kFloat);
  const auto call = [](TinyNetImpl& bare, const at::Tensor& x) {
    EXPECT_EQ(x.scalar_type(), at::kHalf);
    return std::pair(bare.features(x), 7);
  };
  const auto [features, number] = model.call(call, inputs());
  EXPECT_EQ(features.scalar_type(), at::kFloat);
  EXPECT_EQ(number, 7);
  EXPECT_EQ(model->forward(inputs()).scalar_type(), at::kFloat);
  EXPECT_EQ(&model.module()->first->weight, &net->first->weight);
}

TEST(Levels, WrapSequentialsAndSharedPointers) {
  torch::nn::Sequential sequential(torch::nn::Linear(4, 3), torch::nn::ReLU());
  EXPECT_EQ(initialize(sequential, at_level("O2"))(inputs()).scalar_type(), at::kFloat);
  auto pointer = std::make_shared<TinyNetImpl>();
  auto model = initialize(pointer, at_level("O3"));
  EXPECT_EQ(model(inputs()).sizes(), (std::vector<std::int64_t>{8, 2}));
  model->eval();
  EXPECT_FALSE(pointer->is_training());
}

/// SGD with momentum over float64 masters, as the levels with masters must behave.
TEST(Levels, MastersFollowADoubleReplay) {
  for (const std::string level : {"O2", "O5"}) {
    Line net;
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.125).momentum(0.5));
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    at::Tensor master = torch::tensor({{1.0, -0.5, 0.25}}, at::kDouble);
    at::Tensor momentum = torch::zeros_like(master);
    const at::Tensor x = torch::tensor({{0.5F, -1.0F, 2.0F}, {1.0F, 0.25F, -0.5F}});
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      scale_loss(model(x).sum(), optimizer).backward();
      ASSERT_TRUE(optimizer.step().applied());
      momentum = momentum * 0.5 + x.to(at::kDouble).sum(0, true);
      master = master - 0.125 * momentum;
      EXPECT_TRUE(torch::allclose(master_params(optimizer)[0].to(at::kDouble), master, 1e-6, 1e-7))
          << level;
      EXPECT_TRUE(torch::equal(net->line->weight,
                               master_params(optimizer)[0].to(net->line->weight.scalar_type())));
    }
  }
}

TEST(Levels, DisabledIsAsIfWeWereNotThere) {
  for (const std::string& level : kLevels) {
    torch::manual_seed(3);
    TinyNet ours;
    torch::manual_seed(3);
    TinyNet plain;
    torch::optim::Adam our_adam(ours->parameters(), 0.01);
    torch::optim::Adam plain_adam(plain->parameters(), 0.01);
    const Listener listener;
    auto [model, optimizer] = initialize(ours, our_adam, {.enabled = false, .opt_level = level});
    EXPECT_FALSE(model.properties().enabled);
    EXPECT_EQ(model.properties().opt_level, level);
    EXPECT_EQ(optimizer.loss_scale(), 1) << "what losses are multiplied by";
    for (int step = 0; step < 5; ++step) {
      optimizer.step();  // any order is allowed
      optimizer.zero_grad();
      plain_adam.step();
      plain_adam.zero_grad();
      scale_loss(loss_of(model), optimizer).backward();
      loss_of(plain).backward();
      EXPECT_TRUE(optimizer.step().applied());
      plain_adam.step();
    }
    EXPECT_TRUE(same_values(values_of(*ours), values_of(*plain))) << level;
    EXPECT_EQ(listener.heard, "");
    const at::Tensor vector = torch::ones({3}, at::TensorOptions().requires_grad(true)) * 2;
    EXPECT_TRUE((*scale_loss(vector, optimizer)).is_same(vector));
  }
}

TEST(Levels, DisabledTakesHalfModels) {
  TinyNet net;
  net->to(at::kHalf);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = initialize(net, sgd, {.enabled = false});
  EXPECT_EQ(net->first->weight.scalar_type(), at::kHalf);
}

TEST(Levels, RecurrentLayersConvertWithTheirWeights) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3));
  torch::optim::SGD sgd(lstm->parameters(), 0.1);
  auto [model, optimizer] = initialize(lstm, sgd, at_level("O5"));
  const auto [output, state] = model(torch::ones({5, 2, 4}));
  EXPECT_EQ(output.scalar_type(), at::kFloat);
  EXPECT_EQ(std::get<0>(state).scalar_type(), at::kFloat);
  scale_loss(output.mean(), optimizer).backward();
  EXPECT_TRUE(optimizer.step().applied());
}

/// Sums whatever tensors it is handed.
struct SumsImpl : torch::nn::Module {
  SumsImpl() : line(register_module("line", torch::nn::Linear(3, 2))) {}
  at::Tensor forward(at::TensorList parts) { return line(torch::stack(parts).sum(0)); }
  at::Tensor nested(const std::map<std::string, std::optional<at::TensorList>>& parts) {
    seen = parts.at("x")->at(0).scalar_type();
    return forward(*parts.at("x"));
  }
  torch::nn::Linear line;
  at::ScalarType seen = at::kLong;
};
TORCH_MODULE(Sums);

TEST(Levels, CastTensorListsInAnyNesting) {
  for (const char* level : {"O2", "O3", "O5"}) {
    Sums net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const std::vector<at::Tensor> parts{torch::ones({2, 3}), torch::ones({2, 3})};
    EXPECT_EQ(model(at::TensorList(parts)).scalar_type(), at::kFloat) << level;
    const std::map<std::string, std::optional<at::TensorList>> nested{{"x", at::TensorList(parts)}};
    EXPECT_TRUE(torch::equal(model.call(&SumsImpl::nested, nested), model(at::TensorList(parts))));
    EXPECT_EQ(net->seen, net->line->weight.scalar_type()) << level;
    EXPECT_EQ(parts[0].scalar_type(), at::kFloat);
  }
}

struct FillingNetImpl : torch::nn::Module {
  FillingNetImpl() : line(register_module("line", torch::nn::Linear(2, 2))) {}
  at::Tensor forward(const at::Tensor& x, std::vector<at::Tensor>& features, at::Tensor& last) {
    features.push_back(line(x));
    last = features.back();
    TORCH_CHECK(features.size() < 3, "too many");
    return last;
  }
  torch::nn::Linear line;
};
TORCH_MODULE(FillingNet);

TEST(Levels, FillTheCallersContainers) {
  for (const std::string& level : kLevels) {
    FillingNet net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level(level));
    const at::Tensor own = torch::ones({1});
    std::vector<at::Tensor> features{own};
    at::Tensor last;
    model(torch::ones({2, 2}), features, last);
    ASSERT_EQ(features.size(), 2U) << level;
    EXPECT_TRUE(features[0].is_same(own)) << level;
    EXPECT_TRUE(last.is_same(features[1])) << level;
    EXPECT_THROW(model(torch::ones({2, 2}), features, last), c10::Error) << level;
    EXPECT_EQ(features.size(), 3U) << level << ": as without a level";
  }
}

TEST(Levels, TrainAndEvalCastWeightsAnew) {
  for (const char* level : {"O1", "O4"}) {
    Line net;
    auto model = initialize(net, at_level(level));
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::ones({1, 3});
    EXPECT_EQ(model(x).item<float>(), 0.75F);
    net->line->weight.data().mul_(2);  // nothing tells of this write
    model->eval();
    EXPECT_EQ(model(x).item<float>(), 1.5F) << level;
    net->line->weight.data().mul_(2);
    model->train();
    EXPECT_EQ(model(x).item<float>(), 3.0F) << level;
  }
}

TEST(Levels, EmulationChangesNoTypeAtWholeModelLevels) {
  for (const ComputeMode mode : {ComputeMode::kEmulated, ComputeMode::kNative}) {
    set_compute_mode(at::kHalf, mode);
    Line net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = initialize(net, sgd, at_level("O2"));
    model.call([](LineImpl& line) {
      const at::Tensor x = torch::ones({2, 3}, at::kHalf);
      EXPECT_EQ(torch::softmax(x, 1).scalar_type(), at::kHalf);
      EXPECT_EQ(line.line(x).scalar_type(), at::kHalf);
      const DisableCasts off;
      const std::int64_t before = cast_counts().activation_casts;
      EXPECT_EQ(line.line(x).scalar_type(), at::kHalf);
      const bool emulates = cast_counts().activation_casts > before;
      EXPECT_EQ(emulates, compute_mode(at::kHalf) == ComputeMode::kEmulated);
    });
  }
  set_compute_mode(at::kHalf, ComputeMode::kAuto);
}

}  // namespace
}  // namespace mezzo::amp
