// The public names of optimizers, layers, processes and the converter, used as a program would.
#include <gtest/gtest.h>
#include <mezzo/convert.h>
#include <mezzo/mezzo.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>

namespace optim = mezzo::optim;
namespace parallel = mezzo::parallel;

namespace {

std::vector<at::Tensor> parameters_with_gradients() {
  std::vector<at::Tensor> parameters{torch::ones({3, 2}).requires_grad_(),
                                     torch::ones({5}).requires_grad_()};
  for (auto& parameter : parameters) parameter.mutable_grad() = torch::full_like(parameter, 0.5);
  return parameters;
}

template <class Optimizer, class Options>
void expect_steps(Options options) {
  auto parameters = parameters_with_gradients();
  Optimizer optimizer(parameters, options);
  optim::FusedOptimizer& base = optimizer;
  torch::optim::Optimizer& torch_base = base;
  torch_base.step();
  EXPECT_FALSE(parameters[0].equal(torch::ones({3, 2})));
  const auto after = parameters[0].detach().clone();
  base.step_unless(torch::ones({1}));
  EXPECT_TRUE(parameters[0].equal(after)) << "nothing moves where found_inf is not zero";
  base.step_unless(torch::zeros({1}, at::kInt), torch::full({1}, 0.5));
  EXPECT_FALSE(parameters[0].equal(after));
  optimizer.zero_grad();
}

TEST(OptimNames, EveryOptimizerAndOption) {
  expect_steps<optim::FusedAdam>(optim::FusedAdamOptions(1e-3)
                                     .betas({0.9, 0.999})
                                     .eps(1e-8)
                                     .weight_decay(0)
                                     .adam_w_mode(true)
                                     .bias_correction(true));
  expect_steps<optim::FusedSGD>(optim::FusedSGDOptions(0.1)
                                    .momentum(0.9)
                                    .dampening(0)
                                    .weight_decay(0.01)
                                    .nesterov(false)
                                    .wd_after_momentum(true));
  expect_steps<optim::FusedLAMB>(optim::FusedLAMBOptions(1e-3)
                                     .betas({0.9, 0.999})
                                     .eps(1e-6)
                                     .weight_decay(0.01)
                                     .max_grad_norm(1.0)
                                     .adam_w_mode(true)
                                     .bias_correction(true)
                                     .grad_averaging(true)
                                     .use_nvlamb(false));
  expect_steps<optim::FusedNovoGrad>(optim::FusedNovoGradOptions(1e-3)
                                         .betas({0.9, 0.999})
                                         .eps(1e-8)
                                         .weight_decay(0)
                                         .bias_correction(true)
                                         .grad_averaging(true)
                                         .reg_inside_moment(false)
                                         .init_zero(false)
                                         .norm_type(2));
  expect_steps<optim::FusedAdagrad>(
      optim::FusedAdagradOptions(1e-2).eps(1e-10).weight_decay(0).adagrad_w_mode(false));
}

TEST(OptimNames, OptionsMayBeLeftOutAsWithTorch) {
  const auto parameters = parameters_with_gradients();
  optim::FusedAdam adam(parameters), adam_at(parameters, 1e-3);
  optim::FusedSGD sgd(parameters, 0.1);
  optim::FusedLAMB lamb(parameters);
  optim::FusedNovoGrad novograd(parameters);
  optim::FusedAdagrad adagrad(parameters);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(parameters, std::make_unique<optim::FusedAdamOptions>(1e-2));
  optim::FusedAdam grouped(groups, optim::FusedAdamOptions(1e-3));
  EXPECT_EQ(grouped.param_groups()[0].options().get_lr(), 1e-2);
}

TEST(OptimNames, DefaultsAreTheOriginals) {
  EXPECT_EQ(optim::FusedAdamOptions().lr(), 1e-3);
  EXPECT_TRUE(optim::FusedAdamOptions().adam_w_mode());
  EXPECT_EQ(optim::FusedLAMBOptions().eps(), 1e-6);
  EXPECT_EQ(optim::FusedLAMBOptions().weight_decay(), 0.01);
  EXPECT_EQ(optim::FusedNovoGradOptions().norm_type(), 2);
  EXPECT_EQ(optim::FusedAdagradOptions().lr(), 1e-2);
  EXPECT_EQ(optim::FusedAdagradOptions().eps(), 1e-10);
}

TEST(OptimNames, LARCAndFunctions) {
  auto parameters = parameters_with_gradients();
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1));
  optim::LARC larc(sgd, {.trust_coefficient = 0.02, .clip = true, .eps = 1e-8});
  EXPECT_EQ(&larc.inner(), &sgd);
  larc.step();
  larc.zero_grad();
  larc.zero_grad(false);

  auto others = parameters_with_gradients();
  EXPECT_NEAR(optim::clip_grad_norm_(others, 1.0, 2.0, false).item<double>(), 0.5 * std::sqrt(11.0),
              1e-6);
  auto found_inf = torch::zeros({1});
  std::vector<at::Tensor> in{torch::ones({4})}, out{torch::zeros({4})}, y{torch::ones({4})};
  optim::multi_tensor_scale(in, out, 2.0, found_inf);
  EXPECT_EQ(out[0][0].item<float>(), 2.0F);
  optim::multi_tensor_axpby(in, y, out, 2.0, 3.0, found_inf);
  EXPECT_EQ(out[0][0].item<float>(), 5.0F);
  auto [norm, norms] = optim::multi_tensor_l2norm(in, true);
  EXPECT_NEAR(norm.item<double>(), 2.0, 1e-6);
  EXPECT_EQ(norms.numel(), 1);
}

TEST(NnNames, NormsAndDenseLayers) {
  namespace nn = mezzo::nn;
  auto x = torch::randn({3, 8});
  nn::FusedLayerNorm layer(nn::NormOptions{
      .normalized_shape = {8}, .eps = 1e-5, .elementwise_affine = true, .memory_efficient = true});
  nn::FusedLayerNorm short_form(std::vector<std::int64_t>{8});
  nn::FusedRMSNorm rms(std::vector<std::int64_t>{8});
  EXPECT_TRUE(torch::allclose(short_form(x), torch::layer_norm(x, {8}), 1e-5, 1e-5));
  EXPECT_EQ(layer(x).sizes(), x.sizes());
  EXPECT_EQ(rms(x).sizes(), x.sizes());
  auto weight = torch::ones({8}), bias = torch::zeros({8});
  EXPECT_EQ(nn::fused_layer_norm(x, {8}, weight, bias, 1e-5).sizes(), x.sizes());
  EXPECT_EQ(nn::fused_rms_norm(x, {8}, weight, 1e-5).sizes(), x.sizes());
  auto [sum, norm] = nn::fused_add_layer_norm(x, x, {8}, weight, bias, 1e-5);
  EXPECT_TRUE(torch::allclose(sum, x + x));
  auto [rms_sum, rms_norm] = nn::fused_add_rms_norm(x, x, {8}, weight, 1e-5);
  EXPECT_TRUE(torch::allclose(rms_sum, x + x));
  nn::MLP mlp(nn::MLPOptions{.sizes = {8, 16, 4}, .bias = true, .activation = "relu"});
  EXPECT_EQ(mlp(x).size(1), 4);
  nn::FusedDense dense(8, 5), without_bias(8, 5, false);
  EXPECT_EQ(dense(x).size(1), 5);
  nn::FusedDenseGeluDense two(8, 16, 3);
  EXPECT_EQ(two(x).size(1), 3);
}

TEST(RecomputeNames, FunctionsAndSequences) {
  torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::Tanh(), torch::nn::Linear(4, 4));
  const at::Tensor x = torch::ones({2, 4});
  const auto scaled = [layers](at::Tensor a, double factor) mutable {
    return std::make_tuple(layers->forward(a) * factor, factor);
  };
  auto [y, factor] = mezzo::recompute(scaled, x, 2.0);
  at::Tensor z = mezzo::recompute_sequential(layers, 2, x);
  (y + z).sum().backward();
  EXPECT_EQ(factor, 2.0);
  EXPECT_TRUE(layers->parameters()[0].grad().defined());
}

TEST(DeployNames, AnOnnxFileOfANetwork) {
  torch::nn::Linear net(4, 2);
  const at::Tensor x = torch::ones({2, 4});
  const auto path = std::filesystem::temp_directory_path() / "mezzo_names_test.onnx";
  mezzo::deploy::OnnxOptions options;
  options.opset = 18;
  options.input_names = {"x"};
  options.output_names = {"y"};
  options.dynamic_axes["x"][0] = "batch";
  options.verify = false;
  options.tolerance = 1e-4;
  options.translate["acme::blur"] = [](mezzo::deploy::OnnxGraph& graph,
                                       const mezzo::deploy::OnnxCall& call) {
    return graph.add("com.acme::Blur", {call["self"]}, {{"radius", call["radius"].to_int()}}, 1);
  };
  mezzo::deploy::ExportReport report = mezzo::deploy::export_onnx(net, {x}, path, options);
  EXPECT_EQ(report.nodes, 1);
  const std::vector<double> errors = report.errors;
  const std::vector<std::string> warnings = report.warnings;
  EXPECT_FALSE(report.to_text().empty() || report.to_json().empty());
  torch::jit::Module traced = mezzo::deploy::trace(net, {x});
  mezzo::deploy::export_onnx(traced, {x}, path, {.verify = false});
  std::filesystem::remove(path);
}

struct OwnRule : mezzo::Reparameterization {
  Parameters reparameterize(const at::Tensor& weight, std::int64_t) override {
    Parameters made;
    made.insert("_half", weight / 2);
    return made;
  }
  at::Tensor compute_weight(const Parameters& parameters, std::int64_t) override {
    return parameters["_half"] * 2;
  }
};

TEST(DeployNames, ATraceOfANetwork) {
  torch::nn::Linear net(4, 2);
  const at::Tensor x = torch::ones({2, 4});
  const std::vector<at::Tensor> tensors = {x};
  const std::vector<c10::IValue> values = {x};
  mezzo::deploy::TraceOptions options;
  options.train = false;
  options.share_parameters = false;
  options.check_with = mezzo::deploy::Examples({x * 2});
  options.check_tolerance = 1e-4;
  options.dynamic_axes["input_0"][0] = "batch";
  torch::jit::Module traced = mezzo::deploy::trace(net, {x}, options);
  EXPECT_TRUE(torch::equal(traced.forward({x}).toTensor(), net(x)));
  mezzo::deploy::trace(net, tensors);
  mezzo::deploy::trace(net.ptr(), values);
  mezzo::deploy::trace(net, &torch::nn::LinearImpl::forward, {x});
}

TEST(ReparameterizationNames, WeightNormAndRulesOfOnesOwn) {
  torch::nn::Linear layer(4, 3);
  mezzo::apply_weight_norm(*layer, "weight", 0, true);
  EXPECT_TRUE(layer->named_parameters().contains("weight_g"));
  mezzo::remove_weight_norm(*layer, "weight");
  mezzo::apply_reparameterization<OwnRule>(*layer, "weight", 0, true);
  EXPECT_TRUE(layer->named_parameters().contains("weight_half"));
  mezzo::reparameterized(layer)(torch::ones({2, 4})).sum().backward();
  mezzo::remove_reparameterization<OwnRule>(*layer, "", true);
  mezzo::apply_reparameterization<mezzo::WeightNorm>(*layer);
  mezzo::remove_reparameterization<mezzo::WeightNorm>(*layer);
  EXPECT_TRUE(layer->named_parameters().contains("weight"));
}

TEST(RnnNames, LayersStatesAndCells) {
  namespace rnn = mezzo::rnn;
  const rnn::Options options{.input_size = 4,
                             .hidden_size = 6,
                             .num_layers = 2,
                             .bias = true,
                             .batch_first = false,
                             .dropout = 0.1,
                             .bidirectional = true,
                             .output_size = 5};
  rnn::LSTM lstm(options);
  rnn::GRU gru(options);
  rnn::ReLU relu(options);
  rnn::Tanh tanh(options);
  rnn::mLSTM mlstm(options);
  const at::Tensor x = torch::ones({3, 2, 4});
  auto [output, hidden] = lstm(x);
  EXPECT_EQ(output.size(2), 10);
  auto [same, all] = lstm->forward(x, hidden, {.collect_hidden = true, .reverse = true});
  EXPECT_EQ(all[1].sizes(), at::IntArrayRef({3, 4, 2, 6}));
  mlstm->init_hidden(2);
  mlstm(x);
  mlstm->detach_hidden();
  mlstm->reset_hidden();
  mlstm->init_inference(2);
  for (const auto& states : {std::get<1>(gru(x)), std::get<1>(relu(x)), std::get<1>(tanh(x))})
    EXPECT_EQ(states[0].size(2), 5);
  rnn::Recurrent own(rnn::Options{.input_size = 4, .hidden_size = 6},
                     rnn::Cell{.gates = 1, .states = 1, .step = [](const rnn::Step& step) {
                                 return rnn::Hidden{torch::tanh(step.gates)};
                               }});
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({3, 1}));
  const auto [rows, last] = own->forward_with_packed_input(packed);
  EXPECT_EQ(rows.data().size(0), 4);
}

TEST(ParallelNames, OneProcessIsAGroup) {
  const auto store =
      (std::filesystem::temp_directory_path() /
       ("mezzo_public_names_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed())))
          .string();
  std::filesystem::remove(store);
  parallel::init_process_group({.backend = "gloo",
                                .init_method = "file://" + store,
                                .timeout = std::chrono::seconds(60),
                                .rank = 0,
                                .world_size = 1});
  EXPECT_EQ(parallel::rank(), 0);
  EXPECT_EQ(parallel::world_size(), 1);
  parallel::barrier();
  {
    parallel::ProcessGroup group = parallel::new_group(std::vector<int>{0});
    torch::nn::Linear net(4, 2);
    parallel::DDPOptions options{.message_size = 10'000'000,
                                 .delay_allreduce = false,
                                 .allreduce_trigger_params = {},
                                 .retain_allreduce_buffers = false,
                                 .allreduce_always_fp32 = false,
                                 .gradient_average = true,
                                 .gradient_predivide_factor = 1.0,
                                 .num_allreduce_streams = 1,
                                 .allreduce_communicators = {},
                                 .find_unused_parameters = true,
                                 .broadcast_buffers = true,
                                 .process_group = group};
    parallel::DistributedDataParallel ddp(net, options);
    static_assert(
        std::is_same_v<decltype(ddp), parallel::DistributedDataParallel<torch::nn::Linear>>);
    ddp(torch::ones({3, 4})).sum().backward();
    { auto guard = ddp.no_sync(); }
    ddp.disable_allreduce();
    ddp.enable_allreduce();
    { auto guard = ddp.join(); }

    torch::nn::Linear inner(4, 2);
    torch::optim::SGD sgd(inner->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] = mezzo::amp::initialize(
        inner, sgd, {.opt_level = "O1", .verbosity = 0, .overflow_group = group});
    parallel::DistributedDataParallel over_model(model);
    static_assert(
        std::is_same_v<decltype(over_model),
                       parallel::DistributedDataParallel<mezzo::amp::Model<torch::nn::Linear>>>);
    auto loss = over_model->forward(torch::ones({3, 4})).mean();
    mezzo::amp::scale_loss(loss, optimizer).backward();
    EXPECT_TRUE(optimizer.step().applied());

    ddp.compress_fp16();
    ddp.compress_bf16();
    ddp.register_comm_hook(
        [](const parallel::GradientBucket& bucket, const parallel::ProcessGroup& all) {
          all.all_reduce(bucket.gradients);
          return std::function<void()>();
        });

    parallel::SyncBatchNorm norm(parallel::SyncBatchNormOptions{.num_features = 2,
                                                                .eps = 1e-5,
                                                                .momentum = 0.1,
                                                                .affine = true,
                                                                .track_running_stats = true,
                                                                .process_group = group,
                                                                .channel_last = true,
                                                                .fuse_relu = true});
    EXPECT_EQ(norm(torch::randn({3, 2}), torch::ones({3, 2})).size(1), 2);
    EXPECT_TRUE(norm->running_mean.defined() && norm->weight.defined());
    torch::nn::Sequential plain(torch::nn::BatchNorm1d(2));
    torch::nn::Sequential converted = parallel::convert_syncbn_model(plain, group, false);
    converted = parallel::convert_syncbn_model(converted);
    EXPECT_FALSE(parallel::create_syncbn_process_group(0).has_value());
    EXPECT_TRUE(parallel::create_syncbn_process_group(1).has_value());

    std::vector<at::Tensor> tensors{torch::ones({3})};
    parallel::Reducer reducer(tensors);
    reducer.reduce();
  }
  parallel::destroy_process_group();
  std::filesystem::remove(store);
}

TEST(TensorNames, FlatListsAndSafetensors) {
  std::vector<at::Tensor> tensors{torch::randn({2, 3}), torch::randn({4})};
  auto flat = mezzo::flatten(tensors);
  EXPECT_EQ(flat.numel(), 10);
  auto back = mezzo::unflatten(flat, tensors);
  EXPECT_TRUE(back[1].equal(tensors[1]));

  const auto path =
      (std::filesystem::temp_directory_path() / "mezzo_public_names.safetensors").string();
  torch::OrderedDict<std::string, at::Tensor> dictionary;
  dictionary.insert("weight", tensors[0]);
  mezzo::save_safetensors(path, dictionary, {{"format", "pt"}});
  EXPECT_TRUE(mezzo::load_safetensors(path)["weight"].equal(tensors[0]));
  std::filesystem::remove(path);
}

TEST(ConvertNames, OptionsAndLists) {
  namespace convert = mezzo::convert;
  convert::Options options{
      .target_dtype = "float16",
      .target_dtype_ops = std::vector<std::string>{"Conv"},
      .fp32_ops = std::vector<std::string>{"Softmax"},
      .widest_dtype_ops = std::vector<std::string>{"+Concat"},
      .conditional_fp32_ops = std::vector<convert::Conditional>{{"Resize", "mode", {"cubic"}}},
      .excluded_names = {"a*"},
      .included_names = {"/b.*/"},
      .cast_optional_params = true,
      .io = "keep",
      .io_of = {{"x", "float16"}},
      .profile = "spec",
      .opset = "keep",
      .calibration = {},
      .verify = "none",
      .tolerance = 0.1,
      .weights_only = false};
  EXPECT_THROW(convert::convert_model("no_such_model.onnx", "never_written.onnx", options),
               mezzo::Error);
  EXPECT_THROW(convert::plan_model("no_such_model.onnx", options), mezzo::Error);
  EXPECT_THROW(convert::apply_plan("no_such_model.onnx", "never_written.onnx", convert::Plan{}),
               mezzo::Error);
  EXPECT_FALSE(std::filesystem::exists("never_written.onnx"));
  EXPECT_FALSE(convert::list_lp16_ops("float16").empty());
  EXPECT_FALSE(convert::list_fp32_ops("float16").empty());
  EXPECT_FALSE(convert::list_lp16_fp32_ops("bfloat16").empty());
  EXPECT_FALSE(convert::list_widest_type_cast("float16").empty());
  static_assert(std::is_same_v<decltype(convert::Result{}.report.to_text()), std::string>);
  static_assert(std::is_same_v<decltype(convert::Result{}.report.to_json()), std::string>);
  static_assert(std::is_same_v<decltype(convert::Result{}.report.to_html()), std::string>);
}

TEST(ErrorNames, OneBaseTwoChildren) {
  static_assert(std::is_base_of_v<mezzo::Error, mezzo::ConfigError>);
  static_assert(std::is_base_of_v<mezzo::Error, mezzo::UnsupportedError>);
  static_assert(std::is_base_of_v<std::exception, mezzo::Error>);
  EXPECT_FALSE(mezzo::version().empty());
}

}  // namespace
