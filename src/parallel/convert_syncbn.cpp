#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mezzo/sync_batch_norm.h"
#include "parallel/marked_batch_norms.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInConvertSyncbn = "convert_syncbn_model";

// The common part of LibTorch's batch norms of all dimensions.
struct View {
  const torch::nn::BatchNormOptions* options;
  detail::BatchNormTensors tensors;
};

template <class Kind>
bool look(const torch::nn::Module& module, std::optional<View>& view) {
  const auto* norm = dynamic_cast<const Kind*>(&module);
  if (norm == nullptr) return false;
  view = View{
      &norm->options,
      {norm->weight, norm->bias, norm->running_mean, norm->running_var, norm->num_batches_tracked}};
  return true;
}

std::optional<View> view_of(const torch::nn::Module& module) {
  std::optional<View> view;
  (void)(look<torch::nn::BatchNorm1dImpl>(module, view) ||
         look<torch::nn::BatchNorm2dImpl>(module, view) ||
         look<torch::nn::BatchNorm3dImpl>(module, view));
  return view;
}

class Conversion {
 public:
  explicit Conversion(BatchNormMark mark) : mark_(std::move(mark)) {}

  // Everything that may fail comes first: nothing is half converted.
  void check(const torch::nn::Module& module, const std::string& name) {
    if (!seen_.insert(&module).second) return;
    if (const auto view = view_of(module)) {
      if (!known_by(*view).defined()) {
        raise<ConfigError>(kInConvertSyncbn, "the batch norm '", name.empty() ? "(root)" : name,
                           "' has neither running statistics nor a weight to be known by; give it "
                           "one of them, put it into a torch::nn::Sequential, or make it a "
                           "mezzo::parallel::SyncBatchNorm");
      }
      return;
    }
    const bool replaces = is_container(module);
    for (const auto& child : module.named_children()) {
      if (replaces && view_of(*child.value())) continue;
      check(*child.value(), name.empty() ? child.key() : name + "." + child.key());
    }
  }

  void convert(torch::nn::Module& module) {
    if (!seen_.erase(&module)) return;
    if (const auto view = view_of(module)) return mark_batch_norm(known_by(*view), mark_);
    if (auto* sequential = module.as<torch::nn::SequentialImpl>()) {
      const auto names = sequential->named_children();
      std::size_t index = 0;
      for (torch::nn::AnyModule& item : *sequential) {
        if (auto norm = replacement(item.ptr())) {
          item = torch::nn::AnyModule(norm);
          module.replace_module(names[index].key(), norm);
        }
        ++index;
      }
    } else if (auto* list = module.as<torch::nn::ModuleListImpl>()) {
      std::size_t index = 0;
      for (std::shared_ptr<torch::nn::Module>& item : *list) {
        if (auto norm = replacement(item)) {
          item = norm;
          module.replace_module(std::to_string(index), norm);
        }
        ++index;
      }
    } else if (auto* dictionary = module.as<torch::nn::ModuleDictImpl>()) {
      for (auto& item : *dictionary) {
        if (auto norm = replacement(item.value())) {
          item.value() = norm;
          module.replace_module(item.key(), norm);
        }
      }
    }
    for (const auto& child : module.children()) convert(*child);
  }

 private:
  static at::Tensor known_by(const View& view) {
    const auto& t = view.tensors;
    return t.running_mean.defined() ? t.running_mean : t.weight;
  }

  static bool is_container(const torch::nn::Module& module) {
    return module.as<torch::nn::SequentialImpl>() != nullptr ||
           module.as<torch::nn::ModuleListImpl>() != nullptr ||
           module.as<torch::nn::ModuleDictImpl>() != nullptr;
  }

  std::shared_ptr<SyncBatchNormImpl> replacement(const std::shared_ptr<torch::nn::Module>& module) {
    if (!view_of(*module)) return nullptr;
    auto& norm = replaced_[module];
    if (norm == nullptr) norm = detail::synchronised(*module, mark_.group, mark_.channel_last);
    return norm;
  }

  const BatchNormMark mark_;
  std::unordered_set<const torch::nn::Module*> seen_;
  // A module that stands in two places is replaced by one. It is kept, so that no address is used
  // again.
  std::unordered_map<std::shared_ptr<torch::nn::Module>, std::shared_ptr<SyncBatchNormImpl>>
      replaced_;
};

}  // namespace

namespace detail {

std::shared_ptr<SyncBatchNormImpl> synchronised(const torch::nn::Module& module,
                                                const std::optional<ProcessGroup>& group,
                                                bool channel_last) {
  const auto view = view_of(module);
  if (!view) return nullptr;
  SyncBatchNormOptions options;
  options.num_features = view->options->num_features();
  options.eps = view->options->eps();
  options.momentum = view->options->momentum();
  options.affine = view->options->affine();
  options.track_running_stats = view->options->track_running_stats();
  options.process_group = group;
  options.channel_last = channel_last;
  auto norm = std::make_shared<SyncBatchNormImpl>(options, view->tensors);
  norm->train(module.is_training());
  return norm;
}

void convert_batch_norms(torch::nn::Module& root, const std::optional<ProcessGroup>& group,
                         bool channel_last) {
  if (group && !group->is_member()) {
    raise<ConfigError>(kInConvertSyncbn,
                       "this process is no member of the process group that was given");
  }
  Conversion conversion({group, channel_last});
  conversion.check(root, "");
  conversion.convert(root);
}

}  // namespace detail

std::optional<ProcessGroup> create_syncbn_process_group(int group_size) {
  constexpr const char* kCreate = "create_syncbn_process_group";
  if (group_size == 0) return std::nullopt;
  const int size = world_size();
  if (group_size < 0 || size % group_size != 0) {
    raise<ConfigError>(kCreate, "group_size is ", group_size, " for ", size,
                       " ranks; expected 0 (all), or a divisor of the number of ranks");
  }
  std::optional<ProcessGroup> own;
  for (int first = 0; first < size; first += group_size) {
    std::vector<int> ranks;
    for (int member = first; member < first + group_size; ++member) ranks.push_back(member);
    ProcessGroup group = new_group(ranks);
    if (group.is_member()) own = std::move(group);
  }
  return own;
}

}  // namespace mezzo::parallel
