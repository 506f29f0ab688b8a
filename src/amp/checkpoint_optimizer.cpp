#include <ATen/ops/empty.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <typeinfo>

#include "amp/checkpoint_parts.h"
#include "amp/module_types.h"
#include "amp/param_state.h"
#include "core/raise.h"
#include "mezzo/model_values.h"
#include "mezzo/optim.h"

namespace mezzo::detail {
namespace {

constexpr std::string_view kWhere = "checkpoint";

/// The name of a class in files; a fused one has that of the class whose state it reads.
std::string class_of(const torch::optim::Optimizer& optimizer) {
  using torch::optim::Adagrad;
  using torch::optim::Adam;
  using torch::optim::AdamW;
  using torch::optim::LBFGS;
  using torch::optim::RMSprop;
  using torch::optim::SGD;
  const auto is = [&]<typename T>(const T*) {
    return dynamic_cast<const T*>(&optimizer) != nullptr;
  };
  if (is(static_cast<const SGD*>(nullptr)) || is(static_cast<const optim::FusedSGD*>(nullptr)))
    return "SGD";
  if (is(static_cast<const optim::FusedAdam*>(nullptr))) return "Adam or AdamW";
  if (is(static_cast<const Adam*>(nullptr))) return "Adam";
  if (is(static_cast<const AdamW*>(nullptr))) return "AdamW";
  if (is(static_cast<const Adagrad*>(nullptr))) return "Adagrad";
  if (is(static_cast<const RMSprop*>(nullptr))) return "RMSprop";
  if (is(static_cast<const LBFGS*>(nullptr))) return "LBFGS";
  return typeid(optimizer).name();
}

/// Does an optimizer of class `to` go on where one of class `from` stopped? FusedAdam is both
/// Adams.
bool reads(const std::string& to, const std::string& from) {
  constexpr std::string_view kBoth = "Adam or AdamW";
  const auto is_adam = [&](const std::string& name) {
    return name == kBoth || name == "Adam" || name == "AdamW";
  };
  return to == from || ((to == kBoth || from == kBoth) && is_adam(to) && is_adam(from));
}

/// "2;4,8;8;": parameters of each group by their shapes.
std::string shapes_of(const torch::optim::Optimizer& optimizer) {
  std::ostringstream text;
  for (const auto& group : optimizer.param_groups()) {
    text << group.params().size() << ';';
    for (const at::Tensor& parameter : group.params()) {
      for (const std::int64_t size : parameter.sizes()) text << size << ',';
      text << ';';
    }
  }
  return text.str();
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
}

std::string archive_of(OptimizerState& optimizer) {
  // The handle's own archive: state in float whatever the level, and the counts of steps.
  torch::serialize::OutputArchive archive;
  archive << amp::Optimizer(std::shared_ptr<OptimizerState>(std::shared_ptr<void>(), &optimizer));
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void read_archive(OptimizerState& optimizer, const std::string& text) {
  torch::serialize::InputArchive archive;
  archive.load_from(text.data(), text.size());
  amp::Optimizer handle(std::shared_ptr<OptimizerState>(std::shared_ptr<void>(), &optimizer));
  archive >> handle;
}

std::string to_text(double value) {
  std::ostringstream text;
  text << std::hexfloat << value;
  return text.str();
}

const std::string& entry(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) raise(kWhere, "the entry '", key, "' is missing");
  return found->second;
}

}  // namespace

void save_optimizer(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                    SafetensorsFile& file) {
  file.metadata[prefix + "class"] = class_of(optimizer.inner());
  file.metadata[prefix + "shapes"] = shapes_of(optimizer.inner());
  file.tensors.insert(prefix + "state", bytes_of(archive_of(optimizer)));
  const OptimizerProgress progress = optimizer.progress();
  file.metadata[prefix + "had_backward"] = std::to_string(progress.had_backward);
  if (progress.found_inf.defined()) file.tensors.insert(prefix + "found_inf", progress.found_inf);
  file.metadata[prefix + "loss_id"] = std::to_string(progress.loss_id);
  file.metadata[prefix + "scale_before"] = to_text(progress.scale_before.read());
  if (optimizer.snapshot().is_taken()) {
    const auto& copies = optimizer.snapshot().copies();
    for (std::size_t i = 0; i < copies.size(); ++i) {
      file.tensors.insert(prefix + "snapshot." + std::to_string(i), copies[i]);
    }
    file.metadata[prefix + "snapshot"] = std::to_string(copies.size());
  }
  if (!gradients) return;
  if (progress.still_scaled) {
    const StillScaled& scaled = *progress.still_scaled;
    file.metadata[prefix + "scaled"] =
        std::to_string(scaled.loss_id) + " " + to_text(scaled.scale.read()) + " " +
        std::to_string(scaled.delay_overflow_check) + " " + std::to_string(scaled.until_step) +
        " " + std::to_string(scaled.block);
  }
  for (std::size_t i = 0; i < optimizer.slots().size(); ++i) {
    const Slot& slot = optimizer.slots()[i];
    const auto keep = [&](const std::string& name, const at::Tensor& grad) {
      if (grad.defined())
        file.tensors.insert(prefix + name + std::to_string(i), grad.detach().to_dense());
    };
    keep("gradient.", slot.master.grad());
    if (slot.has_master()) keep("low_gradient.", slot.weight.grad());
  }
}

void check_optimizer(OptimizerState& optimizer, const std::string& prefix,
                     const SafetensorsFile& file, const std::string& path) {
  optimizer.sync();
  const std::string own = class_of(optimizer.inner());
  if (!reads(own, entry(file, prefix + "class"))) {
    raise(kWhere, "'", path, "' holds the state of an optimizer of class ",
          entry(file, prefix + "class"), "; got ", own);
  }
  if (entry(file, prefix + "shapes") != shapes_of(optimizer.inner())) {
    raise(kWhere, "'", path, "' holds the state of an optimizer with other parameters: ",
          entry(file, prefix + "shapes"), " there, ", shapes_of(optimizer.inner()), " here");
  }
  if (!file.tensors.contains(prefix + "state"))
    raise(kWhere, "'", path, "' has no '", prefix, "state'");
}

void load_inner_state(OptimizerState& optimizer, const std::string& prefix,
                      const SafetensorsFile& file) {
  read_archive(optimizer, text_of(file.tensors[prefix + "state"]));
}

void load_progress(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                   const SafetensorsFile& file) {
  OptimizerProgress progress;
  progress.had_backward = entry(file, prefix + "had_backward") == "1";
  progress.loss_id = std::atoi(entry(file, prefix + "loss_id").c_str());
  progress.scale_before.number = std::strtod(entry(file, prefix + "scale_before").c_str(), nullptr);
  if (const at::Tensor* found = file.tensors.find(prefix + "found_inf"))
    progress.found_inf = found->clone();

  optimizer.zero_grad(true);
  const auto scaled = file.metadata.find(prefix + "scaled");
  if (gradients && scaled != file.metadata.end()) {
    std::istringstream words(scaled->second);
    std::string scale;
    StillScaled still;
    words >> still.loss_id >> scale >> still.delay_overflow_check >> still.until_step >>
        still.block;
    still.scale.number = std::strtod(scale.c_str(), nullptr);
    // Blocks of this process have numbers above 0.
    still.block = -std::abs(still.block);
    still.inverse = at::empty({}, at::kDouble).fill_(1.0 / scaling::multiplier(still.scale.number));
    progress.still_scaled = still;
  }
  for (std::size_t i = 0; gradients && i < optimizer.slots().size(); ++i) {
    Slot& slot = optimizer.slots()[i];
    const auto give = [&](const std::string& name, at::Tensor& to) {
      const at::Tensor* grad = file.tensors.find(prefix + name + std::to_string(i));
      if (grad == nullptr) return;
      // Blocks that were left scaled add up in float, also beside a low weight.
      const bool stays_wide = slot.has_master() && !is_low(*grad);
      to.mutable_grad() = grad->to(to.device(), stays_wide ? grad->scalar_type() : to.scalar_type(),
                                   false, /*copy=*/true);
    };
    give("gradient.", slot.master);
    if (slot.has_master()) give("low_gradient.", slot.weight);
  }
  optimizer.set_progress(progress);

  optimizer.snapshot().forget();
  const auto count = file.metadata.find(prefix + "snapshot");
  if (count == file.metadata.end()) return;
  const std::size_t number = std::strtoul(count->second.c_str(), nullptr, 10);
  std::vector<at::Tensor> copies;
  copies.reserve(std::min(number, file.tensors.size()));
  for (std::size_t i = 0; i < number; ++i) {
    copies.push_back(file.tensors[prefix + "snapshot." + std::to_string(i)]);
  }
  optimizer.snapshot().remember(copies);
}

OptimizerBackup::OptimizerBackup(OptimizerState& optimizer)
    : optimizer_(optimizer), archive_(archive_of(optimizer)) {}

void OptimizerBackup::give_back() {
  read_archive(optimizer_, archive_);
}

}  // namespace mezzo::detail
