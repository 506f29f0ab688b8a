// The public names of Amp, policies and scopes, used as a program would.
#include <gtest/gtest.h>
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <filesystem>
#include <sstream>

namespace amp = mezzo::amp;

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : fc(register_module("fc", torch::nn::Linear(4, 3))),
        bn(register_module("bn", torch::nn::BatchNorm1d(3))) {}
  at::Tensor forward(const at::Tensor& x, double factor = 1.0) { return bn(fc(x)) * factor; }
  at::Tensor features(const at::Tensor& x) { return fc(x); }
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d bn;
};
TORCH_MODULE(Net);

torch::optim::SGDOptions sgd_options() {
  return torch::optim::SGDOptions(0.1).momentum(0.9);
}

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("mezzo_public_names_" + name)).string();
}

TEST(AmpNames, LossScaleComesFromNumbersAndWords) {
  amp::LossScale from_double = 128.0, from_int = 128, from_word = "dynamic", from_text = "128.0",
                 from_string = std::string("64");
  EXPECT_TRUE(from_word.is_dynamic());
  EXPECT_FALSE(from_int.is_dynamic());
  EXPECT_EQ(from_double.value(), from_text.value());
  EXPECT_EQ(from_string.value(), 64.0);
  EXPECT_THROW(amp::LossScale(0), mezzo::ConfigError);
  EXPECT_THROW(amp::LossScale(-1.0), mezzo::ConfigError);
  EXPECT_THROW(amp::LossScale("often"), mezzo::ConfigError);
}

TEST(AmpNames, EveryOptionCanBeDesignated) {
  amp::Options options{.enabled = true,
                       .opt_level = "O2",
                       .cast_model_type = at::kHalf,
                       .patch_torch_functions = false,
                       .keep_batchnorm_fp32 = true,
                       .master_weights = true,
                       .loss_scale = "dynamic",
                       .cast_model_outputs = at::kFloat,
                       .num_losses = 2,
                       .min_loss_scale = 1.0,
                       .max_loss_scale = 16777216.0,
                       .init_loss_scale = 65536.0,
                       .growth_interval = 2000,
                       .verbosity = 0,
                       .defer_unscale = false,
                       .check_finite = true,
                       .protect_batchnorm = true,
                       .protect_rng = false,
                       .overflow_group = amp::OverflowGroup::none(),
                       .policy = mezzo::Policy::defaults()};
  EXPECT_EQ(options.num_losses, 2);
  auto flags = amp::Options::from_flags(
      {{"opt_level", "O2"}, {"keep_batchnorm_fp32", "True"}, {"loss_scale", "None"}});
  EXPECT_EQ(flags.opt_level, "O2");
  EXPECT_EQ(flags.keep_batchnorm_fp32, true);
  EXPECT_FALSE(flags.loss_scale.has_value());
  EXPECT_THROW(amp::Options::from_flags({{"keep_batchnorm", "True"}}), mezzo::ConfigError);
  amp::Properties o2 = amp::level_defaults("O2");
  EXPECT_TRUE(o2.enabled);
  EXPECT_EQ(o2.opt_level, "O2");
  EXPECT_EQ(o2.cast_model_type, at::kHalf);
  EXPECT_FALSE(o2.patch_torch_functions);
  EXPECT_EQ(o2.keep_batchnorm_fp32, true);
  EXPECT_EQ(o2.master_weights, true);
  EXPECT_TRUE(o2.loss_scale.is_dynamic());
}

TEST(AmpNames, ThreeLinesTrain) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  auto x = torch::randn({8, 4});
  optimizer.zero_grad();
  auto loss = model(x).mean();
  amp::scale_loss(loss, optimizer).backward();
  amp::StepResult result = optimizer.step();
  EXPECT_TRUE(result.applied());
  EXPECT_FALSE(result.skipped());
  EXPECT_EQ(result.scale_before(), result.scale_after());
  EXPECT_EQ(result.reason(), result.reason());
  EXPECT_EQ(optimizer.applied_steps(), 1);
  EXPECT_EQ(optimizer.skipped_steps(), 0);
  EXPECT_EQ(optimizer.empty_steps(), 0);
}

TEST(AmpNames, ModelActsLikeTheModule) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  const auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  auto x = torch::randn({8, 4});
  EXPECT_EQ(model(x, 2.0).scalar_type(), at::kFloat);
  EXPECT_EQ(model.forward(x).scalar_type(), at::kFloat);
  EXPECT_EQ(model->forward(x).scalar_type(), at::kFloat);
  EXPECT_EQ(model.call(&NetImpl::features, x).scalar_type(), at::kFloat);
  EXPECT_EQ(model.call([&](NetImpl& bare) { return bare.forward(x); }).scalar_type(), at::kFloat);
  EXPECT_EQ(model->parameters().size(), net->parameters().size());
  EXPECT_EQ(model.named_parameters().size(), net->named_parameters().size());
  EXPECT_EQ(model.buffers().size(), net->buffers().size());
  EXPECT_EQ(model.named_buffers().size(), net->named_buffers().size());
  model->train();
  model.eval();
  EXPECT_FALSE(model.is_training());
  model.train(true);
  model.zero_grad();
  model.to(at::kCPU);
  EXPECT_EQ(model.module().get(), net.get());
  EXPECT_EQ(model.properties().opt_level, "O1");
}

TEST(AmpNames, OptimizerTellsAndTakes) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O2", .verbosity = 0});
  EXPECT_EQ(&optimizer.inner(), &sgd);
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
  EXPECT_EQ(optimizer.loss_scale(), 65536.0);
  optimizer.set_loss_scale(1024.0, 0);
  EXPECT_EQ(optimizer.loss_scale(0), 1024.0);
  auto extra = torch::ones({2}).requires_grad_();
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({extra}));
  optimizer.invalidate_casts();
  auto scaled = optimizer.scale(torch::ones({1}));
  optimizer.unscale({scaled});
  EXPECT_EQ(scaled.item<float>(), 1.0F);
  auto average = torch::zeros({3});
  optimizer.protect({average});
  EXPECT_EQ(optimizer.properties().opt_level, "O2");
  EXPECT_EQ(amp::master_params(optimizer).size(), 5U);
  amp::Optimizer copy = optimizer;
  EXPECT_EQ(copy.loss_scale(), 1024.0);
  optimizer.zero_grad(false);
  optimizer.zero_grad();
}

TEST(AmpNames, ClosuresStep) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O0", .verbosity = 0});
  auto x = torch::randn({8, 4});
  auto result = optimizer.step([&model = model, &optimizer = optimizer, &x] {
    optimizer.zero_grad();
    auto loss = model(x).mean();
    amp::scale_loss(loss, optimizer).backward();
    return loss;
  });
  EXPECT_TRUE(result.applied());
}

TEST(AmpNames, SeveralOfEither) {
  Net d, g;
  torch::optim::SGD sgd_d(d->parameters(), sgd_options()), sgd_g(g->parameters(), sgd_options());
  auto [models, optimizers] = amp::initialize(std::tie(d, g), std::tie(sgd_d, sgd_g),
                                              {.opt_level = "O1", .num_losses = 3, .verbosity = 0});
  auto& [model_d, model_g] = models;
  auto& [optimizer_d, optimizer_g] = optimizers;
  auto x = torch::randn({8, 4});
  auto loss = model_d(x).mean() + model_g(x).mean();
  {
    auto scaled = amp::scale_loss(loss, {optimizer_d, optimizer_g}, {.loss_id = 2});
    EXPECT_EQ((*scaled).dim(), 0);
    EXPECT_EQ(scaled->dim(), 0);
    scaled.backward();
    scaled.close();
  }
  auto again = model_d(x).mean() + model_g(x).mean();
  amp::scale_loss(again, optimizers,
                  {.loss_id = 1, .delay_unscale = false, .delay_overflow_check = false})
      .backward({}, false, false);
  optimizer_d.step();
  optimizer_g.step();

  std::vector<Net> nets{Net(), Net()};
  torch::optim::SGD first(nets[0]->parameters(), sgd_options()),
      second(nets[1]->parameters(), sgd_options());
  std::vector<std::reference_wrapper<torch::optim::Optimizer>> bare{first, second};
  auto [many, wrapped] = amp::initialize(nets, bare, {.opt_level = "O1", .verbosity = 0});
  auto sum = many[0](x).mean() + many[1](x).mean();
  amp::scale_loss(sum, std::span<amp::Optimizer>(wrapped)).backward();
  amp::scale_loss(many[0](x).mean() + many[1](x).mean(), wrapped, {.loss_id = 0}).backward();
  for (auto& optimizer : wrapped) EXPECT_TRUE(optimizer.step().applied());

  Net one, two;
  torch::optim::SGD both(one->parameters(), sgd_options());
  auto [pair, single] =
      amp::initialize(std::tie(one, two), both, {.opt_level = "O1", .verbosity = 0});
  static_assert(std::is_same_v<std::decay_t<decltype(single)>, amp::Optimizer>);
  static_assert(std::tuple_size_v<std::decay_t<decltype(pair)>> == 2);

  std::vector<Net> others{Net(), Net()};
  torch::optim::SGD of_first(others[0]->parameters(), sgd_options()),
      of_second(others[1]->parameters(), sgd_options());
  mezzo::optim::LARC larc(of_first);
  auto [vector, tuple] = amp::initialize(others, std::tie(larc, of_second), {.verbosity = 0});
  static_assert(std::is_same_v<std::decay_t<decltype(vector)>, std::vector<amp::Model<Net>>>);
  static_assert(
      std::is_same_v<std::decay_t<decltype(tuple)>, std::tuple<amp::Optimizer, amp::Optimizer>>);

  Net alone;
  amp::Model<Net> inference = amp::initialize(alone, {.opt_level = "O4", .verbosity = 0});
  EXPECT_EQ(inference(x).scalar_type(), at::kFloat);
}

TEST(AmpNames, StateOfScalersAndModels) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  auto [model, optimizer] =
      amp::initialize(net, sgd, {.opt_level = "O2", .num_losses = 2, .verbosity = 0});
  amp::StateDict state = amp::state_dict(optimizer);
  EXPECT_EQ(state.size(), 2U);
  EXPECT_EQ(state.keys(), (std::vector<std::string>{"loss_scaler0", "loss_scaler1"}));
  amp::ScalerState& scaler = state.at("loss_scaler0");
  scaler.loss_scale = 512.0;
  scaler.unskipped = 7;
  amp::load_state_dict(optimizer, state);
  EXPECT_EQ(optimizer.loss_scale(0), 512.0);
  amp::StateDict made;
  made.insert("loss_scaler0", amp::ScalerState{.loss_scale = 2.0, .unskipped = 1});
  EXPECT_EQ(made.size(), 1U);

  torch::OrderedDict<std::string, at::Tensor> weights = amp::model_state_dict(model);
  EXPECT_EQ(weights["fc.weight"].scalar_type(), at::kFloat);
  amp::load_model_state_dict(model, weights);
  amp::load_model_state_dict(model, weights, /*strict=*/false);

  const auto path = temporary("archive.pt");
  torch::save(model, path);
  torch::load(model, path);
  torch::save(optimizer, path);
  torch::load(optimizer, path);
  torch::save(state, path);
  torch::load(state, path);
  amp::CheckpointOptions options{.rng_state = true,
                                 .gradients = true,
                                 .tensors = {{"average", torch::ones({2})}},
                                 .entries = {{"epoch", "3"}}};
  amp::save_checkpoint(path, model, optimizer, options);
  amp::Checkpoint loaded = amp::load_checkpoint(path, model, optimizer, {.rng_state = true});
  EXPECT_EQ(loaded.entries.at("epoch"), "3");
  EXPECT_EQ(loaded.tensors.at("average").numel(), 2);
  amp::save_checkpoint(path, std::tie(model), std::tie(optimizer));
  amp::load_checkpoint(path, std::tie(model), std::tie(optimizer));
  std::filesystem::remove(path);
}

TEST(AmpNames, ScheduleFollowsAppliedSteps) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  auto [model, optimizer] = amp::initialize(net, sgd, {.opt_level = "O1", .verbosity = 0});
  torch::optim::StepLR step_lr(sgd, 1, 0.5);
  amp::Schedule schedule(step_lr, optimizer);
  for (int step = 0; step < 2; ++step) {  // StepLR leaves the rate at its first step
    optimizer.zero_grad();
    auto loss = model(torch::randn({8, 4})).mean();
    amp::scale_loss(loss, optimizer).backward();
    optimizer.step();
    schedule.step();
  }
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.05);
}

TEST(AmpNames, GradScalerHasTorchAmpsInterface) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  amp::GradScaler scaler({.init_scale = 1024,
                          .growth_factor = 2,
                          .backoff_factor = 0.5,
                          .growth_interval = 2000,
                          .enabled = true});
  auto loss = net(torch::randn({8, 4})).sum();
  scaler.scale(loss).backward();
  EXPECT_EQ(scaler.scale(std::vector<at::Tensor>{loss, loss}).size(), 2U);
  scaler.unscale_(sgd);
  amp::StepResult result = scaler.step(sgd);
  scaler.update();
  EXPECT_TRUE(result.applied());
  scaler.update(256.0);
  EXPECT_EQ(scaler.get_scale(), 256.0);
  EXPECT_TRUE(scaler.is_enabled());
  amp::GradScalerState state = scaler.state_dict();
  state.scale = 8.0;
  state.growth_tracker = 3;
  scaler.load_state_dict(state);
  EXPECT_EQ(scaler.get_scale(), 8.0);
}

TEST(PolicyNames, PoliciesAreValues) {
  using mezzo::CastClass;
  mezzo::Policy policy = mezzo::Policy::defaults();
  EXPECT_EQ(policy.low(), at::kHalf);
  EXPECT_EQ(mezzo::Policy::defaults(at::kBFloat16).low(), at::kBFloat16);
  EXPECT_EQ(policy.classify("softmax"), CastClass::kFloat);
  EXPECT_EQ(policy.classify("aten::softmax"), CastClass::kFloat);
  EXPECT_EQ(policy.classify("softmax.int"), CastClass::kFloat);
  EXPECT_EQ(policy.classify("mm"), CastClass::kLow);
  EXPECT_EQ(policy.with("softmax", CastClass::kLow).classify("softmax"), CastClass::kLow);
  EXPECT_EQ(policy.classify("softmax"), CastClass::kFloat) << "a policy does not change";
  EXPECT_FALSE(policy.why("softmax").empty());
  auto conditional = policy.with_conditional("gelu", "approximate", {"tanh"});
  EXPECT_EQ(conditional.classify("gelu"), CastClass::kConditional);
  std::stringstream text;
  policy.with("softmax", CastClass::kLow).to_toml(text);
  EXPECT_EQ(mezzo::Policy::from_toml(text, "mine").classify("softmax"), CastClass::kLow);
  EXPECT_THROW(policy.with("sofmax", CastClass::kLow), mezzo::ConfigError);
  for (auto kind : {CastClass::kPromote, CastClass::kBanned, CastClass::kNeutral})
    EXPECT_NE(kind, CastClass::kLow);
}

TEST(PolicyNames, BothSystemsLists) {
  EXPECT_FALSE(mezzo::list_lp16_ops(at::kHalf).empty());
  EXPECT_FALSE(mezzo::list_fp32_ops(at::kHalf).empty());
  EXPECT_FALSE(mezzo::list_lp16_fp32_ops(at::kBFloat16).empty());
  EXPECT_FALSE(mezzo::list_widest_type_cast(at::kHalf).empty());
  EXPECT_FALSE(mezzo::list_loss_output_functions(at::kHalf).empty());
  std::vector<mezzo::Conditional> conditional = mezzo::list_conditional_fp32_ops(at::kHalf);
  EXPECT_FALSE(conditional.empty());
  EXPECT_FALSE(conditional.front().op.empty() || conditional.front().argument.empty() ||
               conditional.front().values.empty());
  std::map<std::string, std::vector<std::string>> parameters =
      mezzo::list_lp16_use_fp32_params(at::kBFloat16);
  EXPECT_FALSE(parameters.empty());
}

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    seen = x.scalar_type();
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
  static inline at::ScalarType seen = at::kDouble;
};

TEST(AutocastNames, ScopesNest) {
  auto x = torch::randn({4, 4});
  EXPECT_FALSE(amp::Autocast::current().has_value());
  {
    amp::Autocast scope(mezzo::Policy::defaults(at::kBFloat16));
    EXPECT_EQ(amp::Autocast::current()->low(), at::kBFloat16);
    EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kBFloat16);
    {
      amp::DisableCasts off;
      EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kFloat);
    }
    auto dtype_of = [](const at::Tensor& t) { return t.scalar_type(); };
    EXPECT_EQ(amp::half_function(dtype_of)(x), at::kBFloat16);
    EXPECT_EQ(amp::float_function(dtype_of)(x.to(at::kHalf)), at::kFloat);
    auto sum =
        amp::promote_function([](const at::Tensor& a, const at::Tensor& b) { return a + b; });
    EXPECT_EQ(sum(x, x.to(at::kBFloat16)).scalar_type(), at::kFloat);
    const auto half = amp::half_function(dtype_of);
    const auto wide = amp::float_function(dtype_of);
    const auto promoted = amp::promote_function(dtype_of);
    EXPECT_EQ(half(x), at::kBFloat16);
    EXPECT_EQ(wide(x.to(at::kHalf)), at::kFloat);
    EXPECT_EQ(promoted(x), at::kFloat);
    std::function<at::ScalarType(const at::Tensor&)> kept = half;
    EXPECT_EQ(kept(x), at::kBFloat16);
    amp::custom_function<Twice>(at::kFloat, x.to(at::kBFloat16));
    EXPECT_EQ(Twice::seen, at::kFloat);
  }
  EXPECT_EQ(torch::mm(x, x).scalar_type(), at::kFloat);
  EXPECT_THROW(amp::register_half_function("no_such::op"), mezzo::Error);
  EXPECT_THROW(amp::register_float_function("no_such::op"), mezzo::Error);
  EXPECT_THROW(amp::register_promote_function("no_such::op"), mezzo::Error);
}

TEST(HardwareNames, ModesAndSets) {
  EXPECT_FALSE(mezzo::hardware_report().empty());
  mezzo::set_compute_mode(at::kHalf, mezzo::ComputeMode::kEmulated);
  EXPECT_EQ(mezzo::compute_mode(at::kHalf), mezzo::ComputeMode::kEmulated);
  mezzo::set_compute_mode(at::kHalf, mezzo::ComputeMode::kNative);
  mezzo::set_compute_mode(at::kHalf, mezzo::ComputeMode::kAuto);
  EXPECT_NE(mezzo::compute_mode(at::kHalf), mezzo::ComputeMode::kAuto) << "what kAuto chose";
  EXPECT_THROW(mezzo::set_compute_mode(at::kFloat, mezzo::ComputeMode::kNative),
               mezzo::ConfigError);
  const auto sets = mezzo::kernel_sets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), "baseline");
  const auto before = mezzo::kernel_set();
  mezzo::set_kernel_set("baseline");
  EXPECT_EQ(mezzo::kernel_set(), "baseline");
  mezzo::set_kernel_set(before);
  EXPECT_THROW(mezzo::set_kernel_set("abacus"), mezzo::ConfigError);
}

}  // namespace
