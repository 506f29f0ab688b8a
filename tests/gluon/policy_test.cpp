// init: which operators are cast, where, and for how long.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "gluon/judged.h"
#include "mezzo/autocast.h"
#include "operators/operators.h"

namespace mezzo::gluon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
namespace F = torch::nn::functional;

CastClass class_under(const InitOptions& options, std::string_view op) {
  return init(options).policy().classify(op);
}

TEST(Init, MxnetsOwnListsAreTheDefault) {
  const auto handle = init();
  const Policy& policy = handle.policy();
  EXPECT_EQ(policy.low(), at::kHalf);
  for (const char* low : {"conv2d", "F.linear", "FullyConnected", "conv_transpose2d"}) {
    EXPECT_EQ(policy.classify(low), CastClass::kLow) << low;
  }
  for (const char* wide :
       {"softmax.int", "log_softmax.int", "layer_norm", "exp", "pow.Tensor_Scalar", "softplus",
        "elu", "selu", "square", "mean", "topk"}) {
    EXPECT_EQ(policy.classify(wide), CastClass::kFloat) << wide;
  }
  // Not low in MXNet: products run low only where their inputs are.
  EXPECT_EQ(policy.classify("bmm"), CastClass::kPromote);
  for (const char* neutral : {"relu", "batch_norm", "max_pool2d", "embedding", "tanh", "gelu"}) {
    EXPECT_EQ(policy.classify(neutral), CastClass::kNeutral) << neutral;
  }
}

/// The operator table's column of MXNet was written by hand from the same lists.
TEST(Init, Float16sClassesAreThoseOfTheOperatorTable) {
  const auto handle = init();
  std::vector<std::string> others;
  for (const Operator& op : operators()) {
    const auto said = op.listed_by(System::kMxnet);
    if (!said || *said == CastClass::kConditional) continue;
    const std::string name = "aten::" + std::string(op.name) +
                             (op.name.find('.') == std::string_view::npos ? ".default" : "");
    if (handle.policy().classify(name) != *said) others.emplace_back(op.name);
  }
  EXPECT_THAT(others, ElementsAre());
}

TEST(Init, Bfloat16HasListsOfItsOwn) {
  const auto handle = init({.target_dtype = "bfloat16"});
  const Policy& policy = handle.policy();
  EXPECT_EQ(policy.low(), at::kBFloat16);
  EXPECT_EQ(policy.classify("conv2d"), CastClass::kLow);
  EXPECT_EQ(policy.classify("F.linear"), CastClass::kLow);
  EXPECT_EQ(policy.classify("conv_transpose2d"), CastClass::kFloat);
  EXPECT_EQ(policy.classify("dropout"), CastClass::kFloat);
  EXPECT_EQ(policy.classify("relu"), CastClass::kNeutral);
  EXPECT_EQ(policy.classify("square"), CastClass::kNeutral);
}

TEST(Init, MergedListsAreTheLibrarysOwn) {
  const auto handle = init({.merged_lists = true});
  for (const Operator& op : operators()) {
    EXPECT_EQ(handle.policy().classify(op.name), Policy::defaults().classify(op.name)) << op.name;
  }
}

TEST(Init, AListReplacesItsClass) {
  const InitOptions only{.target_precision_ops = std::vector<std::string>{"Convolution"}};
  EXPECT_EQ(class_under(only, "conv2d"), CastClass::kLow);
  EXPECT_EQ(class_under(only, "F.linear"), CastClass::kNeutral);
  EXPECT_EQ(class_under(only, "softmax.int"), CastClass::kFloat);
  // An operator that is named leaves the other default list.
  const InitOptions moved{.fp32_ops = std::vector<std::string>{"FullyConnected"}};
  EXPECT_EQ(class_under(moved, "F.linear"), CastClass::kFloat);
  EXPECT_EQ(class_under(moved, "softmax.int"), CastClass::kNeutral);
  EXPECT_EQ(class_under(moved, "softplus"), CastClass::kFloat);
}

TEST(Init, EditsKeepTheRestOfTheList) {
  const InitOptions edited{
      .target_precision_ops = std::vector<std::string>{"+batch_dot", "-FullyConnected"},
      .fp32_ops = std::vector<std::string>{"+relu", "-softmax"}};
  EXPECT_EQ(class_under(edited, "bmm"), CastClass::kLow);
  EXPECT_EQ(class_under(edited, "F.linear"), CastClass::kNeutral);
  EXPECT_EQ(class_under(edited, "conv2d"), CastClass::kLow);
  EXPECT_EQ(class_under(edited, "relu"), CastClass::kFloat);
  EXPECT_EQ(class_under(edited, "softmax.int"), CastClass::kNeutral);
  EXPECT_EQ(class_under(edited, "exp"), CastClass::kFloat);
}

struct Meant {
  const char* name;
  std::vector<const char*> operators;
};

/// Names of MXNet, and what programs on LibTorch call for them.
const std::vector<Meant>& meant() {
  static const std::vector<Meant> all{
      {"dot", {"mm", "mv", "matmul", "dot", "tensordot", "vdot"}},
      {"batch_dot", {"bmm", "baddbmm", "matmul"}},
      {"linalg_gemm", {"addmm", "baddbmm", "addbmm"}},
      {"linalg_gemm2", {"mm", "bmm", "matmul"}},
      {"linalg_syrk", {"mm", "bmm", "matmul"}},
      {"linalg_trmm", {"mm", "bmm", "matmul"}},
      {"FullyConnected", {"F.linear", "addmm", "addmv", "matmul"}},
      {"Convolution", {"conv1d", "conv2d.padding", "conv3d", "convolution", "conv_tbc"}},
      {"Deconvolution", {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}},
      {"norm", {"norm.ScalarOpt_dim", "linalg_vector_norm", "linalg_norm"}},
      {"L2Normalization", {"norm.ScalarOpt_dim", "linalg_vector_norm"}},
      {"softmax", {"softmax.int", "special_softmax"}},
      {"log_softmax", {"log_softmax.int", "special_log_softmax"}},
      {"max", {"max", "max.dim", "amax"}},
      {"broadcast_div", {"div.Tensor", "true_divide.Tensor"}},
      {"LayerNorm", {"layer_norm", "native_layer_norm"}},
  };
  return all;
}

TEST(Init, AListsNameMeansAllThatProgramsCallForIt) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    for (const Meant& each : meant()) {
      const std::vector<std::string> edit{std::string("+") + each.name}, whole{each.name};
      for (const auto& names : {edit, whole}) {
        const auto low = init({.target_dtype = dtype, .target_precision_ops = names}).policy();
        const auto wide = init({.target_dtype = dtype, .fp32_ops = names}).policy();
        const auto merged = init({.target_dtype = dtype, .fp32_ops = edit, .merged_lists = true});
        for (const char* op : each.operators) {
          EXPECT_EQ(low.classify(op), CastClass::kLow) << dtype << " " << names[0] << ": " << op;
          EXPECT_EQ(wide.classify(op), CastClass::kFloat) << dtype << " " << names[0] << ": " << op;
          EXPECT_EQ(merged.policy().classify(op), CastClass::kFloat) << each.name << ": " << op;
        }
      }
    }
  }
}

TEST(Init, MatrixProductsRunInTheTypeOfDotsList) {
  const at::Tensor a = torch::ones({4, 4}), v = torch::ones({4}), batch = torch::ones({2, 4, 4});
  {
    const auto handle = init();
    EXPECT_EQ(torch::mm(a, a).scalar_type(), at::kFloat);
    EXPECT_EQ(torch::bmm(batch, batch).scalar_type(), at::kFloat);
  }
  {
    const auto handle =
        init({.target_precision_ops = std::vector<std::string>{"+dot", "+batch_dot"}});
    for (const at::Tensor& product :
         {torch::mm(a, a), torch::mv(a, v), torch::dot(v, v), torch::matmul(a, a),
          torch::bmm(batch, batch), torch::tensordot(batch, a, {2}, {0})})
      EXPECT_EQ(product.scalar_type(), at::kHalf) << product.sizes();
  }
  const auto handle = init({.fp32_ops = std::vector<std::string>{"+dot", "+batch_dot"}});
  const at::Tensor low = a.to(at::kHalf);
  EXPECT_EQ(torch::mm(low, low).scalar_type(), at::kFloat);
  EXPECT_EQ(torch::matmul(low, low).scalar_type(), at::kFloat);
}

TEST(Init, ANameThatIsOnNoListLeavesNothingWhenItIsTakenOff) {
  const InitOptions none{.target_precision_ops = std::vector<std::string>{"-dot", "-batch_dot"}};
  EXPECT_EQ(class_under(none, "matmul"), CastClass::kLow) << "by FullyConnected";
  EXPECT_EQ(class_under(none, "F.linear"), CastClass::kLow);
}

TEST(Init, NamesThatShareAnOperatorMayStandOnTwoLists) {
  const InitOptions both{.target_precision_ops = std::vector<std::string>{"+FullyConnected"},
                         .fp32_ops = std::vector<std::string>{"+dot", "+batch_dot"}};
  EXPECT_EQ(class_under(both, "addmm"), CastClass::kLow);
  EXPECT_EQ(class_under(both, "matmul"), CastClass::kLow);
  EXPECT_EQ(class_under(both, "mm"), CastClass::kFloat);
  EXPECT_EQ(class_under(both, "bmm"), CastClass::kFloat);
  EXPECT_THAT(
      [] {
        (void)init({.target_precision_ops = std::vector<std::string>{"+FullyConnected"},
                    .fp32_ops = std::vector<std::string>{"+F.linear"}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("another list")));
}

TEST(Init, ConditionsMayBeReplaced) {
  const InitOptions other{.conditional_fp32_ops =
                              std::vector<Conditional>{{"Activation", "act_type", {"tanh"}}}};
  EXPECT_EQ(class_under(other, "tanh"), CastClass::kFloat);
  EXPECT_EQ(class_under(other, "softplus"), CastClass::kNeutral);
  EXPECT_EQ(class_under(other, "elu"), CastClass::kNeutral);
}

TEST(Init, WrongOptionsAreErrorsAndLeaveNothingBehind) {
  using Names = std::vector<std::string>;
  const auto message = [](const char* text) { return ThrowsMessage<ConfigError>(HasSubstr(text)); };
  EXPECT_THAT([] { (void)init({.target_dtype = "float8"}); }, message("'float8'"));
  EXPECT_THAT([] { (void)init({.fp32_ops = Names{"Convolutoin"}}); }, message("Convolution"));
  EXPECT_THAT([] { (void)init({.fp32_ops = Names{"relu", "+exp"}}); }, message("mixes"));
  EXPECT_THAT([] { (void)init({.target_precision_ops = Names{"exp"}, .fp32_ops = Names{"exp"}}); },
              message("another list"));
  EXPECT_THAT(
      [] {
        (void)init({.conditional_fp32_ops =
                        std::vector<Conditional>{{"Activation", "act_type", {"cube"}}}});
      },
      message("'cube'"));
  EXPECT_FALSE(amp::Autocast::current().has_value());
  EXPECT_NO_THROW((void)init({.target_dtype = "bfloat16"}));
}

TEST(Init, CastsBareCallsWhileItLives) {
  const Messages messages;
  torch::nn::Linear line(4, 3);
  const at::Tensor x = torch::ones({2, 4});
  {
    const auto handle = init({.target_dtype = "bfloat16"});
    EXPECT_EQ(line(x).scalar_type(), at::kBFloat16);
    EXPECT_EQ(torch::softmax(line(x), 1).scalar_type(), at::kFloat);
    EXPECT_EQ(line->weight.scalar_type(), at::kFloat);
    // A network that is made later is cast as well.
    EXPECT_EQ(torch::nn::Linear(4, 3)(x).scalar_type(), at::kBFloat16);
    std::thread([&] { EXPECT_EQ(line(x).scalar_type(), at::kFloat); }).join();
    const auto second = init({.target_dtype = "bfloat16"});
    EXPECT_THAT([] { (void)init(); }, ThrowsMessage<ConfigError>(HasSubstr("other settings")));
  }
  EXPECT_EQ(line(x).scalar_type(), at::kFloat);
  EXPECT_THAT(messages.all, ElementsAre("Using AMP"));
}

TEST(Init, HandlesMoveAndEndInAnyOrder) {
  const Messages messages;
  torch::nn::Linear line(4, 3);
  const at::Tensor x = torch::ones({2, 4});
  const InitOptions options{.target_dtype = "bfloat16"};
  auto first = std::make_unique<Handle>(init(options));
  Handle second = init(options);
  first.reset();
  EXPECT_EQ(line(x).scalar_type(), at::kBFloat16);
  Handle third = std::move(second);
  EXPECT_EQ(line(x).scalar_type(), at::kBFloat16);
  // On another thread: the count goes down at once, the casts at this thread's next init.
  std::thread([moved = std::move(third)] {}).join();
  { const auto again = init(); }
  EXPECT_EQ(line(x).scalar_type(), at::kFloat);
}

/// The judge's convolutional network, whose float numbers are MXNet's.
struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl()
      : a(register_module("a", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)))),
        b(register_module("b", torch::nn::Linear(64, 3))) {
    const torch::NoGradGuard no_grad;
    double k = 0;
    for (at::Tensor& weight : parameters()) {
      weight.copy_(sines(weight.numel(), k++, 0.3).reshape(weight.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return b(torch::max_pool2d(torch::relu(a(x)), 2).flatten(1));
  }
  torch::nn::Conv2d a;
  torch::nn::Linear b;
};
TORCH_MODULE(ConvNet);

/// Thirty steps; the mean losses.
std::vector<double> train_convolution(ConvNet& net, bool scales) {
  Trainer trainer(*net, "sgd", {{"learning_rate", 0.02}, {"momentum", 0.9}, {"wd", 1e-3}});
  if (scales) init_trainer(trainer, {.init_scale = 1024});
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    trainer.zero_grad();
    const at::Tensor x = sines(6 * 2 * 64, 0.1 * step, 1.0).reshape({6, 2, 8, 8});
    const at::Tensor loss = F::cross_entropy(net(x), torch::arange(6).remainder(3),
                                             F::CrossEntropyFuncOptions().reduction(torch::kNone));
    if (scales) {
      scale_loss(loss, trainer).backward();
    } else {
      loss.sum().backward();
    }
    trainer.step(6);
    losses.push_back(loss.mean().item<double>());
  }
  return losses;
}

/// MXNet's numbers: the tree's, which are float, or those that judge.py just had made in both
/// types.
std::map<std::string, std::vector<double>> convolution_reference() {
  const char* fresh = std::getenv("MEZZO_GLUON_JUDGED");
  return read_reference(fresh != nullptr ? fresh : MEZZO_GLUON_REFERENCE "/reference_bfloat16.txt");
}

TEST(Init, TrainingInBfloat16IsMxnetsWithinItsRounding) {
  const auto reference = convolution_reference();
  ConvNet plain;
  const std::vector<double> in_float = train_convolution(plain, false);
  for (std::size_t i = 0; i < in_float.size(); ++i) {
    EXPECT_NEAR(in_float[i], reference.at("float.losses")[i], 1e-5) << i;
  }
  const Messages messages;
  for (const std::string dtype : {"bfloat16", "float16"}) {
    const auto handle = init({.target_dtype = dtype});
    ConvNet net;
    const std::vector<double> losses = train_convolution(net, true);
    // Momentum carries roundings on; float16 also loses what falls below its range.
    const double eps = dtype == "bfloat16" ? 0x1p-8 : 0x1p-10;
    double largest = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      // A few roundings a step, and a loss that falls to an eighth.
      EXPECT_NEAR(losses[i], in_float[i], 8 * eps * std::max(in_float[i], 0.3))
          << dtype << " " << i;
      largest = std::max(largest, std::abs(losses[i] - in_float[i]));
    }
    if (dtype == "bfloat16" && reference.contains("bfloat16.losses")) {
      for (std::size_t i = 0; i < losses.size(); ++i) {
        EXPECT_NEAR(losses[i], reference.at("bfloat16.losses")[i],
                    8 * eps * std::max(in_float[i], 0.3))
            << i;
      }
    }
    EXPECT_GT(largest, 0) << "nothing was cast to " << dtype;
    EXPECT_TRUE(torch::allclose(all_weights(*net), all_weights(*plain), 0.02, 8 * eps)) << dtype;
  }
}

}  // namespace
}  // namespace mezzo::gluon
