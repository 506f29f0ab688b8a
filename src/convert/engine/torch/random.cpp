// Random numbers: the same ones at every run, so that two models that draw alike can be compared.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/add.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include <bit>

#include "convert/engine/torch/call.h"

namespace mezzo::convert {
namespace {

using Call = TorchCall;
using at::Tensor;
using Dims = std::vector<std::int64_t>;

// Numbers are drawn as floats whatever type they become.
at::Generator generator_of(const Call& c) {
  const auto seed = static_cast<float>(c.number("seed", 0));
  return at::make_generator<at::CPUGeneratorImpl>(std::bit_cast<std::uint32_t>(seed));
}

Tensor normal_numbers(const Call& c, const Dims& shape) {
  const Tensor drawn = at::randn(shape, generator_of(c), at::TensorOptions(at::kFloat));
  return at::add(at::mul(drawn, c.number("scale", 1)), c.number("mean", 0));
}

Tensor uniform_numbers(const Call& c, const Dims& shape) {
  const double low = c.number("low", 0);
  const Tensor drawn = at::rand(shape, generator_of(c), at::TensorOptions(at::kFloat));
  return at::add(at::mul(drawn, c.number("high", 1) - low), low);
}

template <Tensor (*Draw)(const Call&, const Dims&)>
Tensors of_shape(const Call& c) {
  return {Draw(c, c.integers("shape"))};
}

template <Tensor (*Draw)(const Call&, const Dims&)>
Tensors alike(const Call& c) {
  return {Draw(c, c.in(0).sizes().vec())};
}

Tensors bernoulli(const Call& c) {
  return {at::lt(uniform_numbers(c, c.in(0).sizes().vec()), c.in(0))};
}

// Sorted by name.
constexpr TorchOperator kRandomOperators[] = {
    {"Bernoulli", bernoulli},
    {"RandomNormal", of_shape<normal_numbers>},
    {"RandomNormalLike", alike<normal_numbers>},
    {"RandomUniform", of_shape<uniform_numbers>},
    {"RandomUniformLike", alike<uniform_numbers>},
};

}  // namespace

std::span<const TorchOperator> random_operators() {
  return kRandomOperators;
}

}  // namespace mezzo::convert
