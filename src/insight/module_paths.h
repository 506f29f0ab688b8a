// Which module a tensor belongs to: networks in C++ have no hooks, but their parameters have names.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/torch.h"

namespace torch::nn {
class Module;
}
namespace mezzo::amp::detail {
class ModelState;
}

namespace mezzo::insight {

/// A parameter or buffer of a network.
struct NamedTensor {
  std::string name;    // "layer3.conv2.weight"
  std::string module;  // "layer3.conv2"; its name where it belongs to the root
  at::Tensor tensor;
  bool is_buffer = false;
};

/// The parameters and buffers of networks by their memory, so that views of them are found too.
class ModulePaths {
 public:
  explicit ModulePaths(const std::vector<mezzo::amp::detail::ModelState*>& models);
  explicit ModulePaths(const std::vector<const torch::nn::Module*>& networks);

  /// Null for memory that no network owns.
  const NamedTensor* find(const c10::StorageImpl* memory) const;

  const std::vector<NamedTensor>& all() const noexcept { return all_; }

 private:
  std::vector<NamedTensor> all_;
  std::unordered_map<const c10::StorageImpl*, std::size_t> places_;
};

/// The memory behind a tensor: of a sparse one its values'. Null if it has none.
const c10::StorageImpl* memory_of(const at::Tensor& tensor);

}  // namespace mezzo::insight
