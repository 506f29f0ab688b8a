// Networks of the kinds that deployers have, with made-up weights of the size that training gives.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "builder.h"

namespace mezzo::convert {

/// Adds layers to a graph; every value gets a name from its layer.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(GraphBuilder& graph, std::string prefix = "", std::uint32_t seed = 1)
      : graph_(graph), prefix_(std::move(prefix)), random_(seed) {}

  /// Uniform weights that keep the variance of what passes through.
  std::string weight(const std::string& name, const std::vector<std::int64_t>& dims) {
    std::size_t count = 1;
    for (const std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
    const double inputs = static_cast<double>(count) / static_cast<double>(dims[0]);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto bound = static_cast<float>(std::sqrt(6.0 / inputs));
    return filled(name, dims, count, [&] { return bound * uniform(random_); });
  }
  std::string constant(const std::string& name, const std::vector<std::int64_t>& dims,
                       float value) {
    std::size_t count = 1;
    for (const std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
    return filled(name, dims, count, [&] { return value; });
  }
  std::string integers(const std::string& name, const std::vector<std::int64_t>& values) {
    graph_.initializer(tensor(prefix_ + name, Element::kInt64,
                              {static_cast<std::int64_t>(values.size())}, values));
    return prefix_ + name;
  }

  template <typename... Attributes>
  std::string add(const std::string& op, const std::string& name,
                  const std::vector<std::string>& inputs, Attributes... attributes) {
    graph_.named(prefix_ + name)
        .node(op, inputs, {prefix_ + name + ".out"}, std::move(attributes)...);
    return prefix_ + name + ".out";
  }

  std::string conv(const std::string& name, const std::string& x, std::int64_t in, std::int64_t out,
                   std::int64_t kernel, std::int64_t stride = 1) {
    const std::int64_t pad = kernel / 2;
    return add("Conv", name, {x, weight(name + ".weight", {out, in, kernel, kernel})},
               list("strides", {stride, stride}), list("pads", {pad, pad, pad, pad}));
  }
  std::string batch_norm(const std::string& name, const std::string& x, std::int64_t channels) {
    return add(
        "BatchNormalization", name,
        {x, constant(name + ".weight", {channels}, 1), constant(name + ".bias", {channels}, 0),
         constant(name + ".mean", {channels}, 0.1F), constant(name + ".var", {channels}, 0.9F)});
  }
  std::string linear(const std::string& name, const std::string& x, std::int64_t in,
                     std::int64_t out) {
    return add("MatMul", name, {x, weight(name + ".weight", {in, out})});
  }
  /// A layer norm in pieces, as exporters of old opsets write it.
  std::string layer_norm(const std::string& name, const std::string& x, std::int64_t width) {
    const std::string mean = add("ReduceMean", name + ".mean", {x}, list("axes", {-1}));
    const std::string centred = add("Sub", name + ".centred", {x, mean});
    const std::string two = constant(name + ".two", {}, 2);
    const std::string square = add("Pow", name + ".square", {centred, two});
    const std::string variance =
        add("ReduceMean", name + ".variance", {square}, list("axes", {-1}));
    const std::string eps = constant(name + ".eps", {}, 1e-12F);
    const std::string root =
        add("Sqrt", name + ".root", {add("Add", name + ".safe", {variance, eps})});
    const std::string scaled = add("Div", name + ".div", {centred, root});
    return add("Add", name + ".shift",
               {add("Mul", name + ".scale", {scaled, constant(name + ".weight", {width}, 1)}),
                constant(name + ".bias", {width}, 0.01F)});
  }
  static Message list(const std::string& name, const std::vector<std::int64_t>& values) {
    Message message;
    message.add(field::attribute::kName, kept(name));
    for (const std::int64_t value : values)
      message.add(field::attribute::kInts, static_cast<std::uint64_t>(value));
    message.add(field::attribute::kType, std::uint64_t{7});
    return message;
  }

 private:
  template <typename Make>
  std::string filled(const std::string& name, const std::vector<std::int64_t>& dims,
                     std::size_t count, const Make& make) {
    std::vector<float> values(count);
    for (float& value : values) value = make();
    graph_.weight(prefix_ + name, values, dims);
    return prefix_ + name;
  }

  GraphBuilder& graph_;
  std::string prefix_;
  std::minstd_rand random_;
};

/// ResNet-18 with 1,000 classes and a softmax at its end, on images of `size`.
inline Message resnet18(std::int64_t size = 64) {
  GraphBuilder g("resnet18");
  NetworkBuilder n(g);
  g.input("data", Element::kFloat, {1, 3, size, size});
  std::string x =
      n.add("Relu", "relu", {n.batch_norm("bn1", n.conv("conv1", "data", 3, 64, 7, 2), 64)});
  x = n.add("MaxPool", "maxpool", {x}, NetworkBuilder::list("kernel_shape", {3, 3}),
            NetworkBuilder::list("strides", {2, 2}), NetworkBuilder::list("pads", {1, 1, 1, 1}));
  std::int64_t width = 64;
  for (int layer = 1; layer <= 4; ++layer) {
    const std::int64_t out = std::int64_t{32} << layer;
    for (int block = 0; block < 2; ++block) {
      const std::string name = "layer" + std::to_string(layer) + "." + std::to_string(block);
      const std::int64_t stride = layer > 1 && block == 0 ? 2 : 1;
      std::string y =
          n.batch_norm(name + ".bn1", n.conv(name + ".conv1", x, width, out, 3, stride), out);
      y = n.conv(name + ".conv2", n.add("Relu", name + ".relu1", {y}), out, out, 3);
      y = n.batch_norm(name + ".bn2", y, out);
      if (stride != 1)
        x = n.batch_norm(name + ".down.1", n.conv(name + ".down.0", x, width, out, 1, stride), out);
      x = n.add("Relu", name + ".relu2", {n.add("Add", name + ".add", {y, x})});
      width = out;
    }
  }
  x = n.add("Flatten", "flatten", {n.add("GlobalAveragePool", "avgpool", {x})});
  x = n.add("Gemm", "fc",
            {x, n.weight("fc.weight", {1000, 512}), n.constant("fc.bias", {1000}, 0.1F)},
            attribute("transB", std::int64_t{1}));
  n.add("Softmax", "prob", {x});
  return model(g.output("prob.out", Element::kFloat, {1, 1000}).take(), 13);
}

/// Two layers of a text encoder: embedding, attention under a mask of sentinels, normalisations in
/// pieces, GELU by Erf.
inline Message encoder(float sentinel = -3.4e38F) {
  constexpr std::int64_t kWidth = 64;
  constexpr std::int64_t kHeads = 4;
  GraphBuilder g("encoder");
  NetworkBuilder n(g);
  g.input("tokens", Element::kInt64, {1, 12}).input("mask", Element::kFloat, {1, 1, 1, 12});
  std::string x = n.layer_norm(
      "embed.norm", n.add("Gather", "embed", {n.weight("embed.weight", {100, kWidth}), "tokens"}),
      kWidth);
  const std::string away = n.add("Mul", "away",
                                 {n.add("Sub", "hidden", {n.constant("one", {}, 1), "mask"}),
                                  n.constant("sentinel", {}, sentinel)});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    const std::string shape = n.integers(name + ".heads", {0, 0, kHeads, kWidth / kHeads});
    const auto heads = [&](const char* which, const std::vector<std::int64_t>& order) {
      const std::string part = name + "." + which;
      const std::string split =
          n.add("Reshape", part + ".split", {n.linear(part, x, kWidth, kWidth), shape});
      return n.add("Transpose", part + ".swap", {split}, NetworkBuilder::list("perm", order));
    };
    std::string scores =
        n.add("MatMul", name + ".scores", {heads("q", {0, 2, 1, 3}), heads("k", {0, 2, 3, 1})});
    scores = n.add("Mul", name + ".scaled", {scores, n.constant(name + ".scale", {}, 0.25F)});
    scores = n.add("Softmax", name + ".prob", {n.add("Add", name + ".masked", {scores, away})});
    std::string y = n.add("MatMul", name + ".context", {scores, heads("v", {0, 2, 1, 3})});
    y = n.add("Transpose", name + ".back", {y}, NetworkBuilder::list("perm", {0, 2, 1, 3}));
    y = n.add("Reshape", name + ".joined", {y, n.integers(name + ".shape", {0, 0, kWidth})});
    y = n.linear(name + ".out", y, kWidth, kWidth);
    x = n.layer_norm(name + ".norm1", n.add("Add", name + ".add1", {x, y}), kWidth);
    y = n.linear(name + ".up", x, kWidth, 4 * kWidth);
    const std::string bent =
        n.add("Erf", name + ".erf",
              {n.add("Div", name + ".half", {y, n.constant(name + ".root2", {}, 1.414F)})});
    y = n.add("Mul", name + ".gelu",
              {y, n.add("Add", name + ".plus", {bent, n.constant(name + ".one", {}, 1)})});
    y = n.linear(name + ".down", y, 4 * kWidth, kWidth);
    x = n.layer_norm(name + ".norm2", n.add("Add", name + ".add2", {x, y}), kWidth);
  }
  n.linear("head", x, kWidth, 10);
  return model(g.output("head.out", Element::kFloat, {1, 12, 10}).take(), 13);
}

/// A speech model: all that is heavy stands in the branches of an If over the sampling rate.
inline Message speech() {
  GraphBuilder g("speech");
  g.input("audio", Element::kFloat, {1, 1, 1, 256}).input("fast", Element::kBool, {});
  const auto branch = [](const std::string& name, std::int64_t stride) {
    GraphBuilder inner(name);
    NetworkBuilder n(inner, name + ".", 7);
    std::string x = n.add("Conv", "front", {"audio", n.weight("front.weight", {32, 1, 1, 16})},
                          NetworkBuilder::list("strides", {1, stride}));
    x = n.add("Conv", "second",
              {n.add("Relu", "relu", {x}), n.weight("second.weight", {32, 32, 1, 3})});
    x = n.add("Squeeze", "flat", {x, n.integers("axis", {2})});
    x = n.add("Transpose", "time", {x}, NetworkBuilder::list("perm", {2, 0, 1}));
    x = n.add("LSTM", "lstm",
              {x, n.weight("lstm.w", {1, 96, 32}), n.weight("lstm.r", {1, 96, 24}),
               n.constant("lstm.b", {1, 192}, 0.01F)},
              attribute("hidden_size", std::int64_t{24}));
    x = n.add("ReduceMean", "pool", {x}, NetworkBuilder::list("axes", {0, 1}),
              attribute("keepdims", std::int64_t{0}));
    x = n.add("Gemm", "head",
              {x, n.weight("head.weight", {24, 4}), n.constant("head.bias", {4}, 0.1F)});
    x = n.add("Sigmoid", "out", {x});
    return inner.output(x, Element::kFloat, {1, 4}).take();
  };
  g.node("If", {"fast"}, {"speech"}, body_attribute("then_branch", branch("fast", 4)),
         body_attribute("else_branch", branch("slow", 2)));
  return model(g.output("speech", Element::kFloat, {1, 4}).take(), 13);
}

/// An audio classifier on samples in the range of 16-bit integers: power spectrum, logarithm, then
/// a stack of convolutions.
inline Message audio() {
  GraphBuilder g("audio");
  NetworkBuilder n(g);
  g.input("samples", Element::kFloat, {1, 1, 1, 2048});
  std::string x = n.add("Conv", "stft", {"samples", n.weight("stft.weight", {32, 1, 1, 64})},
                        NetworkBuilder::list("strides", {1, 32}));
  x = n.add("Mul", "power", {x, x});
  x = n.add("Log", "log", {n.add("Add", "safe", {x, n.constant("floor", {}, 1e-6F)})});
  x = n.add("Transpose", "image", {x}, NetworkBuilder::list("perm", {0, 2, 1, 3}));
  std::int64_t width = 1;
  for (int i = 0; i < 12; ++i) {
    const std::string name = "conv" + std::to_string(i);
    x = n.add("Relu", name + ".relu",
              {n.batch_norm(name + ".bn", n.conv(name, x, width, 16, 3), 16)});
    width = 16;
  }
  x = n.add("Flatten", "flatten", {n.add("GlobalAveragePool", "pool", {x})});
  n.add("Gemm", "head", {x, n.weight("head.weight", {16, 10}), n.constant("head.bias", {10}, 0)});
  return model(g.output("head.out", Element::kFloat, {1, 10}).take(), 13);
}

/// A sample: uniform in [-scale, scale].
inline Message uniform_floats(const std::string& name, const std::vector<std::int64_t>& dims,
                              float scale) {
  std::size_t count = 1;
  for (const std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
  std::minstd_rand random(3);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return floats(name, dims, values);
}

}  // namespace mezzo::convert
