// Operators of LibTorch as ONNX says them, computed by another engine, against LibTorch itself:
// over types, negative dimensions, and at sizes that the export did not see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>

#include "messages.h"
#include "mezzo/deploy.h"
#include "mezzo/error.h"
#include "run_file.h"

namespace mezzo::deploy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "mezzo_onnx_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path file() const { return path_ / "net.onnx"; }

 private:
  std::filesystem::path path_;
};

/// A script with this body for `forward(self, x, y)`; both are float matrices unless given.
torch::jit::Module script(const std::string& body) {
  torch::jit::Module module("Script");
  module.define("def forward(self, x, y):\n  return " + body + "\n");
  return module;
}

struct Row {
  const char* body;
  int opset = 17;
};

void expect_exported(const Row& row, const std::vector<at::Tensor>& inputs,
                     const DynamicAxes& axes) {
  const Folder folder;
  OnnxOptions options = judged_options();
  options.opset = row.opset;
  options.dynamic_axes = axes;
  const std::string message = message_of([&] {
    const ExportReport report = export_onnx(script(row.body), inputs, folder.file(), options);
    EXPECT_FALSE(report.verified.empty());
  });
  EXPECT_EQ(message, "no error") << row.body;
}

const DynamicAxes kFirst = {{"x", {{0, "n"}}}, {"y", {{0, "n"}}}};

TEST(OnnxOperators, Elementwise) {
  torch::manual_seed(5);
  const at::Tensor x = torch::rand({3, 4}) * 0.8 + 0.1, y = torch::rand({3, 4}) * 0.8 + 0.1;
  for (const char* body : {"x + y",
                           "x - y * 2",
                           "x / y",
                           "torch.sub(x, y, alpha=3)",
                           "torch.rsub(x, 2)",
                           "torch.floor_divide(x * 7, y)",
                           "torch.remainder(x * 9 - 4, y)",
                           "torch.fmod(x * 9 - 4, y)",
                           "torch.pow(x, 2)",
                           "torch.pow(x, y)",
                           "torch.pow(x, 0.5)",
                           "torch.exp(x)",
                           "torch.log(x)",
                           "torch.log2(x)",
                           "torch.log10(x)",
                           "torch.log1p(x)",
                           "torch.expm1(x)",
                           "torch.exp2(x)",
                           "torch.sqrt(x)",
                           "torch.rsqrt(x)",
                           "torch.reciprocal(x)",
                           "torch.abs(x - y)",
                           "torch.neg(x)",
                           "torch.sign(x - y)",
                           "torch.sin(x)",
                           "torch.cos(x)",
                           "torch.tan(x)",
                           "torch.asin(x)",
                           "torch.acos(x)",
                           "torch.atan(x)",
                           "torch.sinh(x)",
                           "torch.cosh(x)",
                           "torch.asinh(x)",
                           "torch.acosh(x + 1)",
                           "torch.atanh(x)",
                           "torch.atan2(x - 0.5, y - 0.5)",
                           "torch.erf(x)",
                           "torch.erfc(x)",
                           "torch.floor(x * 9)",
                           "torch.ceil(x * 9)",
                           "torch.round(x * 9)",
                           "torch.trunc(x * 9 - 4)",
                           "torch.frac(x * 9 - 4)",
                           "torch.clamp(x, 0.2, 0.6)",
                           "torch.clamp(x, min=0.3)",
                           "torch.clamp_max(x, 0.3)",
                           "torch.maximum(x, y)",
                           "torch.minimum(x, y)",
                           "torch.sigmoid(x)",
                           "torch.tanh(x)",
                           "torch.relu(x - 0.5)",
                           "torch.gelu(x)",
                           "torch.gelu(x, approximate=\"tanh\")",
                           "torch.silu(x)",
                           "torch.mish(x)",
                           "torch.hardswish(x * 8 - 4)",
                           "torch.hardsigmoid(x * 8 - 4)",
                           "torch.hardtanh(x * 4 - 2)",
                           "torch.elu(x - 0.5)",
                           "torch.selu(x - 0.5)",
                           "torch.celu(x - 0.5, 1.5)",
                           "torch.leaky_relu(x - 0.5, 0.1)",
                           "torch.softplus(x, 2)",
                           "torch.log_sigmoid(x)",
                           "torch.threshold(x, 0.5, 2)",
                           "torch.softshrink(x - 0.5, 0.2)",
                           "torch.hardshrink(x - 0.5, 0.2)",
                           "torch.glu(x, -1)",
                           "torch.logit(x)",
                           "torch.square(x)",
                           "torch.lerp(x, y, 0.3)",
                           "torch.addcmul(x, x, y, value=2)",
                           "torch.addcdiv(x, x, y, value=2)",
                           "torch.where(x > y, x, y * 2)",
                           "torch.masked_fill(x, x > y, -1)",
                           "torch.nan_to_num(torch.log(x - 0.5))",
                           "torch.hypot(x, y)",
                           "torch.deg2rad(x)",
                           "x.to(7)",
                           "x.type_as(y)"})
    expect_exported({body}, {x, y}, kFirst);
}

TEST(OnnxOperators, IntegersAndBooleans) {
  const at::Tensor x = torch::tensor({{7, -7, 8}, {-9, 5, 1}}),
                   y = torch::tensor({{2, 2, -3}, {-4, 5, 3}});
  for (const char* body : {"x + y",
                           "x * y - 3",
                           "x / y",
                           "torch.floor_divide(x, y)",
                           "torch.div(x, y, rounding_mode=\"trunc\")",
                           "torch.div(x, y, rounding_mode=\"floor\")",
                           "torch.remainder(x, y)",
                           "torch.fmod(x, y)",
                           "x == y",
                           "x != y",
                           "x < y",
                           "x >= 5",
                           "x + 0.5",
                           "(x > 1) & (y > 0)",
                           "(x > 1) | (y > 0)",
                           "torch.logical_xor(x > 1, y > 0)",
                           "torch.logical_not(x > 1)",
                           "~(x > 1)",
                           "torch.bitwise_not(x)",
                           "torch.abs(x)",
                           "torch.clamp(x, -2, 6)",
                           "(x > 1) * y",
                           "torch.sum(x > 1)",
                           "torch.sum(x, 1)",
                           "torch.any(x > 7)",
                           "torch.all(x > 1, 1)",
                           "torch.cumsum(x, -1)",
                           "torch.where(x > y, x, y)",
                           "torch.mean(x.float(), 0)",
                           "torch.one_hot(torch.abs(y), 6)"})
    expect_exported({body}, {x, y}, kFirst);
}

TEST(OnnxOperators, ReductionsAndSorting) {
  torch::manual_seed(6);
  const at::Tensor x = torch::randn({3, 4, 5}), y = torch::randn({3, 4, 5});
  for (const char* body : {"torch.sum(x)",
                           "torch.sum(x, -1)",
                           "torch.sum(x, [0, 2], keepdim=True)",
                           "torch.mean(x)",
                           "torch.mean(x, [1, -1])",
                           "torch.prod(x, 1)",
                           "torch.amax(x, -1)",
                           "torch.amin(x, [0], True)",
                           "torch.max(x)",
                           "torch.max(x, y)",
                           "torch.max(x, 1)",
                           "torch.min(x, -1, True)",
                           "torch.argmax(x, -1)",
                           "torch.argmin(x, 1, True)",
                           "torch.argmax(x)",
                           "torch.std(x)",
                           "torch.var(x, -1)",
                           "torch.var(x, [0, 1], unbiased=False)",
                           "torch.std(x, 1, correction=0, keepdim=True)",
                           "torch.var_mean(x, -1)",
                           "torch.norm(x, 2)",
                           "torch.norm(x, 1, -1)",
                           "torch.linalg_vector_norm(x, 3, [1])",
                           "torch.logsumexp(x, [-1])",
                           "torch.softmax(x, -1)",
                           "torch.softmax(x, 1)",
                           "torch.log_softmax(x, -2)",
                           "torch.cumsum(x, 1)",
                           "torch.topk(x, 2, -1)",
                           "torch.topk(x, 2, 1, False)",
                           "torch.sort(x, -1)",
                           "torch.sort(x, 1, True)",
                           "torch.argsort(x, -1)",
                           "torch.kthvalue(x, 2, -1)",
                           "torch.count_nonzero(x > 0)"})
    expect_exported({body}, {x, y}, kFirst);
}

TEST(OnnxOperators, Shapes) {
  torch::manual_seed(7);
  const at::Tensor x = torch::randn({2, 6, 4}), y = torch::randn({2, 6, 4});
  for (const char* body :
       {"x.view(x.size(0), -1)",
        "x.reshape(x.size(0) * 6, 4)",
        "x.view(x.size(0), 2, 3, 4)",
        "torch.flatten(x)",
        "torch.flatten(x, 1)",
        "torch.flatten(x, 0, 1)",
        "torch.unflatten(x, 1, [2, 3])",
        "x.permute(2, 0, 1)",
        "x.transpose(-1, 0)",
        "torch.movedim(x, [0], [-1])",
        "x.unsqueeze(-1)",
        "x.unsqueeze(1).squeeze(1)",
        "x[:, :1].expand(-1, 6, 4)",
        "x[:, 0].unsqueeze(1).expand_as(y)",
        "x.repeat(1, 2, 1)",
        "x.repeat(2, 1, 1, 1)",
        "torch.cat([x, y], -1)",
        "torch.cat([x, y], 0)",
        "torch.stack([x, y], -1)",
        "torch.split(x, 2, 1)",
        "torch.split(x, 4, 1)",
        "torch.split_with_sizes(x, [1, 5], 1)",
        "torch.chunk(x, 3, 1)",
        "torch.chunk(x, 2, 0)[0]",
        "torch.unbind(x, 1)",
        "x[:, 1:5:2]",
        "x[:, -2:]",
        "x[:, :-1]",
        "x.select(1, -1)",
        "x.narrow(1, 2, 3)",
        "torch.flip(x, [1, -1])",
        "torch.roll(x, [1, -1], [1, 2])",
        "torch.roll(x, [1], [0])",
        "torch.tril(x)",
        "torch.triu(x, 1)",
        "torch.repeat_interleave(x, 2, 1)",
        "x.size(0) * torch.ones([2])",
        "torch.arange(x.size(0))",
        "torch.arange(1, x.size(0) + 1, 1).float()",
        "torch.zeros([x.size(0), 3])",
        "torch.full([x.size(0)], 2.5)",
        "torch.ones_like(x)",
        "x.new_zeros([x.size(0)])",
        "torch.eye(x.size(0))",
        "torch.meshgrid([torch.arange(x.size(0)), torch.arange(3)], indexing=\"ij\")",
        "x.numel() + torch.zeros([1])"})
    expect_exported({body}, {x, y}, kFirst);
}

TEST(OnnxOperators, Indexing) {
  torch::manual_seed(8);
  const at::Tensor x = torch::randn({4, 5, 6}), y = torch::randint(0, 4, {4, 5, 6});
  for (const char* body :
       {"torch.gather(x, 1, y)", "torch.index_select(x, 1, y[0, :, 0])", "torch.embedding(x[0], y)",
        "x[y[0, 0]]", "x[:, y[0, 0]]", "x[y[0, 0], y[0, 1]]", "x[:, y[0, 0], y[0, 1]]",
        "x[y[0, 0], :, y[0, 1]]", "x[x > 0]", "torch.scatter(x, 1, y, x)",
        "torch.scatter(x, 1, y, 2.0)", "torch.scatter_add(x, 1, y, x)",
        "torch.index_add(x, 1, y[0, :, 0], x)", "torch.index_fill(x, 1, y[0, :1, 0], 3.0)",
        "torch.index_put(x, [y[0, 0]], x[0], accumulate=True)",
        "torch.index_put(x, [y[0, 0], y[0, 1]], torch.ones([1]))", "torch.masked_select(x, x > 0)",
        "torch.nonzero(x > 0)", "torch.take_along_dim(x, y, 1)"})
    expect_exported({body}, {x, y}, {});
}

TEST(OnnxOperators, Products) {
  torch::manual_seed(9);
  const at::Tensor x = torch::randn({3, 4, 4}), y = torch::randn({3, 4, 4});
  for (const char* body :
       {"torch.matmul(x, y)", "torch.bmm(x, y)", "torch.mm(x[0], y[0])", "torch.mv(x[0], y[0, 0])",
        "torch.dot(x[0, 0], y[0, 0])", "torch.addmm(x[0], x[1], y[0], beta=0.5, alpha=2)",
        "torch.baddbmm(x, x, y)", "torch.linear(x, y[0])", "torch.einsum(\"bij,bjk->bik\", [x, y])",
        "torch.einsum(\"bij,bij->b\", [x, y])", "torch.cdist(x, y)", "torch.cdist(x, y, 1.0)",
        "torch.scaled_dot_product_attention(x.unsqueeze(1), y.unsqueeze(1), x.unsqueeze(1))",
        "torch.scaled_dot_product_attention(x.unsqueeze(1), y.unsqueeze(1), x.unsqueeze(1), "
        "is_causal=True)",
        "torch.outer(x[0, 0], y[0, 0])"})
    expect_exported({body}, {x, y}, {});
}

TEST(OnnxOperators, Images) {
  torch::manual_seed(10);
  const at::Tensor x = torch::randn({2, 4, 8, 8}), y = torch::randn({4, 4, 3, 3});
  const DynamicAxes batch = {{"x", {{0, "n"}}}};
  for (const char* body :
       {"torch.conv2d(x, y, None, [2, 2], [1, 1])",
        "torch.conv2d(x, y[:, :2], None, [1], [0], [1], 2)",
        "torch.conv_transpose2d(x, y, None, [2, 2], [1, 1], [1, 1])",
        "torch.max_pool2d(x, [3, 3], [2, 2], [1, 1])",
        "torch.avg_pool2d(x, [2, 2])",
        "torch.avg_pool2d(x, [3, 3], [2, 2], [1, 1], False, False)",
        "torch.adaptive_avg_pool2d(x, [1, 1])",
        "torch.adaptive_avg_pool2d(x, [2, 4])",
        "torch.adaptive_avg_pool2d(x, [3, 5])",
        "torch.adaptive_avg_pool2d(x, [9, 1])",
        "torch.adaptive_avg_pool1d(x[0], 3)",
        "torch.adaptive_avg_pool3d(x.unsqueeze(1), [3, 3, 5])",
        "torch.upsample_nearest2d(x, [16, 16])",
        "torch.upsample_bilinear2d(x, [13, 16], False)",
        "torch.upsample_bilinear2d(x, [15, 15], True)",
        "torch.upsample_bilinear2d(x, [13, 16], False, None)",
        "torch.upsample_nearest2d(x, None, [2.0, 1.5])",
        "torch.upsample_bilinear2d(x, None, True, [2.0, 2.0])",
        "torch.upsample_bicubic2d(x, [16, 12], False)",
        "torch.pad(x, [1, 2, 0, 1])",
        "torch.pad(x, [1, 1, 2, 0], \"reflect\")",
        "torch.pad(x, [1, 1, 2, 2], \"replicate\")",
        "torch.pixel_shuffle(x, 2)",
        "torch.pixel_unshuffle(x, 2)",
        "torch.grid_sampler(x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), 0, 0, False)",
        "torch.layer_norm(x, [8])",
        "torch.group_norm(x, 2)",
        "torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, True)"}) {
    expect_exported({body}, {x, y}, batch);
  }
}

TEST(OnnxOperators, AdaptivePoolsOfAnySize) {
  torch::manual_seed(12);
  const at::Tensor x = torch::randn({2, 3, 8, 10});
  const DynamicAxes sizes = {{"x", {{0, "n"}, {2, "height"}, {3, "width"}}}};
  for (const char* body :
       {"torch.adaptive_avg_pool2d(x, [1, x.size(3)]) + torch.mean(y)",
        "torch.adaptive_avg_pool2d(x, [3, x.size(3)]) + torch.mean(y)",
        "torch.adaptive_max_pool2d(x, [x.size(2), 1])[0] + torch.mean(y)",
        "torch.adaptive_avg_pool2d(x, [7, 7]) + y", "torch.adaptive_avg_pool2d(x, [2, 3]) + y",
        "torch.adaptive_avg_pool1d(x[:, 0], 4) + y"})
    expect_exported({body}, {x, torch::zeros({1})}, sizes);
}

TEST(OnnxOperators, SizesThatAFewPixelsDoNotChange) {
  torch::manual_seed(14);
  const at::Tensor x = torch::randn({1, 2, 64, 64}), y = torch::randn({2, 2, 1, 1});
  const DynamicAxes sizes = {{"x", {{0, "n"}, {2, "height"}, {3, "width"}}}};
  for (const char* body : {"torch.adaptive_avg_pool2d(torch.conv2d(x, y, None, [32, 32]), [7, 7])",
                           "torch.conv2d(x, y, None, [32, 32]) / (x.size(2) // 32)"}) {
    const Folder folder;
    OnnxOptions options = judged_options();
    options.dynamic_axes = sizes;
    torch::jit::Module module = script(body);
    export_onnx(module, {x, y}, folder.file(), options);
    const at::Tensor other = torch::randn({2, 2, 128, 96});
    const c10::IValue expected = module.forward({other, y});
    EXPECT_LT(error_of_file(folder.file(), {"x", "y"}, {other, y}, expected), 1e-4) << body;
  }
}

TEST(OnnxOperators, ViewsOfWhatIsMadeContiguous) {
  torch::manual_seed(13);
  const at::Tensor x = torch::randn({3, 4}), y = torch::randn({3, 4});
  expect_exported({"(x + y).t().contiguous().view(2, -1)"}, {x, y}, kFirst);
  expect_exported({"(x + y).t().contiguous().view(-1).sum() + x"}, {x, y}, kFirst);
}

/// The only output of the file as doubles.
at::Tensor output_of(const std::filesystem::path& file, const at::Tensor& x) {
  const OnnxOptions options = judged_options();
  const convert::MadeRun run =
      convert::run_made(file, {{{"x", array_from(x)}}}, options.evaluator, options.onnxruntime);
  convert::Array got = run.outputs.at(0).at(0);
  const at::ScalarType type = got.element == element_of(at::kLong) ? at::kLong : at::kFloat;
  EXPECT_EQ(got.element, element_of(type));
  return at::from_blob(got.bytes.data(), got.dims, type).to(at::kDouble, false, true);
}

TEST(OnnxOperators, RandomNumbersAreDrawnInTheModel) {
  torch::manual_seed(11);
  const struct {
    const char* body;
    double mean, deviation;
  } cases[] = {
      {"torch.rand([x.size(0), 50])", 0.5, 0.289},
      {"torch.rand([100, 50])", 0.5, 0.289},
      {"torch.rand_like(x)", 0.5, 0.289},
      {"torch.randn_like(x) * 2", 0, 2},
      {"torch.randn([x.size(0), 50])", 0, 1},
      {"torch.normal(x * 0 + 2, 0.5)", 2, 0.5},
      {"torch.normal(1.0, x * 0 + 3)", 1, 3},
      {"torch.randint(3, 8, [x.size(0), 50])", 5, 1.414},
      {"torch.bernoulli(x * 0 + 0.3)", 0.3, 0.458},
      {"torch.bernoulli(x, 0.7)", 0.7, 0.458},
      {"x.clone().uniform_(1.0, 3.0)", 2, 0.577},
      {"x.clone().normal_(1.0, 3.0)", 1, 3},
      {"x.clone().exponential_(2.0)", 0.5, 0.5},
      {"torch.multinomial(torch.tensor([1.0, 0.0, 3.0]).expand([x.size(0), 3]), 1)", 1.5, 0.866},
      {"torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), 4000, True)", 1.5, 0.866},
      {"torch.multinomial(torch.softmax(x, 1), 50)", 24.5, 14.43},
  };
  for (const auto& [body, mean, deviation] : cases) {
    const Folder folder;
    OnnxOptions options = judged_options();
    options.dynamic_axes = {{"x", {{0, "n"}}}};
    torch::jit::Module module("Script");
    module.define("def forward(self, x):\n  return " + std::string(body) + "\n");
    const std::string message = message_of([&] {
      const ExportReport report =
          export_onnx(module, {torch::randn({3, 50})}, folder.file(), options);
      EXPECT_THAT(report.verified, HasSubstr("by their sizes alone")) << body;
    });
    ASSERT_EQ(message, "no error") << body;
    const at::Tensor numbers = output_of(folder.file(), torch::randn({2000, 50}));
    EXPECT_NEAR(numbers.mean().item<double>(), mean, 0.08) << body;
    EXPECT_NEAR(numbers.std().item<double>(), deviation, 0.08) << body;
  }
}

TEST(OnnxOperators, ChoicesWithoutReplacementDiffer) {
  const Folder folder;
  OnnxOptions options = judged_options();
  options.dynamic_axes = {{"x", {{0, "n"}}}};
  torch::jit::Module module("Script");
  module.define("def forward(self, x):\n  return torch.multinomial(torch.softmax(x, 1), 5)\n");
  export_onnx(module, {torch::randn({3, 5})}, folder.file(), options);
  const at::Tensor sorted = std::get<0>(output_of(folder.file(), torch::randn({20, 5})).sort(1));
  EXPECT_TRUE(torch::equal(sorted, torch::arange(5, torch::kDouble).expand({20, 5})));
}

/// As detectors count what came before, level by level.
TEST(OnnxOperators, ConstantsThatAreWrittenHaveTheirValuesOfEachMoment) {
  torch::manual_seed(11);
  torch::jit::Module module("Script");
  module.define(R"(
def forward(self, x, y):
  sum = torch.ones([2])
  first = x[:, :2] + sum
  part = sum[0]
  sum.add_(3)
  second = first * sum + part
  part.mul_(2)
  third = second - sum
  sum[1] = 5.5
  return first, second, third, third * sum, y + part
)");
  const Folder folder;
  const at::Tensor x = torch::randn({4, 5}), y = torch::randn({4, 5});
  OnnxOptions options = judged_options();
  options.dynamic_axes = kFirst;
  const std::string message = message_of([&] {
    EXPECT_FALSE(export_onnx(module, {x, y}, folder.file(), options).verified.empty());
  });
  EXPECT_EQ(message, "no error");
}

TEST(OnnxOperators, WritesInPlaceReachWhatTheyShow) {
  torch::manual_seed(11);
  torch::jit::Module module("Script");
  module.define(R"(
def forward(self, x, y):
  z = x.clone()
  z[:, 1:3] = y[:, 1:3] * 2
  z[:, 0].add_(5)
  z.transpose(0, 1)[3].mul_(y[:, 0])
  part = z[:, 2:]
  z.relu_()
  a = torch.zeros([4, 2])
  a[:, 0] = z[:, 1]
  return z, part, a
)");
  const Folder folder;
  const at::Tensor x = torch::randn({4, 5}), y = torch::randn({4, 5});
  // The judge has compared the file's results with the module's.
  EXPECT_FALSE(export_onnx(module, {x, y}, folder.file(), judged_options()).verified.empty());
}

TEST(OnnxOperators, BranchesListsDictionariesAndFixedLoops) {
  torch::jit::Module module("Script");
  module.define(R"(
def forward(self, x, y):
  parts = [x]
  for i in range(3):
    parts.append(parts[-1] * float(i + 1))
  named = {"a": x + y, "b": x - y}
  if bool(x.sum() > 0):
    z = named["a"] * 2
  else:
    z = named["b"].relu()
  if x.dim() == 2:
    z = z + 1
  return torch.stack(parts), z
)");
  const Folder folder;
  const at::Tensor x = torch::ones({2, 3}), y = torch::full({2, 3}, 2.0);
  for (const at::Tensor& either : {x, -x}) {
    const ExportReport report = export_onnx(module, {either, y}, folder.file(), judged_options());
    EXPECT_FALSE(report.verified.empty()) << "a branch each, compared by the judge";
  }
}

TEST(OnnxOperators, WhatCannotBeSaidIsNamed) {
  const Folder folder;
  const at::Tensor x = torch::randn({3, 3});
  EXPECT_THAT(message_of([&] {
                export_onnx(script("torch.linalg_inv(x)"), {x, x}, folder.file(), judged_options());
              }),
              AllOf(HasSubstr("aten::linalg_inv"), HasSubstr("options.translate")));
  EXPECT_FALSE(std::filesystem::exists(folder.file()));
  OnnxOptions old = judged_options();
  old.opset = 13;
  EXPECT_THAT(message_of([&] {
                export_onnx(script("torch.tril(x)"), {x, x}, folder.file(), old);
              }),
              HasSubstr("needs opset 14"));
  old.opset = 12;
  EXPECT_THROW(export_onnx(script("x"), {x, x}, folder.file(), old), ConfigError);
}

TEST(OnnxOperators, ACallersOwnTranslationComesFirst) {
  const Folder folder;
  OnnxOptions options = judged_options();
  int calls = 0;
  options.translate["aten::relu"] = [&](OnnxGraph& graph, const OnnxCall& call) {
    ++calls;
    EXPECT_EQ(call["self"].sizes(), (std::vector<std::int64_t>{3, 3}));
    return graph.add("Max", {call["self"], graph.constant(torch::zeros({}))});
  };
  const ExportReport report = export_onnx(
      script("torch.relu(x)"), {torch::randn({3, 3}), torch::randn({1})}, folder.file(), options);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(report.nodes, 1);
}

TEST(OnnxOperators, TheListNamesEveryRowOnce) {
  const auto all = onnx_operators();
  EXPECT_GT(all.size(), 300U);
  EXPECT_EQ(all.front().first.rfind("aten::", 0), 0U);
}

}  // namespace
}  // namespace mezzo::deploy
