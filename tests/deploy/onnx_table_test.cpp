// The table of translations beside the operator table, and each of its rows against ATen: over
// types, sizes, negative dimensions, kept dimensions, broadcast operands and empty tensors.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "core/words.h"
#include "deploy/onnx_call.h"
#include "deploy/onnx_facts.h"
#include "messages.h"
#include "operators/operators.h"
#include "run_file.h"

namespace mezzo::deploy {
namespace {

using Inputs = std::vector<at::Tensor>;

bool is_said(const std::string& name) {
  return detail::find_row(name) != nullptr || detail::identities().contains("aten::" + name);
}

TEST(OnnxTable, SaysEveryOperatorOfTheOperatorTableOrWhyNot) {
  std::set<std::string> silent, both;
  for (const Operator& op : operators()) {
    const std::string name(op.base());
    const bool has_reason = !detail::why_not_in_onnx(name).empty();
    if (!is_said(name) && !has_reason) silent.insert(name);
    if (is_said(name) && has_reason) both.insert(name);
  }
  EXPECT_THAT(silent, ::testing::IsEmpty());
  EXPECT_THAT(both, ::testing::IsEmpty());
}

TEST(OnnxTable, HasMoreThan350Overloads) {
  std::set<std::string> overloads;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string full = c10::toString(name);
    if (!full.starts_with("aten::")) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || handle->schema().is_mutable()) continue;
    if (is_said(handle->schema().name().substr(6))) overloads.insert(full);
  }
  EXPECT_GT(overloads.size(), 550U);
  RecordProperty("overloads", static_cast<int>(overloads.size()));
}

TEST(OnnxTable, NoNameHasTwoRows) {
  std::set<std::string_view> names;
  const auto check = [&](std::string_view name) { EXPECT_TRUE(names.insert(name).second) << name; };
  for (const auto& part : detail::all_rows()) {
    for (const detail::Row& row : part) each_word(row.names, check);
  }
  EXPECT_EQ(names.count("special_expit"), 1);
}

class OnnxSweep : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(4); }
  void TearDown() override { std::filesystem::remove(file_); }

  /// Exports `forward(x, y)` and has the file judged. Where ATen itself refuses, or gives an empty
  /// list, there is nothing to compare.
  void compare(const std::string& body, const Inputs& inputs, int opset = 18) {
    torch::jit::Module module("Script");
    ASSERT_EQ(
        message_of([&] { module.define("def forward(self, x, y):\n  return " + body + "\n"); }),
        "no error");
    try {
      std::vector<c10::IValue> values;
      for (const at::Tensor& input : inputs) values.emplace_back(input.clone());
      const c10::IValue result = module.forward(values);
      if (result.isList() && result.toListRef().empty()) return;
    } catch (const std::exception& refusal) {
      refused_[body] = refusal.what();
      return;
    }
    ++compared_[body];
    OnnxOptions options = judged_options();
    options.opset = opset;
    const std::string message = message_of([&] { export_onnx(module, inputs, file_, options); });
    EXPECT_EQ(message, "no error") << body << " of " << inputs[0].scalar_type() << inputs[0].sizes()
                                   << " and " << inputs[1].scalar_type() << inputs[1].sizes();
  }

  int comparisons(const std::string& body) { return compared_[body]; }

  const std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                      ("mezzo_sweep_" + std::to_string(getpid()) + ".onnx");
  std::map<std::string, int> compared_;
  std::map<std::string, std::string> refused_;  // by ATen
};

at::Tensor filled(at::IntArrayRef sizes, at::ScalarType type) {
  if (at::isFloatingType(type)) return (torch::rand(sizes) * 1.6 - 0.8).to(type);
  if (type == at::kBool) return torch::rand(sizes) > 0.5;
  return torch::randint(-4, 5, sizes).to(type);
}

TEST_F(OnnxSweep, OperatorsOfOneTensor) {
  for (const char* name :
       {"abs",        "acos",       "asin",          "asinh",       "atan",
        "atanh",      "ceil",       "cos",           "cosh",        "deg2rad",
        "erf",        "erfc",       "exp",           "exp2",        "expm1",
        "floor",      "frac",       "isfinite",      "isinf",       "isnan",
        "isneginf",   "isposinf",   "log_sigmoid",   "logical_not", "mish",
        "neg",        "positive",   "rad2deg",       "reciprocal",  "relu",
        "relu6",      "round",      "selu",          "sgn",         "sigmoid",
        "sign",       "silu",       "sin",           "sinh",        "softplus",
        "square",     "tan",        "tanh",          "trunc",       "hardsigmoid",
        "hardswish",  "hardtanh",   "elu",           "celu",        "gelu",
        "hardshrink", "softshrink", "leaky_relu",    "nan_to_num",  "bitwise_not",
        "clone",      "detach",     "ravel",         "atleast_1d",  "atleast_2d",
        "atleast_3d", "zeros_like", "ones_like",     "nonzero",     "numel",
        "flatten",    "sum",        "mean",          "prod",        "max",
        "min",        "argmax",     "argmin",        "any",         "all",
        "std",        "var",        "norm",          "nansum",      "count_nonzero",
        "median",     "aminmax",    "sinc",          "arcsinh",     "special_expit",
        "argwhere",   "msort",      "special_log1p", "nanmean"}) {
    const std::string body = std::string("torch.") + name + "(x)";
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong, at::kBool}) {
      for (const std::vector<std::int64_t>& sizes :
           std::vector<std::vector<std::int64_t>>{{3, 4}, {0, 4}, {5}, {}})
        compare(body, {filled(sizes, type), torch::zeros({})});
    }
  }
  EXPECT_GT(compared_.size(), 70U);
}

TEST_F(OnnxSweep, OperatorsOfTwoTensorsBroadcast) {
  const struct {
    std::vector<std::int64_t> x, y;
  } sizes[] = {{{2, 3, 4}, {3, 1}}, {{0, 4}, {1, 4}}, {{3}, {}}, {{}, {}}};
  const std::pair<at::ScalarType, at::ScalarType> types[] = {
      {at::kFloat, at::kFloat}, {at::kLong, at::kLong},    {at::kFloat, at::kLong},
      {at::kLong, at::kFloat},  {at::kDouble, at::kFloat}, {at::kBool, at::kBool},
      {at::kInt, at::kLong}};
  for (const char* body : {"x + y",
                           "x - y",
                           "x * y",
                           "x / y",
                           "torch.maximum(x, y)",
                           "torch.minimum(x, y)",
                           "torch.fmax(x, y)",
                           "torch.fmin(x, y)",
                           "torch.atan2(x, y)",
                           "torch.hypot(x, y)",
                           "torch.logaddexp(x, y)",
                           "torch.logaddexp2(x, y)",
                           "torch.xlogy(x, y.abs())",
                           "torch.special_xlog1py(x, y.abs())",
                           "torch.copysign(x, y)",
                           "torch.heaviside(x, y)",
                           "torch.ldexp(x, y)",
                           "x == y",
                           "x != y",
                           "x < y",
                           "x <= y",
                           "x > y",
                           "x >= y",
                           "torch.logical_and(x, y)",
                           "torch.logical_or(x, y)",
                           "torch.logical_xor(x, y)",
                           "torch.bitwise_and(x, y)",
                           "torch.bitwise_or(x, y)",
                           "torch.bitwise_xor(x, y)",
                           "torch.where(x > y, x, y)",
                           "torch.isclose(x, y)",
                           "torch.lerp(x, y, 0.25)",
                           "torch.rsub(x, y)",
                           "torch.pow(x.abs() + 1, y)",
                           "torch.floor_divide(x, y.abs() + 1)",
                           "torch.remainder(x, y.abs() + 1)",
                           "torch.fmod(x, y.abs() + 1)",
                           "torch.dist(x, y)",
                           "torch.isin(x, y)",
                           "torch.mse_loss(x, y)",
                           "torch.l1_loss(x, y, 2)",
                           "torch.addcmul(x, x, y, value=2)",
                           "torch.masked_fill(x, y > 0, 2)",
                           "torch.clamp(x, min=y)",
                           "torch.bitwise_left_shift(x, y.abs())",
                           "torch.bitwise_right_shift(x, y.abs())",
                           "torch.float_power(x.abs() + 1, y)",
                           "torch.broadcast_tensors([x, y])",
                           "torch.meshgrid([x, y])"}) {
    for (const auto& [a, b] : types) {
      for (const auto& each : sizes) compare(body, {filled(each.x, a), filled(each.y, b)});
    }
    EXPECT_GT(comparisons(body), 0) << body;
  }
}

TEST_F(OnnxSweep, OperatorsAlongADimension) {
  for (const char* call : {"sum(x, [D], K)",
                           "mean(x, [D], K)",
                           "amax(x, [D], K)",
                           "amin(x, [D], K)",
                           "prod(x, D, K)",
                           "std(x, [D], True, K)",
                           "var(x, [D], False, K)",
                           "max(x, D, K)",
                           "min(x, D, K)",
                           "argmax(x, D, K)",
                           "argmin(x, D, K)",
                           "any(x, D, K)",
                           "all(x, D, K)",
                           "norm(x, 2, [D], K)",
                           "norm(x, 1, [D], K)",
                           "logsumexp(x, [D], K)",
                           "nansum(x, [D], K)",
                           "linalg_vector_norm(x, 3, [D], K)",
                           "count_nonzero(x, [D])",
                           "cumsum(x, D)",
                           "cumprod(x, D)",
                           "logcumsumexp(x, D)",
                           "cummax(x, D)",
                           "cummin(x, D)",
                           "median(x, D, K)[0]",
                           "quantile(x, 0.3, D, K)",
                           "aminmax(x, dim=D, keepdim=K)",
                           "nanmean(x, [D], K)",
                           "linalg_norm(x, None, [D], K)",
                           "linalg_norm(x, 3, [D], K)",
                           "softmax(x, D)",
                           "log_softmax(x, D)",
                           "special_softmax(x, D)",
                           "sort(x, D)",
                           "argsort(x, D)",
                           "topk(x, 1, D)[0]",
                           "kthvalue(x, 1, D, K)[0]",
                           "flip(x, [D])",
                           "roll(x, [1], [D])",
                           "unbind(x, D)",
                           "split(x, 2, D)",
                           "chunk(x, 2, D)",
                           "unsqueeze(x, D)",
                           "squeeze(x, D)",
                           "select(x, D, 0)",
                           "narrow(x, D, 0, 1)",
                           "cat([x, x], D)",
                           "stack([x, x], D)",
                           "diff(x, 1, D)",
                           "trapezoid(x, dx=0.5, dim=D)",
                           "glu(x, D)",
                           "repeat_interleave(x, 2, D)",
                           "index_select(x, D, torch.zeros([2], dtype=4))",
                           "tensor_split(x, 2, D)",
                           "slice_scatter(x, x * 2, D)",
                           "select_scatter(x, torch.select(x, D, 0), D, 0)",
                           "cosine_similarity(x, x + 1, D)",
                           "movedim(x, [D], [0])",
                           "unflatten(x, D, [1, -1])"}) {
    const std::string body = std::string("torch.") + call;
    for (const char* dim : {"0", "1", "-1"}) {
      for (const char* keep : {"False", "True"}) {
        std::string text = body;
        for (const auto& [from, to] : {std::pair{"D", dim}, std::pair{"K", keep}}) {
          for (std::size_t at = text.find(from); at != std::string::npos;
               at = text.find(from, at + 1))
            if (!std::isalpha(text[at + 1]) && !std::isalpha(text[at - 1])) text.replace(at, 1, to);
        }
        for (const at::ScalarType type : {at::kFloat, at::kLong, at::kBool}) {
          for (const std::vector<std::int64_t>& sizes :
               std::vector<std::vector<std::int64_t>>{{4, 6, 2}, {1, 2}, {2, 0, 4}})
            compare(text, {filled(sizes, type), torch::zeros({})});
        }
        if (body.find('K') == std::string::npos) break;
      }
    }
  }
}

TEST_F(OnnxSweep, LossesInEveryReduction) {
  const at::Tensor x = torch::rand({5, 4}) * 0.8 + 0.1, y = torch::rand({5, 4}) * 0.8 + 0.1,
                   classes = torch::tensor({0, 3, -100, 1, 2}),
                   signs = torch::tensor({1, -1, 1, 1, -1});
  for (const char* way : {"0", "1", "2"}) {
    const std::string w(way);
    for (const std::string& body :
         {"torch.mse_loss(x, y, " + w + ")", "torch.l1_loss(x, y, " + w + ")",
          "torch.smooth_l1_loss(x, y, " + w + ", 0.2)", "torch.huber_loss(x, y, " + w + ", 0.2)",
          "torch.soft_margin_loss(x, y, " + w + ")", "torch.kl_div(x, y, " + w + ")",
          "torch.kl_div(x, y, " + w + ", log_target=True)",
          "torch.binary_cross_entropy(x, y, None, " + w + ")",
          "torch.binary_cross_entropy(x, y, y, " + w + ")",
          "torch.binary_cross_entropy_with_logits(x, y, y, y + 1, " + w + ")",
          "torch.poisson_nll_loss(x, y * 4, True, True, 1e-8, " + w + ")",
          "torch.poisson_nll_loss(x, y, False, False, 1e-8, " + w + ")",
          "torch.triplet_margin_loss(x, y, x * y, 1.0, 2.0, 1e-6, True, " + w + ")",
          "torch.margin_ranking_loss(x, y, torch.sign(x - 0.5), 0.3, " + w + ")",
          "torch.cross_entropy_loss(x, torch.softmax(y, 1), None, " + w + ")",
          "torch.hinge_embedding_loss(x, torch.sign(y - 0.5), 0.7, " + w + ")"})
      compare(body, {x, y});
    for (const std::string& body :
         {"torch.nll_loss(torch.log_softmax(x, 1), y, None, " + w + ")",
          "torch.nll_loss(torch.log_softmax(x, 1), y, x[0], " + w + ")",
          "torch.nll_loss_nd(torch.log_softmax(x, 1), y, x[0], " + w + ")",
          "torch.cross_entropy_loss(x, y, None, " + w + ")",
          "torch.cross_entropy_loss(x, torch.clamp(y, 0), x[0], " + w + ", 2)",
          "torch.nll_loss2d(x.reshape(1, 4, 5, 1), y.reshape(1, 5, 1), None, " + w + ")"})
      compare(body, {x, classes});
    for (const std::string& body : {"torch.cosine_embedding_loss(x, x.flip(0), y, 0.2, " + w + ")"})
      compare(body, {x, signs});
  }
  EXPECT_THAT(refused_, ::testing::IsEmpty());
  EXPECT_EQ(compared_.size(), 69U);
}

TEST_F(OnnxSweep, CompositionsAndWindows) {
  const at::Tensor x = torch::randn({3, 4}), y = torch::randn({3, 4});
  const at::Tensor image = torch::randn({2, 3, 6, 8}), places = torch::tensor({2, 0, 1, 2, 2});
  for (const char* body : {"torch.hstack([x, y])",
                           "torch.vstack([x, y])",
                           "torch.dstack([x, y])",
                           "torch.column_stack([x, y[:, 0]])",
                           "torch.hsplit(x, 2)",
                           "torch.hsplit(x, [1, 3])",
                           "torch.inner(x, y)",
                           "torch.tensordot(x, y, [0], [0])",
                           "torch.tensordot(x, y, [1, 0], [1, 0])",
                           "torch.linalg_vecdot(x, y)",
                           "torch.linalg_matmul(x, y.t())",
                           "torch.chain_matmul([x, y.t(), x])",
                           "torch.linalg_multi_dot([x, y.t(), x])",
                           "torch.matrix_power(x[:, :3], 5)",
                           "torch.linalg_det(x[:, :3])",
                           "torch.cross(x[:, :3], y[:, :3], 1)",
                           "torch.linalg_cross(x[:, 1:], y[:, 1:])",
                           "torch.addr(x, x[:, 0], y[0], beta=0.5, alpha=2)",
                           "torch.diag_embed(x)",
                           "torch.diag_embed(x, 1)",
                           "torch.diag_embed(x, -2)",
                           "torch.diagflat(x, 1)",
                           "torch.trace(x)",
                           "torch.rot90(x, 1, [0, 1])",
                           "torch.rot90(x, -1, [0, 1])",
                           "torch.rot90(x, 2, [0, 1])",
                           "torch.bucketize(x, torch.sort(y[0])[0])",
                           "torch.bucketize(x, torch.sort(y[0])[0], right=True)",
                           "torch.searchsorted(torch.sort(y)[0], x)",
                           "torch.allclose(x, y)",
                           "torch.equal(x, x)",
                           "torch.dist(x, y, 1)",
                           "torch.dist(x, y, 0)",
                           "torch.diff(x, 2, -1)",
                           "torch.trapezoid(x, y, dim=-1)",
                           "torch.masked_scatter(x, y > 0, y)",
                           "torch.put(x, torch.tensor([0, 5]), y[0, :2], accumulate=False)",
                           "torch.slice_scatter(x, y[:, :2], 1, 1, 3)",
                           "torch.slice_scatter(x, y[:, :2], 1, 0, 4, 2)",
                           "torch.select_scatter(x, y[0], 0, -1)",
                           "x.unfold(1, 2, 1)",
                           "x.unfold(0, 3, 2)",
                           "torch.renorm(x, 2.0, 0, 1.0)",
                           "torch._weight_norm(x, y[:, :1].abs(), 0)",
                           "torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)",
                           "torch._safe_softmax(x, -1)",
                           "torch.nansum(x / (y > 0))",
                           "torch.isin(x, y, invert=True)",
                           "torch.kthvalue(x, 2, 1)",
                           "torch.topk(x, 2, 0)",
                           "torch.isclose(x / (y > 0), x / (y > 0.5))",
                           "torch.isclose(torch.log(x), torch.log(x) + 1e-7, equal_nan=True)",
                           "torch.nan_to_num(x.double() / (y > 0).double())",
                           "torch.fmax(x / (y > 0), y / (x > 0))",
                           "torch.fmin(torch.log(x), torch.log(y))",
                           "torch.pairwise_distance(x, y)",
                           "torch.pairwise_distance(x, y, 1.0, keepdim=True)",
                           "torch.linalg_norm(x)",
                           "torch.linalg_norm(x, 'fro')",
                           "torch.linalg_norm(x, 1)",
                           "torch.linalg_norm(x, float('inf'), keepdim=True)",
                           "torch.linalg_matrix_norm(x, -1)",
                           "torch.linalg_matrix_norm(x, 'fro', [0, 1], True)",
                           "torch.quantile(x, torch.sigmoid(y[0]), 1, True)",
                           "torch.quantile(x, torch.sigmoid(y[0]), 0)",
                           "torch.quantile(x, torch.sigmoid(y[0]), keepdim=True)",
                           "torch.quantile(x, 0.25, keepdim=True)",
                           "torch.cumprod(x, 1, dtype=7)",
                           "torch.logcumsumexp(x * 50, 0)",
                           "torch.nanmean(x / (y > 0))",
                           "torch.median(x[0])",
                           "torch.median(x, 1)",
                           "torch.as_strided(x, [2, 3], [2, 1], 1)",
                           "torch.aminmax(x)"})
    compare(body, {x, y});
  for (const char* body :
       {"torch.im2col(x, [2, 3], [1, 2], [1, 1], [2, 1])",
        "torch.col2im(torch.im2col(x, [2, 2], [1, 1], [0, 0], [2, 2]), [6, 8], [2, 2], [1, 1], "
        "[0, 0], [2, 2])",
        "torch.native_layer_norm(x, [8], None, None, 1e-5)[0]",
        "torch.native_group_norm(x, None, None, 2, 3, 48, 3, 1e-5)[0]",
        "torch._upsample_nearest_exact2d(x, [9, 5])", "torch.fliplr(x)",
        "torch.channel_shuffle(x, 3)", "torch.native_channel_shuffle(x.transpose(1, 3), 4)",
        "torch.max_pool2d_with_indices(x, [2, 2], [2, 2])",
        "torch.max_pool2d_with_indices(x[0], [3, 3], [2, 2], [1, 1])",
        "torch.max_pool3d_with_indices(x, [2, 2, 2], [1, 2, 2])",
        "torch.max_unpool2d(torch.max_pool2d(x, 2), torch.max_pool2d_with_indices(x, 2)[1], [6, "
        "8])",
        "torch.max_unpool2d(torch.max_pool2d(x[0], 2), "
        "torch.max_pool2d_with_indices(x[0], 2)[1], [7, 9])"})
    compare(body, {image, torch::zeros({})});
  const at::Tensor weight = torch::randn({3, 4});
  for (const char* body :
       {"torch.embedding_bag(x, y, torch.tensor([0, 2]))[0]",
        "torch.embedding_bag(x, y, torch.tensor([0, 2, 2]), mode=1)[0]",
        "torch.embedding_bag(x, y, torch.tensor([0, 2, 5]), include_last_offset=True)[0]"})
    compare(body, {weight, places});
  compare("torch.affine_grid_generator(x, [2, 1, 4, 5], False)",
          {torch::randn({2, 2, 3}), torch::zeros({})}, 20);
  compare("torch.linspace(0, float(x.sum()), y.size(0))", {x, y});
  EXPECT_GT(compared_.size(), 55U);
}

}  // namespace
}  // namespace mezzo::deploy
