// The names of the two older interfaces, used as a program would.
#include <gtest/gtest.h>
#include <mezzo/fp16_utils.h>
#include <mezzo/legacy_amp.h>
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <filesystem>

namespace fp16 = mezzo::fp16_utils;
namespace legacy = mezzo::amp::legacy;

namespace {

TEST(Fp16UtilsNames, OptimizerTrainsAHalfNetwork) {
  torch::nn::Linear net(4, 2);
  auto half = fp16::network_to_half(net);
  static_assert(std::is_same_v<decltype(half), fp16::HalfNetwork<torch::nn::Linear>>);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  fp16::FP16OptimizerOptions options{
      .static_loss_scale = 1.0,
      .dynamic_loss_scale = true,
      .dynamic_loss_args =
          fp16::DynamicLossArgs{.init_scale = 256, .scale_factor = 2, .scale_window = 1000},
      .verbose = false};
  fp16::FP16_Optimizer optimizer(sgd, options);
  optimizer.zero_grad();
  optimizer.zero_grad(true);
  auto loss = half(torch::ones({3, 4})).to(at::kFloat).sum();
  optimizer.backward(loss, false, false);
  optimizer.update_master_grads();
  EXPECT_FALSE(optimizer.overflow());
  EXPECT_GT(optimizer.clip_master_grads(1.0, 2.0), 0.0);
  std::optional<std::vector<std::vector<at::Tensor>>> gradients =
      optimizer.inspect_master_grad_data();
  EXPECT_EQ(gradients->size(), 1U);
  optimizer.step();
  EXPECT_EQ(optimizer.loss_scale(), 256.0);
  optimizer.set_loss_scale(128.0);
  std::vector<torch::optim::OptimizerParamGroup>& groups = optimizer.param_groups();
  EXPECT_EQ(groups[0].params()[0].scalar_type(), at::kFloat);
  torch::serialize::OutputArchive saved;
  optimizer.save(saved);
  const auto path =
      (std::filesystem::temp_directory_path() / "mezzo_public_names_fp16.pt").string();
  saved.save_to(path);
  torch::serialize::InputArchive archive;
  archive.load_from(path);
  optimizer.load(archive);
  std::filesystem::remove(path);
  at::Tensor first = optimizer.step([&] {
    optimizer.zero_grad();
    auto again = half(torch::ones({3, 4})).to(at::kFloat).sum();
    optimizer.backward(again);
    return again;
  });
  EXPECT_TRUE(first.defined());
}

TEST(Fp16UtilsNames, ScalersAndConversions) {
  auto weight = torch::ones({2}).requires_grad_();
  fp16::LossScaler fixed(128.0);
  EXPECT_EQ(fixed.loss_scale(), 128.0);
  EXPECT_FALSE(fixed.has_overflow({weight}));
  fixed.backward(weight.sum(), false);
  EXPECT_EQ(fixed.scale_gradient(torch::ones({1})).item<double>(), 128.0);
  fp16::DynamicLossScaler moving(4294967296.0, 2.0, 1000);
  moving.update_scale(moving.has_overflow({weight}));
  EXPECT_EQ(moving.loss_scale(), 4294967296.0);

  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  fp16::convert_module(*net, at::kHalf);
  fp16::BN_convert_float(*net);
  fp16::convert_network(*net, at::kHalf);
  auto [model, master] = fp16::prep_param_lists(*net);
  EXPECT_EQ(model.size(), master.size());
  fp16::model_grads_to_master_grads(model, master, false);
  fp16::master_params_to_model_params(model, master);
  torch::nn::Linear other(4, 2);
  auto [flat_model, flat_master] = fp16::prep_param_lists(*other, true);
  EXPECT_EQ(flat_master.size(), 1U);
  EXPECT_EQ(fp16::to_python_float(torch::ones({1})), 1.0);
  fp16::FP16Model<torch::nn::Linear> wrapped(torch::nn::Linear(4, 2));
  EXPECT_EQ(wrapped(torch::ones({1, 4})).size(1), 2);
  EXPECT_EQ(fp16::tofp16()(torch::ones({1})).scalar_type(), at::kHalf);
}

TEST(LegacyNames, HandleAndWrapper) {
  torch::nn::Linear net(4, 2);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  legacy::AmpHandle handle = legacy::init({.enabled = true,
                                           .loss_scale = "dynamic",
                                           .enable_caching = true,
                                           .verbose = false,
                                           .allow_banned = false});
  EXPECT_TRUE(handle.is_active());
  EXPECT_TRUE(handle.has_cache());
  EXPECT_FALSE(handle.verbose());
  handle.scale_loss(net(torch::ones({3, 4})).sum(), sgd).backward();
  sgd.step();
  handle.clear_cache();
  handle.remove_cache(net->weight);
  torch::nn::Linear second(4, 2);
  torch::optim::SGD other(second->parameters(), torch::optim::SGDOptions(0.1));
  legacy::OptimWrapper wrapper = handle.wrap_optimizer(other, 2);
  wrapper.scale_loss(second(torch::ones({3, 4})).sum()).backward();
  wrapper.scale_loss(second(torch::ones({3, 4})).sum()).backward();
  wrapper.step();
  wrapper.zero_grad();
  EXPECT_EQ(&wrapper.inner(), &other);
  EXPECT_THROW(legacy::register_half_function("no_such::op"), mezzo::Error);
  auto dtype_of = [](const at::Tensor& x) { return x.scalar_type(); };
  EXPECT_EQ(legacy::half_function(dtype_of)(torch::ones({1})), at::kHalf);
  EXPECT_EQ(legacy::float_function(dtype_of)(torch::ones({1}, at::kHalf)), at::kFloat);
  EXPECT_EQ(legacy::promote_function(dtype_of)(torch::ones({1}, at::kHalf)), at::kHalf);
}

}  // namespace
