// Numbers that a network writes out, and sizes that it asks for, stay what they are at every batch
// size: in traces, in modules of mixed precision, frozen or not, and in ONNX files.
#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>

#include "mezzo/deploy.h"
#include "platform/temporaries.h"
#include "run_file.h"
#include "script_modules.h"

namespace mezzo::deploy {
namespace {

namespace nn = torch::nn;
using Shaping = at::Tensor (*)(const at::Tensor&);

constexpr std::int64_t kIns = 10, kOuts = 72;
// The example's size, the layer's number of inputs, divisors of sizes, and others.
const std::vector<std::int64_t> kBatches{2, 3, 10, 1, 20};

struct Literal {
  const char* name;
  Shaping shaped;
};

/// Shapes that networks write after a layer of 72 outputs.
const std::vector<Literal> kLiterals{
    {"view of -1",
     [](const at::Tensor& y) {
       return y.view({-1, 8, 3, 3});
     }},
    {"view of -1 in the middle",
     [](const at::Tensor& y) {
       return y.view({8, -1, 9});
     }},
    {"view of -1 at the end",
     [](const at::Tensor& y) {
       return y.view({2, -1});
     }},
    {"reshape of -1",
     [](const at::Tensor& y) {
       return y.reshape({-1, 9, 8});
     }},
    {"two readers of one list",
     [](const at::Tensor& y) {
       return y.view({-1, 8, 9}) + y.reshape({-1, 8, 9});
     }},
    {"a sum over the axes of a permutation",
     [](const at::Tensor& y) {
       return y.view({-1, 8, 9}).permute({0, 2, 1}).sum(std::vector<int64_t>{0, 1});
     }},
    {"expand of -1",
     [](const at::Tensor& y) {
       return y.unsqueeze(0).expand({2, -1, -1}) * 2;
     }},
    {"repeat",
     [](const at::Tensor& y) {
       return y.view({-1, 9}).repeat({1, 2});
     }},
    {"slices from the end", [](const at::Tensor& y) { return y.slice(1, 2, -1).slice(0, -1); }},
    {"flatten",
     [](const at::Tensor& y) {
       return y.view({-1, 8, 9}).flatten(1, -1).flatten();
     }},
    {"unflatten",
     [](const at::Tensor& y) {
       return y.unflatten(1, std::vector<int64_t>{-1, 8});
     }},
    {"arange", [](const at::Tensor& y) { return y + torch::arange(kOuts) * 0.1; }},
    {"zeros",
     [](const at::Tensor& y) {
       return y.view({-1, 8, 9}) + torch::ones({8, 9});
     }},
    {"a literal of the example's size",
     [](const at::Tensor& y) {
       return y.view({-1, 2, 36});
     }},
    {"a literal of the layer's size", [](const at::Tensor& y) { return y.slice(1, 0, 10) * 10; }},
    {"chunks", [](const at::Tensor& y) { return torch::stack(y.chunk(3, 1)); }},
    {"splits", [](const at::Tensor& y) { return torch::stack(y.split(24, 1), -1); }},
    {"a concatenation",
     [](const at::Tensor& y) {
       return torch::cat({y, y}, 0).view({-1, 9});
     }},
    {"negative axes",
     [](const at::Tensor& y) {
       return y.view({-1, 8, 9}).transpose(-1, -2);
     }},
};

/// Sizes that the network asks for itself, along a dynamic axis.
const std::vector<Literal> kAskedSizes{
    {"view of the size",
     [](const at::Tensor& y) {
       return y.view({y.size(0), 8, 9});
     }},
    {"reshape of a multiple",
     [](const at::Tensor& y) {
       return y.reshape({y.size(0) * 8, 9});
     }},
    {"zeros",
     [](const at::Tensor& y) {
       return y + torch::zeros({y.size(0), 1});
     }},
    {"arange", [](const at::Tensor& y) { return y + torch::arange(y.size(0)).unsqueeze(1) * 0.1; }},
    {"a mean by hand", [](const at::Tensor& y) { return y.sum(0) / y.size(0); }},
    {"expand",
     [](const at::Tensor& y) {
       return y.slice(0, 0, 1).expand({y.size(0), -1}) + y;
     }},
};

/// A layer, maybe a constant that is no parameter, and a shape.
struct ShapedImpl : nn::Module {
  explicit ShapedImpl(Shaping how, at::Tensor beside = {})
      : shaped(how), constant(std::move(beside)) {
    register_module("layer", layer);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = constant.defined() ? x.mm(constant) : layer(x);
    return shaped(last(y));
  }
  Shaping shaped;
  at::Tensor constant;
  nn::Linear layer{nn::Linear(kIns, kOuts)}, last{nn::Linear(kOuts, kOuts)};
};
TORCH_MODULE(Shaped);

/// Exports with a batch of any size; writing the file compares it with the network at other sizes.
template <typename Net>
void export_any_batch(const Net& net) {
  const platform::Temporary file(std::filesystem::temp_directory_path() /
                                 ("mezzo_literals_" + std::to_string(getpid()) + ".onnx"));
  OnnxOptions options = judged_options();
  options.dynamic_axes = {{"input_0", {{0, "batch"}}}};
  EXPECT_NO_THROW(export_onnx(net, {torch::randn({2, kIns})}, file.path(), options));
}

torch::jit::Module loaded_again(const torch::jit::Module& module) {
  std::stringstream stream;
  module.save(stream);
  return torch::jit::load(stream);
}

/// The module gives what the network gives, at every batch size and in every call.
void expect_same_at_all_sizes(torch::jit::Module module, Shaped net, double tolerance) {
  const torch::NoGradGuard no_grad;
  for (const std::int64_t batch : kBatches) {
    SCOPED_TRACE("batch " + std::to_string(batch));
    const at::Tensor x = torch::randn({batch, kIns});
    at::Tensor wanted;
    try {
      wanted = net->forward(x);
    } catch (const c10::Error&) {
      continue;  // 72 numbers a row do not fill every shape
    }
    // The executor's second call is another one than the first.
    for (int call = 0; call < 2; ++call) {
      at::Tensor got;
      ASSERT_NO_THROW(got = module.forward({x}).toTensor());
      ASSERT_EQ(got.sizes(), wanted.sizes());
      EXPECT_LT(difference(got, wanted), tolerance);
    }
  }
}

void expect_converted_at_all_sizes(const Literal& one, const Shaped& net,
                                   const DynamicAxes& axes = {}) {
  const at::Tensor example = torch::randn({2, kIns});
  for (const auto& [low, freeze] :
       {std::pair{at::kBFloat16, true}, {at::kBFloat16, false}, {at::kHalf, true}}) {
    SCOPED_TRACE(std::string(one.name) + ", " + c10::toString(low) + (freeze ? ", frozen" : ""));
    ScriptOptions options;
    options.target_dtype = low;
    options.freeze = freeze;
    options.cast_optional_params = low == at::kHalf;
    options.dynamic_axes = axes;
    const torch::jit::Module converted = convert_hybrid_block(net, {example}, options);
    expect_same_at_all_sizes(converted, net, tolerance_of(low));
    if (low == at::kHalf) expect_same_at_all_sizes(loaded_again(converted), net, tolerance_of(low));
  }
}

TEST(Literals, ModulesInMixedPrecisionKeepThem) {
  torch::manual_seed(1);
  for (const Literal& one : kLiterals) expect_converted_at_all_sizes(one, Shaped(one.shaped));
}

TEST(Literals, ModulesInMixedPrecisionKeepThemBesideConstantTensors) {
  torch::manual_seed(2);
  for (const Literal& one : kLiterals)
    expect_converted_at_all_sizes(one, Shaped(one.shaped, torch::randn({kIns, kOuts}) * 0.3));
}

TEST(Literals, SizesThatTheNetworkAsksForFollowTheBatch) {
  torch::manual_seed(3);
  const DynamicAxes axes = {{"input_0", {{0, "batch"}}}};
  for (const Literal& one : kAskedSizes) {
    expect_converted_at_all_sizes(one, Shaped(one.shaped), axes);
    const Shaped net(one.shaped, torch::randn({kIns, kOuts}) * 0.3);
    expect_converted_at_all_sizes(one, net, axes);
    SCOPED_TRACE(one.name);
    expect_same_at_all_sizes(trace(net, {torch::randn({2, kIns})}, {.dynamic_axes = axes}), net,
                             1e-5);
  }
}

TEST(Literals, TracesKeepThem) {
  torch::manual_seed(4);
  for (const Literal& one : kLiterals) {
    SCOPED_TRACE(one.name);
    const at::Tensor example = torch::randn({2, kIns});
    const Shaped plain(one.shaped);
    expect_same_at_all_sizes(trace(plain, {example}), plain, 1e-5);
    const Shaped constant(one.shaped, torch::randn({kIns, kOuts}));
    const torch::jit::Module traced = trace(constant, {example});
    expect_same_at_all_sizes(traced, constant, 1e-5);
    expect_same_at_all_sizes(loaded_again(traced), constant, 1e-5);
  }
}

TEST(Literals, ATraceSharesItsTensorsBesideConstantsToo) {
  Shaped net(kLiterals[0].shaped, torch::randn({kIns, kOuts}));
  const at::Tensor x = torch::randn({3, kIns});
  torch::jit::Module shared = trace(net, {x});
  torch::jit::Module copied = trace(net, {x}, {.share_parameters = false});
  const torch::NoGradGuard no_grad;
  net->last->bias.add_(1);
  EXPECT_TRUE(torch::allclose(shared.forward({x}).toTensor(), net->forward(x), 1e-4, 1e-4));
  EXPECT_FALSE(torch::allclose(copied.forward({x}).toTensor(), net->forward(x), 1e-4, 1e-4));
}

TEST(Literals, AModuleThatIsFrozenAlreadyIsConvertedBeforeAndAfterItRan) {
  torch::manual_seed(5);
  const Shaped net(kLiterals[0].shaped);
  const at::Tensor x = torch::randn({3, kIns});
  torch::jit::Module frozen = torch::jit::freeze_module(trace(net, {torch::randn({2, kIns})}));
  ScriptOptions options;
  options.check_with = Examples{x};
  const torch::jit::Module before = convert_hybrid_block(frozen, options);
  try {
    frozen.forward({x});  // LibTorch may write over the literals of the caller's own module
  } catch (const std::exception&) {
  }
  expect_same_at_all_sizes(before, net, tolerance_of(at::kHalf));
}

TEST(Literals, OnnxFilesKeepThem) {
  torch::manual_seed(6);
  for (const auto* list : {&kLiterals, &kAskedSizes}) {
    for (const Literal& one : *list) {
      SCOPED_TRACE(one.name);
      export_any_batch(Shaped(one.shaped));
      export_any_batch(Shaped(one.shaped, torch::randn({kIns, kOuts}) * 0.3));
    }
  }
}

TEST(Literals, OnnxFilesOfFrozenModulesKeepThem) {
  torch::manual_seed(7);
  const Shaped net(kLiterals[0].shaped);
  export_any_batch(torch::jit::freeze_module(trace(net, {torch::randn({2, kIns})})));
}

}  // namespace
}  // namespace mezzo::deploy
