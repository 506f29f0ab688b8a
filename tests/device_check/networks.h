// The networks that are trained: small ones of four kinds, and GPT-2.
#pragma once

#include <torch/torch.h>

#include <array>
#include <memory>
#include <string_view>

namespace mezzo::device_check {

/// A batch: what goes into a network, and what should come out.
struct Batch {
  at::Tensor input, target;
  /// The batch elsewhere; floating tensors in this type.
  Batch to(at::Device device, at::ScalarType type) const;
};

class CheckedNetwork : public torch::nn::Module {
 public:
  virtual at::Tensor forward(at::Tensor input) = 0;
  /// The batch of a step, on the CPU, in double; the same for the same number.
  virtual Batch batch(std::uint64_t step) const = 0;
  /// A scalar. `output` may be of any floating type.
  virtual at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const = 0;
  /// The layout of weights and inputs of four dimensions.
  virtual at::MemoryFormat layout() const { return at::MemoryFormat::Contiguous; }
};

struct NetworkRow {
  std::string_view name;
  std::shared_ptr<CheckedNetwork> (*make)();
};

/// "mlp" (with batch norm), "resnet" (channels last), "gpt" (SDPA), "lstm".
extern const std::array<NetworkRow, 4> kNetworks;

/// The row of this name, with weights from a fixed seed.
std::shared_ptr<CheckedNetwork> make_network(std::string_view name);

struct GptSizes {
  std::int64_t words = 50257, width = 768, heads = 12, blocks = 12, length = 1024, batch = 16;
};

/// GPT-2 (Radford et al. 2019), whose last layer is its embedding.
std::shared_ptr<CheckedNetwork> make_gpt(const GptSizes& sizes);

}  // namespace mezzo::device_check
