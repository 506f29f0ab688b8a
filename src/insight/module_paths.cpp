#include "insight/module_paths.h"

#include <torch/nn/module.h>

#include "amp/model_state.h"

namespace mezzo::insight {

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (tensor.is_sparse()) return memory_of(tensor._values());
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

namespace {

std::vector<const torch::nn::Module*> modules_behind(
    const std::vector<mezzo::amp::detail::ModelState*>& models) {
  std::vector<const torch::nn::Module*> modules;
  modules.reserve(models.size());
  for (const auto* model : models) modules.push_back(&model->module());
  return modules;
}

}  // namespace

ModulePaths::ModulePaths(const std::vector<mezzo::amp::detail::ModelState*>& models)
    : ModulePaths(modules_behind(models)) {}

ModulePaths::ModulePaths(const std::vector<const torch::nn::Module*>& networks) {
  for (std::size_t i = 0; i < networks.size(); ++i) {
    const torch::nn::Module& root = *networks[i];
    const std::string suffix = networks.size() == 1 ? "" : " of network " + std::to_string(i);
    const auto parameters = root.named_parameters(), buffers = root.named_buffers();
    for (const auto* tensors : {&parameters, &buffers}) {
      for (const auto& item : *tensors) {
        const c10::StorageImpl* memory = memory_of(item.value());
        if (memory == nullptr || !places_.try_emplace(memory, all_.size()).second) continue;
        const std::size_t dot = item.key().rfind('.');
        const std::string module =
            dot == std::string::npos ? item.key() : item.key().substr(0, dot);
        all_.push_back({item.key(), module + suffix, item.value(), tensors == &buffers});
      }
    }
  }
}

const NamedTensor* ModulePaths::find(const c10::StorageImpl* memory) const {
  const auto found = places_.find(memory);
  return found == places_.end() ? nullptr : &all_[found->second];
}

}  // namespace mezzo::insight
