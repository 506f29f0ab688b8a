#include "amp/module_types.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>
#include <unordered_set>

#include "mezzo/rnn.h"
#include "mezzo/sync_batch_norm.h"

namespace mezzo::amp::detail {
namespace {

template <typename... Kinds>
bool is_any(const torch::nn::Module& module) {
  return ((dynamic_cast<const Kinds*>(&module) != nullptr) || ...);
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

bool wants(at::ScalarType to, bool doubles_too, const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const at::ScalarType type = tensor.scalar_type();
  if (type == to) return false;
  if (type == at::kDouble) return doubles_too;
  return type == at::kFloat || is_low(type);
}

}  // namespace

std::vector<std::pair<std::string, const torch::nn::Module*>> modules_of(
    const torch::nn::Module& root) {
  std::vector<std::pair<std::string, const torch::nn::Module*>> result{{"", &root}};
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto [prefix, module] = result[i];
    for (const auto& child : module->named_children()) {
      result.emplace_back(join(prefix, child.key()), child.value().get());
    }
  }
  return result;
}

bool is_low(const at::Tensor& tensor) {
  return is_low(tensor.scalar_type());
}

bool is_batch_norm(const torch::nn::Module& module) {
  return is_any<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl,
                parallel::SyncBatchNormImpl>(module);
}

bool has_torch_attention(const torch::nn::Module& root) {
  return std::ranges::any_of(modules_of(root), [](const auto& named) {
    return is_any<torch::nn::MultiheadAttentionImpl>(*named.second);
  });
}

std::vector<at::Tensor> batch_norm_statistics(const torch::nn::Module& root) {
  std::vector<at::Tensor> statistics;
  for (const auto& [name, module] : modules_of(root)) {
    if (!is_batch_norm(*module)) continue;
    for (const at::Tensor& buffer : module->buffers(/*recurse=*/false)) {
      if (buffer.defined()) statistics.push_back(buffer);
    }
  }
  return statistics;
}

std::string first_low_name(const torch::nn::Module& root) {
  for (const auto& item : root.named_parameters()) {
    if (item.value().defined() && is_low(item.value())) return item.key();
  }
  for (const auto& item : root.named_buffers()) {
    if (item.value().defined() && is_low(item.value())) return item.key();
  }
  return {};
}

void for_each_to_convert(
    const torch::nn::Module& root, const Conversion& conversion,
    const std::function<void(const std::string&, at::Tensor&, at::ScalarType)>& visit) {
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto visit_all = [&](const std::string& prefix,
                             torch::OrderedDict<std::string, at::Tensor> tensors,
                             at::ScalarType to) {
    for (auto& item : tensors) {
      if (!item.value().defined()) continue;
      const c10::TensorImpl* tensor = item.value().unsafeGetTensorImpl();
      const at::ScalarType own = conversion.keeps_float.contains(tensor) ? at::kFloat : to;
      if (!wants(own, conversion.doubles_too, item.value())) continue;
      if (!seen.insert(tensor).second) continue;
      visit(join(prefix, item.key()), item.value(), own);
    }
  };
  for (const auto& [prefix, module] : modules_of(root)) {
    const bool keeps = conversion.keep_batch_norms && is_batch_norm(*module);
    const at::ScalarType to = keeps ? at::kFloat : conversion.to;
    visit_all(prefix, module->named_parameters(/*recurse=*/false), to);
    visit_all(prefix, module->named_buffers(/*recurse=*/false), to);
  }
}

void flatten_recurrent_weights(torch::nn::Module& root) {
  const auto flatten = [](torch::nn::Module& module) {
    if (auto* lstm = module.as<torch::nn::LSTMImpl>()) lstm->flatten_parameters();
    if (auto* gru = module.as<torch::nn::GRUImpl>()) gru->flatten_parameters();
    if (auto* rnn = module.as<torch::nn::RNNImpl>()) rnn->flatten_parameters();
    if (auto* own = dynamic_cast<rnn::detail::Recurrence*>(&module)) own->flatten_parameters();
  };
  for (const auto& module : root.modules(/*include_self=*/false)) flatten(*module);
  flatten(root);
}

}  // namespace mezzo::amp::detail
