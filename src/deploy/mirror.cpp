#include "deploy/mirror.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/equal.h>
#include <c10/util/Type.h>

#include <map>
#include <memory>
#include <unordered_map>

#include "core/scalar_type.h"

namespace mezzo::deploy {
namespace {

/// "Conv2d" of "torch::nn::Conv2dImpl": only letters that TorchScript's names may have.
std::string class_name_of(const torch::nn::Module& module) {
  std::string name = module.name();
  const std::size_t colon = name.rfind("::");
  if (colon != std::string::npos) name = name.substr(colon + 2);
  std::string clean;
  for (const char letter : name) {
    const bool fits = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                      (letter >= '0' && letter <= '9' && !clean.empty()) || letter == '_';
    if (fits) clean += letter;
  }
  const std::size_t tail = clean.rfind("Impl");
  if (tail != std::string::npos && tail > 0 && tail + 4 == clean.size()) clean.resize(tail);
  return clean.empty() ? "Module" : clean;
}

class Mirror {
 public:
  explicit Mirror(bool training) : training_(training) {}

  torch::jit::Module of(const torch::nn::Module& module) {
    const auto known = made_.find(&module);
    if (known != made_.end()) return known->second;
    torch::jit::Module result(c10::QualifiedName("__torch__." + class_name_of(module)), unit_,
                              true);
    result.register_attribute("training", c10::BoolType::get(), training_);
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (item.value().defined()) result.register_parameter(item.key(), item.value(), false);
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      if (item.value().defined()) result.register_buffer(item.key(), item.value());
    }
    for (const auto& item : module.named_children()) {
      if (item.value()) result.register_module(item.key(), of(*item.value()));
    }
    made_.emplace(&module, result);
    return result;
  }

 private:
  bool training_;
  std::shared_ptr<torch::jit::CompilationUnit> unit_ =
      std::make_shared<torch::jit::CompilationUnit>();
  std::unordered_map<const torch::nn::Module*, torch::jit::Module> made_;
};

/// Lets a tensor be another one and keeps its autograd state: set_data would drop the hooks that
/// hang at its accumulator.
void become(const at::Tensor& tensor, const at::Tensor& other) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(other.getIntrusivePtr());
}

}  // namespace

torch::jit::Module mirror_of(const torch::nn::Module& net, bool training) {
  return Mirror(training).of(net);
}

void replace_tensor(torch::jit::Module& module, const std::string& path, const at::Tensor& tensor) {
  torch::jit::Module owner = module;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    owner = owner.attr(path.substr(begin, dot - begin)).toModule();
    begin = dot + 1;
  }
  owner.setattr(path.substr(begin), tensor);
}

Prepared::Prepared(const detail::NetworkCall& call, bool training) {
  torch::nn::Module& net = *call.module;
  const std::map<std::string, at::Tensor> by_name(call.masters.begin(), call.masters.end());
  std::vector<std::pair<std::string, at::Tensor>> low;
  const auto note = [&](const auto& items) {
    for (const auto& item : items) {
      const at::Tensor& tensor = item.value();
      if (!tensor.defined() || !tensor.is_floating_point()) continue;
      const auto master = by_name.find(item.key());
      if (master != by_name.end() && !master->second.is_same(tensor)) {
        low.emplace_back(item.key(), master->second.detach());
      } else if (call.is_initialized && is_low(tensor.scalar_type())) {
        low.emplace_back(item.key(), tensor.detach().to(at::kFloat));
      }
    }
  };
  note(net.named_parameters());
  note(net.named_buffers());
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : net.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : net.named_buffers()) {
    tensors[item.key()] = item.value();
    if (item.value().defined()) buffers_.push_back({item.value(), item.value().detach().clone()});
  }
  for (const auto& module : net.modules()) modes_.emplace_back(module.get(), module->is_training());
  for (const auto& [name, value] : low) {
    const at::Tensor& tensor = tensors[name];
    low_.push_back({tensor, tensor.detach()});
    become(tensor, value);
    floats_.emplace_back(name, value);
  }
  net.train(training);
}

Prepared::~Prepared() {
  for (const Kept& kept : low_) become(kept.tensor, kept.before);
  const at::NoGradGuard no_grad;
  for (const Kept& kept : buffers_) {
    if (!at::equal(kept.tensor, kept.before)) kept.tensor.copy_(kept.before);
  }
  for (const auto& [module, training] : modes_) {
    if (module->is_training() != training) module->train(training);
  }
}

}  // namespace mezzo::deploy
