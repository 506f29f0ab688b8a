#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <typeinfo>
#include <utility>

#include "amp/checkpoint_parts.h"
#include "amp/gradients.h"
#include "amp/module_types.h"
#include "core/raise.h"
#include "mezzo/model_values.h"
#include "mezzo/optim.h"
#include "optim/kinds.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInCheckpointOptimizer = "checkpoint";

/// Does an optimizer of class `to` go on where one of class `from` stopped? Only where
/// `options_tell` which Adam each group is, the other one does too.
bool reads(const std::string& to, const std::string& from, bool options_tell) {
  const auto is_adam = [](const std::string& name) {
    return name == optim::kEitherAdam || name == "Adam" || name == "AdamW";
  };
  return to == from || (options_tell && is_adam(to) && is_adam(from));
}

bool is_fused(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const optim::FusedOptimizer*>(&optimizer) != nullptr;
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
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())},
                               at::TensorOptions(at::kCPU).dtype(at::kByte));
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
  if (found == file.metadata.end())
    raise(kInCheckpointOptimizer, "the entry '", key, "' is missing");
  return found->second;
}

/// The class of the optimizer that wrote the file. Older files have the compiler's name for classes
/// that had none of their own.
std::string class_in(const SafetensorsFile& file, const std::string& prefix,
                     const torch::optim::Optimizer& reader) {
  const std::string& written = entry(file, prefix + "class");
  return written == typeid(reader).name() ? optim::name_of(reader) : optim::name_from_file(written);
}

/// How gradients in the file are still scaled, if they are.
std::optional<StillScaled> scaled_in(const SafetensorsFile& file, const std::string& prefix) {
  const auto found = file.metadata.find(prefix + "scaled");
  if (found == file.metadata.end()) return std::nullopt;
  std::istringstream words(found->second);
  std::string scale;
  StillScaled still;
  words >> still.loss_id >> scale >> still.delay_overflow_check >> still.until_step >> still.block;
  still.scale.number = std::strtod(scale.c_str(), nullptr);
  // Blocks of this process have numbers above 0.
  still.block = -std::abs(still.block);
  still.inverse = at::empty({}, at::TensorOptions(at::kCPU).dtype(at::kDouble))
                      .fill_(1.0 / scaling::multiplier(still.scale.number));
  return still;
}

/// A parameter's gradients: what is unscaled, and what is as the scopes left it.
struct Gradients {
  at::Tensor settled, as_left;
};

/// The gradients of a parameter in the file, whichever level saved it. A weight without master has
/// both in one tensor, so that all of it is scaled while anything is.
Gradients gradients_in(const SafetensorsFile& file, const std::string& prefix, std::size_t i,
                       bool had_master, bool still_scaled) {
  const auto find = [&](const std::string& name) {
    const at::Tensor* found = file.tensors.find(prefix + name + std::to_string(i));
    return found == nullptr ? at::Tensor() : *found;
  };
  const at::Tensor gradient = find("gradient.");
  if (had_master) return {gradient, find("low_gradient.")};
  if (still_scaled) return {{}, gradient};
  return {gradient, {}};
}

/// Both in one, for a weight without master; `scale` is that of what is as the scopes left it.
at::Tensor joined(const Gradients& gradients, double scale) {
  if (!gradients.settled.defined()) return gradients.as_left;
  if (!gradients.as_left.defined() && scale == 1) return gradients.settled;
  const at::Tensor scaled = at::mul(gradients.settled, scale);
  return gradients.as_left.defined() ? at::add(scaled, gradients.as_left) : scaled;
}

/// Does the weight beside a master have a gradient that a load must give back? In a bucket there
/// are zeros if there is none.
bool has_own_gradient(const Slot& slot, const OptimizerProgress& progress) {
  if (!slot.has_master() || !slot.weight.grad().defined()) return false;
  if (progress.still_scaled || !is_in_bucket(slot.weight)) return true;
  return first_nonzero({slot.weight.grad()}) == 0;
}

void load_gradients(OptimizerState& optimizer, const std::string& prefix,
                    const std::optional<StillScaled>& still, const SafetensorsFile& file) {
  const auto saved_masters = file.metadata.find(prefix + "masters");
  for (std::size_t i = 0; i < optimizer.slots().all().size(); ++i) {
    Slot& slot = optimizer.slots().all()[i];
    const auto give = [](const at::Tensor& grad, const at::Tensor& to, at::ScalarType type) {
      if (grad.defined()) to.mutable_grad() = grad.to(to.device(), type, false, /*copy=*/true);
    };
    const bool had_master = saved_masters != file.metadata.end() && i < saved_masters->second.size()
                                ? saved_masters->second[i] == '1'
                                : slot.has_master();
    const Gradients saved = gradients_in(file, prefix, i, had_master, still.has_value());
    if (!slot.has_master()) {
      const double scale = still ? scaling::multiplier(still->scale.number) : 1;
      give(joined(saved, scale), slot.weight, slot.weight.scalar_type());
      continue;
    }
    give(saved.settled, slot.master, slot.master.scalar_type());
    if (!saved.as_left.defined()) continue;
    // Blocks that were left scaled add up in float, also beside a low weight.
    const at::ScalarType type = saved.as_left.scalar_type();
    give(saved.as_left, slot.weight, is_low(saved.as_left) ? slot.weight.scalar_type() : type);
  }
}

}  // namespace

void save_optimizer(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                    SafetensorsFile& file) {
  file.metadata[prefix + "class"] = optim::name_of(optimizer.inner());
  if (is_fused(optimizer.inner())) file.metadata[prefix + "fused"] = "1";
  file.metadata[prefix + "shapes"] = shapes_of(optimizer.inner());
  file.tensors.insert(prefix + "state", bytes_of(archive_of(optimizer)));
  const OptimizerProgress progress = optimizer.scope().progress();
  file.metadata[prefix + "had_backward"] = std::to_string(progress.had_backward);
  if (gradients && progress.found_inf.defined())
    file.tensors.insert(prefix + "found_inf", progress.found_inf);
  file.metadata[prefix + "loss_id"] = std::to_string(progress.loss_id);
  file.metadata[prefix + "scale_before"] = to_text(progress.scale_before.read());
  if (optimizer.snapshot().is_taken()) {
    const auto& copies = optimizer.snapshot().copies();
    for (std::size_t i = 0; i < copies.size(); ++i) {
      file.tensors.insert(prefix + "snapshot." + std::to_string(i), copies[i]);
    }
    file.metadata[prefix + "snapshot"] = std::to_string(copies.size());
    const auto& generators = optimizer.snapshot().generator_states();
    for (std::size_t i = 0; i < generators.size(); ++i) {
      file.tensors.insert(prefix + "snapshot_generator." + std::to_string(i), generators[i]);
    }
  }
  if (!gradients) return;
  if (progress.still_scaled) {
    const StillScaled& scaled = *progress.still_scaled;
    file.metadata[prefix + "scaled"] =
        std::to_string(scaled.loss_id) + " " + to_text(scaled.scale.read()) + " " +
        std::to_string(scaled.delay_overflow_check) + " " + std::to_string(scaled.until_step) +
        " " + std::to_string(scaled.block);
  }
  std::string masters;
  for (std::size_t i = 0; i < optimizer.slots().all().size(); ++i) {
    const Slot& slot = optimizer.slots().all()[i];
    const auto keep = [&](const std::string& name, const at::Tensor& grad) {
      if (grad.defined())
        file.tensors.insert(prefix + name + std::to_string(i), grad.detach().to_dense());
    };
    keep("gradient.", slot.master.grad());
    if (has_own_gradient(slot, progress)) keep("low_gradient.", slot.weight.grad());
    masters += slot.has_master() ? '1' : '0';
  }
  file.metadata[prefix + "masters"] = masters;
}

void check_optimizer(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                     const SafetensorsFile& file, const std::string& path) {
  optimizer.slots().sync();
  const std::string own = optim::name_of(optimizer.inner());
  const std::string from = class_in(file, prefix, optimizer.inner());
  const bool was_fused = file.metadata.contains(prefix + "fused");
  // Files from before that entry say "Adam or AdamW" of every FusedAdam.
  const bool is_old = from == optim::kEitherAdam && !was_fused;
  if (!reads(own, from, (is_fused(optimizer.inner()) && was_fused) || is_old)) {
    raise(kInCheckpointOptimizer, "'", path, "' holds the state of an optimizer of class ", from,
          "; got ", own);
  }
  if (entry(file, prefix + "shapes") != shapes_of(optimizer.inner())) {
    raise(kInCheckpointOptimizer, "'", path,
          "' holds the state of an optimizer with other parameters: ",
          entry(file, prefix + "shapes"), " there, ", shapes_of(optimizer.inner()), " here");
  }
  if (!file.tensors.contains(prefix + "state"))
    raise(kInCheckpointOptimizer, "'", path, "' has no '", prefix, "state'");
  const int losses = static_cast<int>(optimizer.session().num_losses());
  const auto scaled = gradients ? scaled_in(file, prefix) : std::nullopt;
  if (scaled && scaled->loss_id >= losses) {
    raise(kInCheckpointOptimizer, "'", path, "' holds gradients that are scaled for the loss ",
          scaled->loss_id, "; num_losses is ", losses, " here");
  }
}

void load_inner_state(OptimizerState& optimizer, const std::string& prefix,
                      const SafetensorsFile& file) {
  read_archive(optimizer, text_of(file.tensors[prefix + "state"]));
}

void load_progress(OptimizerState& optimizer, const std::string& prefix, bool gradients,
                   const SafetensorsFile& file) {
  OptimizerProgress progress;
  progress.had_backward = entry(file, prefix + "had_backward") == "1";
  const int last_loss = static_cast<int>(optimizer.session().num_losses()) - 1;
  progress.loss_id = std::clamp(std::atoi(entry(file, prefix + "loss_id").c_str()), 0, last_loss);
  progress.scale_before.number = std::strtod(entry(file, prefix + "scale_before").c_str(), nullptr);

  optimizer.zero_grad(true);
  if (gradients) {
    // These are the gradients that overflowed.
    if (const at::Tensor* found = file.tensors.find(prefix + "found_inf"))
      progress.found_inf = found->clone();
    progress.still_scaled = scaled_in(file, prefix);
    load_gradients(optimizer, prefix, progress.still_scaled, file);
  }
  optimizer.scope().set_progress(progress);

  optimizer.snapshot().forget();
  const auto count = file.metadata.find(prefix + "snapshot");
  if (count == file.metadata.end()) return;
  const std::size_t number = std::strtoul(count->second.c_str(), nullptr, 10);
  std::vector<at::Tensor> copies;
  copies.reserve(std::min(number, file.tensors.size()));
  for (std::size_t i = 0; i < number; ++i) {
    copies.push_back(file.tensors[prefix + "snapshot." + std::to_string(i)]);
  }
  std::vector<at::Tensor> generators;
  while (const at::Tensor* state = file.tensors.find(prefix + "snapshot_generator." +
                                                     std::to_string(generators.size()))) {
    generators.push_back(*state);
  }
  optimizer.snapshot().remember(copies, std::move(generators));
}

OptimizerBackup::OptimizerBackup(OptimizerState& optimizer)
    : optimizer_(optimizer), archive_(archive_of(optimizer)) {}

void OptimizerBackup::give_back() {
  read_archive(optimizer_, archive_);
}

}  // namespace mezzo::amp::detail
