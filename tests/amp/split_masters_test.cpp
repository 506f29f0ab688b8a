// Options::split_masters against the same training without it, to the bit.
#include <gmock/gmock.h>

#include <bit>

#include "amp/checkpoint_training.h"
#include "core/dtype.h"
#include "kernels/kernel_set.h"
#include "mezzo/checkpoint.h"
#include "mezzo/ema.h"
#include "mezzo/error.h"
#include "mezzo/safetensors.h"
#include "mezzo/state_dict.h"
#include "optim/step_context.h"

namespace mezzo::amp {
namespace {

using testing::HasSubstr;

/// TinyNet with layers of more than one chunk and of odd sizes.
struct WideNetImpl : torch::nn::Module {
  WideNetImpl()
      : first(register_module("first", torch::nn::Linear(4, 133))),
        norm(register_module("norm", torch::nn::BatchNorm1d(133))),
        middle(register_module("middle", torch::nn::Linear(133, 151))),
        second(register_module("second", torch::nn::Linear(151, 2))) {}
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::relu(middle(torch::relu(norm(first(x))))));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear middle, second;
};
TORCH_MODULE(WideNet);

/// A seeded network, a third of whose weights lie between two bfloat16 numbers, half-way.
WideNet with_ties() {
  torch::manual_seed(3);
  WideNet net;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor copy = parameter.detach().to(at::kCPU, at::kFloat, false, /*copy=*/true);
    auto* values = copy.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < copy.numel(); i += 3) {
      values[i] =
          std::bit_cast<float>((std::bit_cast<std::uint32_t>(values[i]) & 0xffff0000U) | 0x8000U);
    }
    parameter.copy_(copy);
  }
  return net;
}

using MakeInner = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct InnerCase {
  std::string name;
  MakeInner make;
};

std::vector<InnerCase> inner_cases() {
  using optim::FusedAdamOptions;
  using optim::FusedSGDOptions;
  const auto adam = [](FusedAdamOptions options) -> MakeInner {
    return [=](auto params) { return std::make_unique<optim::FusedAdam>(params, options); };
  };
  const auto sgd = [](FusedSGDOptions options) -> MakeInner {
    return [=](auto params) { return std::make_unique<optim::FusedSGD>(params, options); };
  };
  return {
      {"AdamW", adam(FusedAdamOptions(1e-3).weight_decay(0.1))},
      {"AdamClipped",
       adam(FusedAdamOptions(1e-3).amsgrad(true).adam_w_mode(false).max_grad_norm(0.5))},
      {"SGD", sgd(FusedSGDOptions(0.01))},
      {"SGDMomentum", sgd(FusedSGDOptions(0.01).momentum(0.9).nesterov(true).weight_decay(1e-3))},
      {"LAMB", [](auto params) {
         return std::make_unique<optim::FusedLAMB>(params, optim::FusedLAMBOptions(1e-3));
       }}};
}

Options split(Options options, bool on = true) {
  options.split_masters = on;
  return options;
}

struct ScaleCase {
  std::string name;
  LossScale scale;
  bool defers;
};

/// One of the two trainings that are compared.
struct Half {
  WideNet net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  std::optional<std::pair<Model<WideNet>, Optimizer>> amp;

  Half(const MakeInner& make, const Options& options) : net(with_ties()) {
    inner = make(net->parameters());
    amp.emplace(initialize(net, *inner, options));
  }
  Model<WideNet>& model() { return amp->first; }
  Optimizer& optimizer() { return amp->second; }

  void backward(int index, double factor = 1) {
    const at::Tensor x = inputs() * (1 + 0.1 * index);
    scale_loss(loss_of(model(), x) * factor, optimizer()).backward();
  }
  bool step(int index, double factor = 1, bool set_to_none = true) {
    backward(index, factor);
    const bool applied = optimizer().step().applied();
    optimizer().zero_grad(set_to_none);
    return applied;
  }
  std::vector<at::Tensor> states() {
    std::vector<at::Tensor> values;
    // In the order of the groups, whose masters are the keys.
    for (const auto& group : inner->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const auto found = inner->state().find(parameter.unsafeGetTensorImpl());
        if (found == inner->state().end()) continue;
        if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(found->second.get())) {
          values.insert(values.end(), {adam->exp_avg(), adam->exp_avg_sq()});
          values.push_back(torch::tensor(adam->step()));
          if (adam->max_exp_avg_sq().defined()) values.push_back(adam->max_exp_avg_sq());
        } else if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(found->second.get())) {
          values.push_back(sgd->momentum_buffer());
        }
      }
    }
    return values;
  }
};

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].scalar_type(), b[i].scalar_type()) << what << ' ' << i;
    EXPECT_TRUE(torch::equal(a[i], b[i])) << what << ' ' << i;
  }
}

/// Weights, buffers, masters and states are the same bits.
void expect_same(Half& split, Half& whole, const std::string& what) {
  expect_same(values_of(*split.net), values_of(*whole.net), what + ": weights");
  expect_same(split.states(), whole.states(), what + ": states");
  const auto a = model_state_dict(split.model());
  const auto b = model_state_dict(whole.model());
  expect_same(a.values(), b.values(), what + ": masters");
}

/// Bytes of float tensors in the groups: masters, and weights that are float at this level.
std::int64_t bytes_of_masters(const torch::optim::Optimizer& inner) {
  std::int64_t bytes = 0;
  for (const auto& group : inner.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const bool is_float = parameter.scalar_type() == at::kFloat;
      bytes += is_float ? static_cast<std::int64_t>(parameter.storage().nbytes()) : 0;
    }
  }
  return bytes;
}

class TrainingWithSplitMasters : public testing::TestWithParam<std::tuple<InnerCase, ScaleCase>> {
 protected:
  static Options options() {
    Options result = at_level("O5");
    result.loss_scale = std::get<1>(GetParam()).scale;
    result.defer_unscale = std::get<1>(GetParam()).defers;
    result.growth_interval = 3;
    return result;
  }
  static const MakeInner& make() { return std::get<0>(GetParam()).make; }
};
INSTANTIATE_TEST_SUITE_P(
    Amp, TrainingWithSplitMasters,
    testing::Combine(testing::ValuesIn(inner_cases()),
                     testing::Values(ScaleCase{"Unscaled", 1.0, false},
                                     ScaleCase{"By3", 3.0, false},
                                     ScaleCase{"By3Deferred", 3.0, true},
                                     ScaleCase{"Dynamic", "dynamic", false},
                                     ScaleCase{"DynamicDeferred", "dynamic", true})),
    [](const auto& row) { return std::get<0>(row.param).name + std::get<1>(row.param).name; });

TEST_P(TrainingWithSplitMasters, IsThatOfFloatOnesToTheBit) {
  const bool tries_sets = std::get<1>(GetParam()).name == "DynamicDeferred";
  for (const kernels::KernelSet* set : kernels::usable_kernel_sets()) {
    if (!tries_sets && set != &kernels::kernels()) continue;
    kernels::choose_kernel_set(set->name);
    Half split_half(make(), split(options()));
    Half whole(make(), options());
    expect_same(split_half, whole, "at the beginning");
    const bool checks = std::get<1>(GetParam()).name != "Unscaled";
    int skipped = 0;
    for (int i = 0; i < 9; ++i) {
      const double factor = checks && i % 5 == 2 ? kInf : 1;
      const bool applied = split_half.step(i, factor, i % 2 == 0);
      EXPECT_EQ(applied, whole.step(i, factor, i % 2 == 0));
      skipped += applied ? 0 : 1;
      expect_same(split_half, whole, std::string(set->name) + ", step " + std::to_string(i));
      if (HasFailure()) return;
    }
    EXPECT_EQ(skipped, checks ? 2 : 0);
  }
}

TEST_P(TrainingWithSplitMasters, IsSoWithSeveralBackwardPassesAStep) {
  Half split_half(make(), split(options()));
  Half whole(make(), options());
  for (int i = 0; i < 9; ++i) {
    for (Half* each : {&split_half, &whole}) {
      each->backward(i);
      if (i % 3 != 2) continue;
      each->optimizer().step();
      i % 2 == 0 ? each->optimizer().zero_grad() : each->model().zero_grad();
    }
  }
  expect_same(split_half, whole, "at the end");
}

const MakeInner& adam() {
  static const std::vector<InnerCase> cases = inner_cases();
  return cases.front().make;
}

TEST(SplitMasters, HaveNoMemoryBetweenSteps) {
  Half half(adam(), split(at_level("O5")));
  Half whole(adam(), at_level("O5"));
  const auto norms = static_cast<std::int64_t>(half.net->norm->weight.nbytes() * 2);
  EXPECT_EQ(bytes_of_masters(*half.inner), norms);
  half.step(0);
  EXPECT_EQ(bytes_of_masters(*half.inner), norms);
  EXPECT_GT(bytes_of_masters(*whole.inner), 50 * norms);
}

TEST(SplitMasters, AreToldWhereTheyCannotBeRead) {
  Half half(adam(), split(at_level("O5")));
  const at::Tensor master = half.inner->param_groups()[0].params()[0];
  EXPECT_EQ(master.scalar_type(), at::kFloat);
  EXPECT_EQ(master.sizes(), half.net->first->weight.sizes());
  try {
    static_cast<void>(master.sum());
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("Options::split_masters"));
  }
  half.backward(0);
  const auto before = values_of(*half.net);
  try {
    half.inner->step();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter 0 of group 0"));
    EXPECT_THAT(error.what(), HasSubstr("step() of the handle"));
  }
  EXPECT_TRUE(same_values(before, values_of(*half.net)));
  EXPECT_TRUE(half.optimizer().step().applied());
}

TEST(SplitMasters, HaveValuesForThoseWhoAskUntilTheNextStep) {
  Half half(adam(), split(at_level("O5")));
  Half whole(adam(), at_level("O5"));
  for (int i = 0; i < 3; ++i) {
    expect_same(master_params(half.optimizer()), master_params(whole.optimizer()), "asked for");
    for (Half* each : {&half, &whole}) {
      each->backward(i);
      torch::nn::utils::clip_grad_norm_(master_params(each->optimizer()), 0.1);
      each->optimizer().step();
      each->optimizer().zero_grad();
    }
    EXPECT_LT(bytes_of_masters(*half.inner), 2000);
    expect_same(half, whole, "after a step by masters with memory");
  }
}

TEST(SplitMasters, TakeWhatIsWrittenToThem) {
  Half half(adam(), split(at_level("O5")));
  Half whole(adam(), at_level("O5"));
  for (int i = 0; i < 4; ++i) {
    for (Half* each : {&half, &whole}) {
      const torch::NoGradGuard no_grad;
      if (i == 1) {
        for (const at::Tensor& master : master_params(each->optimizer())) master.mul_(0.77);
      } else if (i == 2) {
        for (const auto& item : each->model().named_masters()) item.value().add_(0.001);
        each->model().publish_masters();
      }
    }
    EXPECT_EQ(half.step(i), whole.step(i));
    expect_same(half, whole, "written before step " + std::to_string(i));
  }
}

TEST(SplitMasters, FollowWeightsThatAreWritten) {
  const auto write = [](Half& half, int way) {
    const torch::NoGradGuard no_grad;
    const at::Tensor& weight = half.net->middle->weight;
    // Values that no element has already, which float masters would look at.
    const at::Tensor values = torch::linspace(0.3, 0.9, weight.numel()).view_as(weight);
    switch (way) {
      case 0:
        return static_cast<void>(weight.copy_(values));
      case 1:
        return static_cast<void>(weight.fill_(0.5));
      case 2:
        return static_cast<void>(weight.zero_());
      case 3:
        return static_cast<void>(weight.variable_data().copy_(values));
      case 4: {
        auto dict = model_state_dict(half.model());
        for (auto& item : dict) {
          if (item.value().is_floating_point()) item.value().mul_(1.1);
        }
        return load_model_state_dict(half.model(), dict);
      }
      case 5:
        return half.model().to(at::kCPU);
      default:
        return half.optimizer().invalidate_casts();
    }
  };
  for (int way = 0; way <= 6; ++way) {
    Half half(adam(), split(at_level("O5")));
    Half whole(adam(), at_level("O5"));
    for (int i = 0; i < 5; ++i) {
      if (i == 2) {
        write(half, way);
        write(whole, way);
      }
      EXPECT_EQ(half.step(i), whole.step(i));
      expect_same(half, whole, "way " + std::to_string(way) + ", step " + std::to_string(i));
    }
    EXPECT_LT(bytes_of_masters(*half.inner), 2000) << way;
  }
}

// With a float beside each weight the elements that kept their value would keep their master.
TEST(SplitMasters, OfAWeightThatWasWrittenInPartAreItsValues) {
  Half half(adam(), split(at_level("O5")));
  half.step(0);
  {
    const torch::NoGradGuard no_grad;
    half.net->middle->weight.index_put_({0}, 0.5);
  }
  const auto dict = model_state_dict(half.model());
  EXPECT_TRUE(torch::equal(dict["middle.weight"], half.net->middle->weight.to(at::kFloat)));
  EXPECT_FALSE(torch::equal(dict["second.weight"], half.net->second->weight.to(at::kFloat)));
}

TEST(SplitMasters, ShareFilesWithFloatOnes) {
  const InnerCase cases[] = {inner_cases()[0], inner_cases()[3], inner_cases()[4]};
  for (const InnerCase& one : cases) {
    Half half(one.make, split(at_level("O5")));
    Half whole(one.make, at_level("O5"));
    const File of_half, of_whole;
    for (int i = 0; i < 3; ++i) {
      half.step(i);
      whole.step(i);
    }
    save_checkpoint(of_half.path, half.model(), half.optimizer());
    save_checkpoint(of_whole.path, whole.model(), whole.optimizer());
    const auto values = load_safetensors(of_whole.path);
    for (const auto& item : load_safetensors(of_half.path)) {
      if (!item.key().starts_with("model.")) continue;
      EXPECT_TRUE(torch::equal(item.value(), values[item.key()])) << one.name << ' ' << item.key();
    }
    Half half_of_whole(one.make, split(at_level("O5")));
    Half whole_of_half(one.make, at_level("O5"));
    load_checkpoint(of_whole.path, half_of_whole.model(), half_of_whole.optimizer());
    load_checkpoint(of_half.path, whole_of_half.model(), whole_of_half.optimizer());
    EXPECT_LT(bytes_of_masters(*half_of_whole.inner), 2000);
    for (int i = 3; i < 6; ++i) {
      whole.step(i);
      half_of_whole.step(i);
      whole_of_half.step(i);
    }
    expect_same(half_of_whole, whole, one.name + " split from a file of floats");
    expect_same(whole_of_half, whole, one.name + " whole from a file of split ones");
  }
}

TEST(SplitMasters, AreAveragedAsFloats) {
  Half half(adam(), split(at_level("O5")));
  Half whole(adam(), at_level("O5"));
  Ema of_half(half.model(), 0.9), of_whole(whole.model(), 0.9);
  for (int i = 0; i < 4; ++i) {
    half.step(i);
    whole.step(i);
    of_half.update();
    of_whole.update();
    EXPECT_LT(bytes_of_masters(*half.inner), 2000);
  }
  expect_same(of_half.averages().values(), of_whole.averages().values(), "averages");
  {
    const Ema::Swapped swapped_half(of_half), swapped_whole(of_whole);
    expect_same(values_of(*half.net), values_of(*whole.net), "swapped");
  }
  half.step(4);
  whole.step(4);
  expect_same(half, whole, "after the averages were applied");
}

TEST(SplitMasters, OfGroupsThatComeLaterAndOfUnfrozenParameters) {
  const auto train = [](const Options& options) {
    WideNet net = with_ties();
    for (torch::nn::Linear later : {net->middle, net->second}) {
      for (const at::Tensor& parameter : later->parameters()) parameter.set_requires_grad(false);
    }
    optim::FusedSGD sgd(net->first->parameters(), optim::FusedSGDOptions(0.01).momentum(0.9));
    auto [model, optimizer] = initialize(net, sgd, options);
    for (int i = 0; i < 8; ++i) {
      if (i == 2) {
        net->middle->weight.set_requires_grad(true);
        optimizer.add_param_group(torch::optim::OptimizerParamGroup(
            net->middle->parameters(),
            std::make_unique<optim::FusedSGDOptions>(optim::FusedSGDOptions(0.05).momentum(0.5))));
      }
      if (i == 4)
        optimizer.add_param_group(torch::optim::OptimizerParamGroup(net->second->parameters()));
      if (i == 6) net->second->weight.set_requires_grad(true);
      scale_loss(loss_of(model, inputs() * (1 + i)), optimizer).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    if (options.split_masters) {
      EXPECT_EQ(bytes_of_masters(sgd), 0);
    }
    auto values = values_of(*net);
    for (const auto& item : model_state_dict(model)) values.push_back(item.value());
    return values;
  };
  expect_same(train(split(at_level("O5"))), train(at_level("O5")), "groups");
}

TEST(SplitMasters, GoThroughStepsThatCallAClosure) {
  Half half(adam(), split(at_level("O5")));
  Half whole(adam(), at_level("O5"));
  for (int i = 0; i < 3; ++i) {
    for (Half* each : {&half, &whole}) {
      each->optimizer().step([&] {
        each->optimizer().zero_grad();
        const at::Tensor loss = loss_of(each->model(), inputs() * (1 + i));
        scale_loss(loss, each->optimizer()).backward();
        return loss;
      });
    }
    expect_same(half, whole, "closure " + std::to_string(i));
  }
}

TEST(SplitMasters, AreTheFloatWeightsThatTheNetworkGetsBack) {
  const auto train = [](const Options& options) {
    WideNet net;
    {
      Half half(adam(), options);
      for (int i = 0; i < 3; ++i) half.step(i);
      net = half.net;
    }
    return values_of(*net);
  };
  const auto values = train(split(at_level("O5")));
  EXPECT_EQ(values.front().scalar_type(), at::kFloat);
  expect_same(values, train(at_level("O5")), "given back");
}

TEST(SplitMasters, GiveTheirValuesToTracesAndMasterLists) {
  Half half(adam(), split(at_level("O5")));
  Half whole(adam(), at_level("O5"));
  half.step(0);
  whole.step(0);
  expect_same(half.model().named_masters().values(), whole.model().named_masters().values(),
              "named_masters");
}

template <typename Make>
std::string refusal(const Make& make) {
  try {
    make();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SplitMasters, AreRefusedWhereTheyCannotBe) {
  for (const std::string level : {"O0", "O1", "O2", "O3", "O4"}) {
    TinyNet net;
    optim::FusedAdam inner(net->parameters());
    const auto before = values_of(*net);
    EXPECT_THAT(refusal([&] { initialize(net, inner, split(at_level(level))); }),
                HasSubstr("split_masters has no meaning at " + level + "; choose O5"));
    EXPECT_TRUE(same_values(before, values_of(*net)));
  }
  for (const std::string kind : {"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "FusedNovoGrad"}) {
    TinyNet net;
    const auto inner = make_optimizer(kind, net);
    const auto before = values_of(*net);
    EXPECT_THAT(
        refusal([&] { initialize(net, *inner, split(at_level("O5"))); }),
        HasSubstr("optimizer 0 is " + kind + "; give a FusedAdam, FusedSGD or FusedLAMB itself"));
    EXPECT_TRUE(same_values(before, values_of(*net)));
  }
  TinyNet net;
  optim::FusedSGD inner(net->parameters(), optim::FusedSGDOptions(0.1));
  optim::LARC larc(inner);
  EXPECT_THAT(refusal([&] { initialize(net, larc, split(at_level("O5"))); }),
              HasSubstr("wrapped in something that reads masters"));
  Options contradicts = split(at_level("O5"));
  contradicts.master_weights = false;
  EXPECT_THAT(refusal([&] { initialize(net, inner, contradicts); }),
              HasSubstr("master_weights is off"));
  contradicts = split(at_level("O5"));
  contradicts.cast_model_type = at::kHalf;
  EXPECT_THAT(refusal([&] { initialize(net, inner, contradicts); }),
              HasSubstr("cast_model_type asks for other weights"));
}

TEST(SplitMasters, AreAFlagAndAreToldOf) {
  EXPECT_TRUE(Options::from_flags({{"split_masters", "True"}}).split_masters);
  EXPECT_FALSE(Options::from_flags({}).split_masters);
  const Listener listener;
  TinyNet net;
  optim::FusedAdam inner(net->parameters());
  Options options = split(at_level("O5"));
  options.verbosity = 1;
  initialize(net, inner, options);
  EXPECT_EQ(listener.count("masters are split"), 1);
}

}  // namespace
}  // namespace mezzo::amp
