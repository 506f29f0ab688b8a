#include "mezzo/checkpoint.h"

#include <torch/serialize/archive.h>

#include <sstream>

#include "amp/checkpoint_parts.h"
#include "amp/model_state.h"
#include "amp/model_values.h"
#include "amp/optimizer_state.h"
#include "amp/safetensors.h"
#include "amp/shown_gradients.h"
#include "amp/weight_average.h"
#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInCheckpoint = "checkpoint";
constexpr std::string_view kFormat = "mezzo-checkpoint";
constexpr int kVersion = 1;

/// The session that models and optimizers share; several are an error, since the scales would be
/// two sets.
Session& session_of(const ModelStates& models, const OptimizerStates& optimizers) {
  if (models.empty()) raise<ConfigError>(kInCheckpoint, "got no model");
  Session& session = models.front()->session();
  for (const auto& model : models) {
    if (&model->session() != &session)
      raise<ConfigError>(kInCheckpoint, "the models come from different calls of initialize");
  }
  for (const auto& optimizer : optimizers) {
    if (&optimizer->session() != &session) {
      raise<ConfigError>(kInCheckpoint,
                         "models and optimizers come from different calls of initialize");
    }
  }
  for (const auto& optimizer : session.optimizers()) {
    if (optimizer->scope().is_open()) {
      raise(kInCheckpoint,
            "a scale_loss scope is open, whose gradients are scaled; save and load outside of it");
    }
  }
  return session;
}

/// How the training was set up, for people and programs that read the file.
void save_options(const Session& session, SafetensorsFile& file) {
  const auto put = [&file](const char* name, const auto& value) {
    std::ostringstream text;
    text << std::boolalpha << value;
    file.metadata[std::string("option.") + name] = text.str();
  };
  const amp::Options& options = session.options();
  const amp::Properties& properties = session.plan().properties;
  if (properties.cast_model_type) put("cast_model_type", *properties.cast_model_type);
  put("patch_torch_functions", properties.patch_torch_functions);
  if (properties.keep_batchnorm_fp32) put("keep_batchnorm_fp32", *properties.keep_batchnorm_fp32);
  if (properties.master_weights) put("master_weights", *properties.master_weights);
  if (options.cast_model_outputs) put("cast_model_outputs", *options.cast_model_outputs);
  std::string kept;
  for (const std::string& pattern : options.keep_float) kept += (kept.empty() ? "" : ",") + pattern;
  if (!kept.empty()) put("keep_float", kept);
  put("num_losses", options.num_losses);
  if (options.min_loss_scale) put("min_loss_scale", *options.min_loss_scale);
  put("max_loss_scale", options.max_loss_scale);
  put("init_loss_scale", options.init_loss_scale);
  put("growth_interval", options.growth_interval);
  put("defer_unscale", options.defer_unscale);
  put("check_finite", session.plan().check_finite);
  put("protect_batchnorm", options.protect_batchnorm);
  put("protect_rng", options.protect_rng);
}

void check_file(const SafetensorsFile& file, const std::string& path) {
  const auto format = file.metadata.find("format");
  if (format == file.metadata.end() || format->second != kFormat) {
    raise(kInCheckpoint, "'", path, "' is not a checkpoint of mezzo");
  }
  const auto version = file.metadata.find("version");
  const int number = version == file.metadata.end() ? 0 : std::atoi(version->second.c_str());
  if (number > kVersion) {
    raise(kInCheckpoint, "'", path, "' has version ", number,
          " of the format; this library reads up to ", kVersion);
  }
  const auto sum = file.metadata.find("checksum");
  if (number < 1 || sum == file.metadata.end() || sum->second != checksum_of(file)) {
    raise(kInCheckpoint, "'", path, "' is damaged: its checksum does not fit its content");
  }
}

std::string name_of(std::string_view kind, std::size_t index) {
  return std::string(kind) + "." + std::to_string(index) + ".";
}

/// The tensors under a prefix, without it.
torch::OrderedDict<std::string, at::Tensor> under(const SafetensorsFile& file,
                                                  const std::string& prefix) {
  torch::OrderedDict<std::string, at::Tensor> result;
  for (const auto& item : file.tensors) {
    if (item.key().starts_with(prefix))
      result.insert(item.key().substr(prefix.size()), item.value());
  }
  return result;
}

}  // namespace

void save_training(const std::string& path, const ModelStates& models,
                   const OptimizerStates& optimizers, const amp::CheckpointOptions& options) {
  Session& session = session_of(models, optimizers);
  const HiddenGradients hidden(session);
  session.weights().absorb_all_values();
  SafetensorsFile file;
  file.metadata = {{"format", std::string(kFormat)},
                   {"version", std::to_string(kVersion)},
                   {"level", session.plan().properties.opt_level},
                   {"loss_scale", session.plan().properties.loss_scale.to_string()},
                   {"models", std::to_string(models.size())},
                   {"optimizers", std::to_string(optimizers.size())}};
  save_options(session, file);
  save_scales(session, file);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const torch::nn::Module& module = models[i]->module();
    for (const auto& item : module.named_parameters()) {
      file.tensors.insert(name_of("model", i) + item.key(), float_value(session, item.value()));
    }
    for (const auto& item : module.named_buffers()) {
      file.tensors.insert(name_of("model", i) + item.key(), float_value(session, item.value()));
    }
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    save_optimizer(*optimizers[i], name_of("optimizer", i), options.gradients, file);
  }
  for (std::size_t i = 0; i < options.averages.size(); ++i)
    options.averages[i].get().shared()->save(name_of("average", i), file);
  if (options.rng_state) save_generators(file);
  for (const auto& [name, tensor] : options.tensors) {
    if (!tensor.defined())
      raise<ConfigError>(kInCheckpoint, "the tensor '", name, "' is undefined");
    if (tensor.layout() != at::kStrided) {
      raise<ConfigError>(kInCheckpoint, "the tensor '", name, "' is ", tensor.layout(),
                         "; a checkpoint holds strided ones: convert it with to_dense()");
    }
    file.tensors.insert("user." + name, tensor);
  }
  for (const auto& [name, entry] : options.entries) file.metadata["user." + name] = entry;
  file.metadata["checksum"] = checksum_of(file);
  save_safetensors(path, file.tensors, file.metadata);
}

amp::Checkpoint load_training(const std::string& path, const ModelStates& models,
                              const OptimizerStates& optimizers,
                              const amp::CheckpointOptions& options) {
  Session& session = session_of(models, optimizers);
  const HiddenGradients hidden(session);
  const SafetensorsFile file = load_safetensors_file(path);
  check_file(file, path);
  if (file.metadata.at("models") != std::to_string(models.size()) ||
      file.metadata.at("optimizers") != std::to_string(optimizers.size())) {
    raise(kInCheckpoint, "'", path, "' holds ", file.metadata.at("models"), " models and ",
          file.metadata.at("optimizers"), " optimizers; got ", models.size(), " and ",
          optimizers.size());
  }

  // Everything that can be refused is refused before anything is written.
  std::vector<torch::OrderedDict<std::string, at::Tensor>> values;
  for (std::size_t i = 0; i < models.size(); ++i) {
    values.push_back(under(file, name_of("model", i)));
    check_values(models[i]->module(), values.back(), /*strict=*/true);
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    check_optimizer(*optimizers[i], name_of("optimizer", i), options.gradients, file, path);
  }
  for (std::size_t i = 0; i < options.averages.size(); ++i)
    options.averages[i].get().shared()->check(name_of("average", i), file, path);
  check_scales(file, path);
  if (options.rng_state) check_generators(file, path);
  session.weights().absorb();

  std::vector<std::unique_ptr<OptimizerBackup>> backups;
  for (const auto& optimizer : optimizers)
    backups.push_back(std::make_unique<OptimizerBackup>(*optimizer));
  try {
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      load_inner_state(*optimizers[i], name_of("optimizer", i), file);
    }
  } catch (const std::exception& error) {
    for (const auto& backup : backups) backup->give_back();
    raise(kInCheckpoint, "'", path, "': the optimizer's state cannot be read: ", error.what());
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    assign_values(session, models[i]->module(), values[i], /*strict=*/true);
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    load_progress(*optimizers[i], name_of("optimizer", i), options.gradients, file);
  }
  for (std::size_t i = 0; i < options.averages.size(); ++i)
    options.averages[i].get().shared()->load(name_of("average", i), file);
  load_scales(session, file);
  if (options.rng_state) load_generators(file);

  amp::Checkpoint checkpoint;
  for (const auto& item : under(file, "user.")) checkpoint.tensors[item.key()] = item.value();
  for (const auto& [name, entry] : file.metadata) {
    if (name.starts_with("user.")) checkpoint.entries[name.substr(5)] = entry;
  }
  return checkpoint;
}

}  // namespace mezzo::amp::detail
