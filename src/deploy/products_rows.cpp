// Matrix products, convolutions, attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "deploy/onnx_call.h"

namespace mezzo::deploy::detail {
namespace {

using C = const Call&;

/// The matrix whose transposition a constant is, under its own name and without a copy; empty if it
/// is none.
std::string transposed_constant(C c, const OnnxValue& value) {
  const Operand& operand = *value.operand();
  if (operand.kind != Operand::Kind::kValue || !operand.is_constant ||
      !operand.examples.front().isTensor())
    return {};
  const at::Tensor& matrix = operand.examples.front().toTensor();
  if (matrix.dim() != 2 || matrix.is_contiguous() || !matrix.t().is_contiguous()) return {};
  constexpr std::string_view kTurned = "_t";
  std::string path = operand.path;
  if (path.ends_with(kTurned)) path.resize(path.size() - kTurned.size());
  return c.g.tensor(matrix.t(), path);
}

/// A layer on rows: weights that LibTorch turns stay as they are.
bool takes_turned(C c, std::string_view a, std::string* weights) {
  if (c.rank(a) != 2 || !at::isFloatingType(c.out_type()) || c.type(a) != c.out_type())
    return false;
  const std::string_view b = c.takes("mat2") ? "mat2" : c.takes("other") ? "other" : "";
  if (b.empty() || c.type(b) != c.out_type()) return false;
  *weights = transposed_constant(c, c.arg(b));
  return !weights->empty();
}

Names product(C c, std::string_view a, std::string_view b) {
  if (std::string weights; takes_turned(c, a, &weights))
    return {c.one("Gemm", {c.x(a), weights}, {{"transB", std::int64_t{1}}})};
  return {c.one("MatMul", {c.x(a, c.out_type()), c.x(b, c.out_type())})};
}

Names linear(C c) {
  const std::string x = c.x("input");
  if (c.rank("input") == 2 && c.rank("weight") == 2) {
    Names in{x, c.x("weight")};
    if (c.has("bias")) in.push_back(c.x("bias"));
    return {c.one("Gemm", in, {{"transB", std::int64_t{1}}})};
  }
  return {c.dense(x, "weight", "bias")};
}

/// beta * self + alpha * a b.
Names add_product(C c, std::string_view a, std::string_view b) {
  const double alpha = c.d("alpha"), beta = c.d("beta");
  if (c.rank(a) == 2 && c.rank(b) == 2 && c.rank() <= 2 && at::isFloatingType(c.out_type())) {
    OnnxAttributes attributes;
    if (alpha != 1) attributes["alpha"] = alpha;
    if (beta != 1) attributes["beta"] = beta;
    std::string weights;
    if (takes_turned(c, a, &weights)) attributes["transB"] = std::int64_t{1};
    return {c.one("Gemm", {c.x(a), weights.empty() ? c.x(b) : weights, c.x()}, attributes)};
  }
  std::string y = c.one("MatMul", {c.x(a), c.x(b)});
  if (alpha != 1) y = c.one("Mul", {y, c.constant(alpha)});
  return {c.one("Add", {y, beta == 1 ? c.x() : c.one("Mul", {c.x(), c.constant(beta)})})};
}

Names einsum(C c) {
  Names in;
  for (const OnnxValue& tensor : c.arg("tensors").elements())
    in.push_back(c.as(tensor, c.out_type()));
  std::string equation = c.s("equation");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  return {c.one("Einsum", in, {{"equation", equation}})};
}

std::vector<std::int64_t> as_many(std::vector<std::int64_t> values, std::int64_t count) {
  if (values.size() == 1) values.resize(static_cast<std::size_t>(count), values[0]);
  return values;
}

Names convolution(C c) {
  const std::string_view input = c.takes("input") ? "input" : "self";
  const std::int64_t axes = c.rank("weight") - 2;
  OnnxAttributes attributes{{"strides", as_many(c.is("stride"), axes)},
                            {"dilations", as_many(c.is("dilation"), axes)},
                            {"group", c.i("groups")}};
  std::string x = c.x(input);
  const bool batched = c.rank(input) == axes + 2;
  if (!batched) x = c.unsqueezed(x, {0});
  const bool transposed = (c.takes("transposed") && c.b("transposed")) ||
                          c.schema().name().find("transpose") != std::string::npos;
  if (c.takes("padding") && example_of(c.arg("padding"), 0).isString()) {
    // Engines do not pad dilated kernels by themselves.
    std::vector<std::int64_t> pads(static_cast<std::size_t>(2 * axes), 0);
    for (std::int64_t d = 0; c.s("padding") == "same" && d < axes; ++d) {
      const std::int64_t all = as_many(c.is("dilation"), axes)[static_cast<std::size_t>(d)] *
                               (c.example("weight").size(d + 2) - 1);
      pads[static_cast<std::size_t>(d)] = all / 2;
      pads[static_cast<std::size_t>(d + axes)] = all - all / 2;
    }
    attributes["pads"] = pads;
  } else {
    std::vector<std::int64_t> pads = as_many(c.is("padding"), axes);
    pads.insert(pads.end(), pads.begin(), pads.end());
    attributes["pads"] = pads;
  }
  if (transposed) attributes["output_padding"] = as_many(c.is("output_padding"), axes);
  Names in = {x, c.x("weight")};
  if (c.has("bias")) in.push_back(c.x("bias"));
  const std::string y = c.one(transposed ? "ConvTranspose" : "Conv", in, attributes);
  return {batched ? y : c.squeezed(y, {0})};
}

/// Each head of keys or values as often as a group of queries shares it.
std::string repeated_heads(C c, std::string_view name) {
  const std::int64_t rank = c.rank(name), axis = rank - 3;
  const std::int64_t heads = c.fixed_size("query", axis), own = c.fixed_size(name, axis);
  if (heads == own) return c.x(name);
  if (heads < 0 || own < 0 || rank != 4)
    c.refuse("the number of its heads follows from the inputs");
  const std::string groups =
      c.one("Expand", {c.unsqueezed(c.x(name), {axis + 1}), c.g.ints({1, 1, heads / own, 1, 1})});
  const std::int64_t width = c.fixed_size(name, rank - 1);
  if (width < 0) c.refuse("the width of its heads follows from the model's inputs");
  return c.one("Reshape", {groups, c.g.ints({0, heads, -1, width})});
}

Names attention(C c) {
  const at::ScalarType type = c.out_type();
  const std::int64_t rank = c.rank("query");
  const std::int64_t width = c.fixed_size("query", rank - 1);
  if (width < 0) c.refuse("the width of its heads follows from the model's inputs");
  const double scale = c.has("scale") ? c.d("scale") : 1 / std::sqrt(static_cast<double>(width));
  const std::string query = c.one("Mul", {c.x("query"), c.constant(scale)});
  std::string key = c.x("key"), value = c.x("value");
  if (c.takes("enable_gqa") && c.b("enable_gqa")) {
    key = repeated_heads(c, "key");
    value = repeated_heads(c, "value");
  }
  std::string scores = c.one("MatMul", {query, c.transposed(key, rank, rank - 2, rank - 1)});
  if (c.has("attn_mask")) {
    std::string mask = c.x("attn_mask");
    if (c.type("attn_mask") == at::kBool)
      mask = c.one("Where",
                   {mask, c.constant(0), c.constant(-std::numeric_limits<double>::infinity())});
    scores = c.one("Add", {scores, mask});
  }
  if (c.takes("is_causal") && c.b("is_causal")) {
    if (c.g.opset() < 14) c.refuse("is_causal needs opset 14; set options.opset");
    const std::string rows = c.sizes(c.x("query"), rank - 2, rank - 1),
                      columns = c.sizes(key, rank - 2, rank - 1);
    const std::string ones =
        c.one("ConstantOfShape", {c.one("Concat", {rows, columns}, {{"axis", std::int64_t{0}}})},
              {{"value",
                at::full({1}, -std::numeric_limits<double>::infinity(), at::TensorOptions(type))}});
    scores = c.one("Add", {scores, c.one("Trilu", {ones, c.g.integer(1)})});
  }
  return {c.one("MatMul", {c.one("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), value})};
}

/// Distances between rows of two matrices.
Names cdist(C c) {
  const double p = c.d("p");
  if (p != 1 && p != 2 && !std::isinf(p)) c.refuse("its p must be 1, 2 or infinite in ONNX");
  const std::int64_t rank = c.rank("x1");
  const std::string off =
      c.one("Sub", {c.unsqueezed(c.x("x1"), {rank - 1}), c.unsqueezed(c.x("x2"), {rank - 2})});
  if (std::isinf(p)) return {c.reduced("ReduceMax", c.one("Abs", {off}), {rank}, false, rank + 1)};
  return {c.reduced(p == 1 ? "ReduceL1" : "ReduceL2", off, {rank}, false, rank + 1)};
}

Names bilinear(C c) {
  const std::string product = c.one("Einsum", {c.x("input1"), c.x("weight"), c.x("input2")},
                                    {{"equation", std::string("...i,oij,...j->...o")}});
  return {c.has("bias") ? c.one("Add", {product, c.x("bias")}) : product};
}

constexpr Row kProducts[] = {
    {"matmul vdot", 13, [](C c) { return product(c, "self", "other"); }},
    {"mm bmm", 13, [](C c) { return product(c, "self", "mat2"); }},
    {"mv", 13, [](C c) { return product(c, "self", "vec"); }},
    {"dot", 13, [](C c) { return product(c, "self", "tensor"); }},
    {"linear", 13, linear},
    {"addmm", 13, [](C c) { return add_product(c, "mat1", "mat2"); }},
    {"addbmm", 13,
     [](C c) {
       const std::string sum =
           c.reduced("ReduceSum", c.one("MatMul", {c.x("batch1"), c.x("batch2")}), {0}, false, 3);
       return Names{c.one("Add", {c.one("Mul", {c.x(), c.constant(c.d("beta"))}),
                                  c.one("Mul", {sum, c.constant(c.d("alpha"))})})};
     }},
    {"baddbmm", 13, [](C c) { return add_product(c, "batch1", "batch2"); }},
    {"addmv", 13, [](C c) { return add_product(c, "mat", "vec"); }},
    {"einsum", 13, einsum},
    {"_convolution convolution conv1d conv2d conv3d conv_transpose1d", 13, convolution},
    {"conv_transpose2d conv_transpose3d _convolution_mode", 13, convolution},
    {"scaled_dot_product_attention", 13, attention},
    {"cdist", 13, cdist},
    {"bilinear", 13, bilinear},
    {"outer", 13,
     [](C c) {
       return Names{c.one("Mul", {c.unsqueezed(c.x("self"), {1}), c.unsqueezed(c.x("vec2"), {0})})};
     }},
    {"det", 13, [](C c) { return Names{c.one("Det", {c.x()})}; }},
};

}  // namespace

std::span<const Row> product_rows() {
  return kProducts;
}

}  // namespace mezzo::deploy::detail
