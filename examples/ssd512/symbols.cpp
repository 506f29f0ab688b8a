#include "ssd512/symbols.h"

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace examples {

namespace {

namespace mx = mezzo::convert::mxnet;

/// A graph in the making. Values are the places of nodes.
class SymbolBuilder {
 public:
  using Value = std::uint32_t;

  Value variable(const std::string& name) { return add("null", name, {}, {}); }

  Value convolution(Value x, const std::string& name, std::int64_t in, std::int64_t out,
                    std::int64_t kernel, std::int64_t stride) {
    const std::string side = std::to_string(kernel), step = std::to_string(stride),
                      pad = std::to_string(kernel / 2);
    const double deviation = std::sqrt(2.0 / static_cast<double>(in * kernel * kernel));
    const Value weight =
        parameter(name + "_weight", torch::randn({out, in, kernel, kernel}) * deviation);
    return add("Convolution", name,
               {{"kernel", "(" + side + ", " + side + ")"},
                {"stride", "(" + step + ", " + step + ")"},
                {"pad", "(" + pad + ", " + pad + ")"},
                {"num_filter", std::to_string(out)},
                {"no_bias", "True"}},
               {x, weight});
  }

  Value batch_norm(Value x, const std::string& name, std::int64_t channels) {
    const Value gamma = parameter(name + "_gamma", torch::ones(channels));
    const Value beta = parameter(name + "_beta", torch::zeros(channels));
    const Value mean = statistic(name + "_moving_mean", torch::zeros(channels));
    const Value var = statistic(name + "_moving_var", torch::ones(channels));
    return add("BatchNorm", name, {{"fix_gamma", "False"}, {"eps", "2e-05"}},
               {x, gamma, beta, mean, var});
  }

  Value relu(Value x, const std::string& name) {
    return add("Activation", name, {{"act_type", "relu"}}, {x});
  }

  Value parameter(const std::string& name, const at::Tensor& values) {
    store(args_, name, values);
    return variable(name);
  }

  Value add(const std::string& op, const std::string& name,
            std::map<std::string, std::string> attrs, const std::vector<Value>& inputs) {
    mx::Node node{op, name, std::move(attrs)};
    for (const Value input : inputs) node.inputs.push_back({input, 0, 0});
    if (op == "BatchNorm") node.outputs = 3;
    nodes_.push_back(std::move(node));
    return static_cast<Value>(nodes_.size() - 1);
  }

  mx::Checkpoint finish(Value head) && {
    return {mx::Symbol(std::move(nodes_), {{head, 0, 0}}), std::move(args_), std::move(auxs_)};
  }

 private:
  Value statistic(const std::string& name, const at::Tensor& values) {
    store(auxs_, name, values);
    return variable(name);
  }

  static void store(mx::NDArrays& arrays, const std::string& name, const at::Tensor& values) {
    const at::Tensor kept = values.to(at::kFloat).contiguous();
    arrays.set(name, "float32", kept.sizes().vec(),
               std::string(static_cast<const char*>(kept.const_data_ptr()), kept.nbytes()));
  }

  std::vector<mx::Node> nodes_;
  mx::NDArrays args_, auxs_;
};

}  // namespace

mx::Checkpoint make_resnet18() {
  SymbolBuilder graph;
  const auto data = graph.variable("data");
  auto x = graph.batch_norm(graph.convolution(data, "conv0", 3, 64, 7, 2), "bn0", 64);
  x = graph.add(
      "Pooling", "pooling0",
      {{"kernel", "(3, 3)"}, {"stride", "(2, 2)"}, {"pad", "(1, 1)"}, {"pool_type", "max"}},
      {graph.relu(x, "relu0")});
  std::int64_t in = 64;
  for (int stage = 1; stage <= 4; ++stage) {
    const std::int64_t out = std::int64_t{32} << stage;
    for (int unit = 1; unit <= 2; ++unit) {
      const std::string name = "stage" + std::to_string(stage) + "_unit" + std::to_string(unit);
      const std::int64_t stride = unit == 1 && stage > 1 ? 2 : 1;
      auto y = graph.convolution(x, name + "_conv1", in, out, 3, stride);
      y = graph.relu(graph.batch_norm(y, name + "_bn1", out), name + "_relu1");
      y = graph.batch_norm(graph.convolution(y, name + "_conv2", out, out, 3, 1), name + "_bn2",
                           out);
      if (in != out) x = graph.convolution(x, name + "_sc", in, out, 1, stride);
      x = graph.relu(graph.add("elemwise_add", name + "_plus", {}, {y, x}), name + "_relu2");
      in = out;
    }
  }
  x = graph.add("Pooling", "pool1",
                {{"kernel", "(7, 7)"}, {"global_pool", "True"}, {"pool_type", "avg"}}, {x});
  x = graph.add("Flatten", "flatten0", {}, {x});
  const auto weight = graph.parameter("fc1_weight", torch::randn({1000, 512}) * 0.01);
  const auto bias = graph.parameter("fc1_bias", torch::zeros(1000));
  x = graph.add("FullyConnected", "fc1", {{"num_hidden", "1000"}}, {x, weight, bias});
  const auto label = graph.variable("softmax_label");
  const auto softmax = graph.add("SoftmaxOutput", "softmax", {}, {x, label});
  return std::move(graph).finish(softmax);
}

}  // namespace examples
