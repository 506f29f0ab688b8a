#include "mezzo/reparameterization.h"

#include <torch/nn/modules/embedding.h>

#include <utility>

#include "core/torch.h"
#include "reparameterization/computed_weight.h"

namespace mezzo {
namespace {

using reparameterization::ComputedWeight;

constexpr const char* kApply = "apply_reparameterization";

/// A parameter of a tree: its module, and its name there.
struct Place {
  torch::nn::Module* owner;
  std::string name;
};

Place place_of(torch::nn::Module& module, const std::string& path) {
  Place place{&module, path};
  for (std::size_t dot = place.name.find('.'); dot != std::string::npos;
       dot = place.name.find('.')) {
    const auto children = place.owner->named_children();
    const auto* child = children.find(place.name.substr(0, dot));
    if (child == nullptr) return {nullptr, path};
    place = {child->get(), place.name.substr(dot + 1)};
  }
  if (!place.owner->named_parameters(/*recurse=*/false).contains(place.name))
    return {nullptr, path};
  return place;
}

bool is_embedding(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::EmbeddingImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module) != nullptr;
}

void apply_one(torch::nn::Module& module, detail::MakeRule make, const std::string& path,
               std::int64_t dim, bool hook_child) {
  const Place place = place_of(module, path);
  if (place.owner == nullptr) {
    std::string names;
    for (const std::string& name : module.named_parameters().keys())
      names += (names.empty() ? "" : ", ") + name;
    raise<ConfigError>(kApply, "the module has no parameter '", path, "'; it has ",
                       names.empty() ? "none" : names);
  }
  const at::Tensor weight = place.owner->named_parameters(false)[place.name];
  if (weight.dim() < 2 || is_embedding(*place.owner)) return;
  if (dim < -weight.dim() || dim >= weight.dim()) {
    raise<ConfigError>(kApply, "'", path, "' has ", weight.dim(), " dimensions, got dim ", dim);
  }
  torch::nn::Module& keeper = hook_child ? *place.owner : module;
  const auto computed = std::make_shared<ComputedWeight>(
      *place.owner, place.name, hook_child ? place.name : path, dim, make());
  keeper.register_module(computed->key(), computed);
}

/// The weights that a module itself remembers.
std::vector<std::shared_ptr<ComputedWeight>> remembered_by(const torch::nn::Module& module) {
  std::vector<std::shared_ptr<ComputedWeight>> all;
  for (const auto& child : module.children()) {
    if (auto weight = std::dynamic_pointer_cast<ComputedWeight>(child)) all.push_back(weight);
  }
  return all;
}

int remove_from(torch::nn::Module& module, detail::IsKind is_kind, const std::string& name) {
  int removed = 0;
  for (const auto& weight : remembered_by(module)) {
    if (!is_kind(weight->rule()) || (!name.empty() && weight->path() != name)) continue;
    weight->restore();
    module.unregister_module(weight->key());
    ++removed;
  }
  return removed;
}

}  // namespace

namespace detail {

void apply_rule(torch::nn::Module& module, MakeRule make, const std::string& name, std::int64_t dim,
                bool hook_child) {
  if (!name.empty()) return apply_one(module, make, name, dim, hook_child);
  // Tensors that an earlier call made are no weights of their own.
  std::vector<at::Tensor> made;
  for (const auto& weight : reparameterization::computed_weights(module)) {
    for (const at::Tensor& tensor : weight->made()) made.push_back(tensor);
  }
  for (const auto& item : module.named_parameters()) {
    bool is_made = false;
    for (const at::Tensor& tensor : made) is_made = is_made || tensor.is_same(item.value());
    if (!is_made) apply_one(module, make, item.key(), dim, hook_child);
  }
}

void remove_rules(torch::nn::Module& module, IsKind is_kind, const std::string& name,
                  bool remove_all) {
  const int removed = remove_from(module, is_kind, name);
  if (!name.empty() && removed == 0) {
    raise<ConfigError>("remove_reparameterization", "the module remembers no computed weight '",
                       name,
                       "' of this kind; a weight that was applied with hook_child is "
                       "remembered by its own module");
  }
  if (!name.empty() || remove_all) return;
  for (const auto& each : module.modules(/*include_self=*/false)) remove_from(*each, is_kind, "");
}

}  // namespace detail

void apply_weight_norm(torch::nn::Module& module, const std::string& name, std::int64_t dim,
                       bool hook_child) {
  apply_reparameterization<WeightNorm>(module, name, dim, hook_child);
}

void remove_weight_norm(torch::nn::Module& module, const std::string& name) {
  remove_reparameterization<WeightNorm>(module, name);
}

void recompute_weights(const torch::nn::Module& module) {
  if (!ComputedWeight::any()) return;
  for (const auto& weight : reparameterization::computed_weights(module)) weight->compute();
}

}  // namespace mezzo
