#include "imagenet/train/setup.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <mezzo/error.h>
#include <mezzo/parallel.h>
#include <mezzo/safetensors.h>
#include <torch/types.h>

#include <cstdlib>

#include "support/recorder.h"

namespace examples::imagenet {

void set_deterministic(bool on) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(on, /*warn_only=*/true);
  context.setDeterministicCuDNN(on);
  context.setBenchmarkCuDNN(!on);
  // cuBLAS is deterministic with this; it reads it when it starts.
  if (on) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

at::Device device_for(const Settings& s) {
  const char* local = std::getenv("LOCAL_RANK");
  const at::Device device = device_of(
      s.device == "cuda" ? "cuda:" + std::string(local == nullptr ? "0" : local) : s.device);
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

std::shared_ptr<Network> network_for(const Settings& s, std::int64_t kinds, at::Device device) {
  torch::manual_seed(static_cast<std::uint64_t>(s.seed));
  std::shared_ptr<Network> network = make_network(s.arch, kinds);
  network->set_recompute(s.recompute);
  if (!s.pretrained.empty()) load_weights(*network, s.pretrained);
  network->to(device);
  if (s.channels_last) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& weight : network->parameters()) {
      if (weight.dim() == 4) weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  if (s.sync_bn) network = mezzo::parallel::convert_syncbn_model(network);
  return network;
}

torch::OrderedDict<std::string, at::Tensor> values_of(const Network& network) {
  auto values = network.named_parameters();
  for (const auto& buffer : network.named_buffers()) values.insert(buffer.key(), buffer.value());
  return values;
}

void load_weights(Network& network, const std::string& file) {
  const auto values = mezzo::load_safetensors(file);
  std::vector<std::pair<at::Tensor, at::Tensor>> matches;
  for (const auto& item : values_of(network)) {
    const std::string& name = item.key();
    const at::Tensor* value = values.find(name);
    if (value == nullptr) value = values.find("model.0." + name);  // of a checkpoint
    const bool is_counter = name.ends_with("num_batches_tracked");
    const bool is_last = name.starts_with("fc.") || name.starts_with("classifier.");
    if (value == nullptr && is_counter) continue;
    if (value == nullptr)
      throw mezzo::Error("'" + file + "' has no '" + name + "' of this network");
    if (value->sizes() == item.value().sizes()) {
      matches.emplace_back(item.value(), *value);
    } else if (!is_last) {
      throw mezzo::Error("'" + name + "' has another shape in '" + file + "'");
    }
  }
  const torch::NoGradGuard no_grad;
  for (auto& [mine, theirs] : matches) mine.copy_(theirs);
}

}  // namespace examples::imagenet
