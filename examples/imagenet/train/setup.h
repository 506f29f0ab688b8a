// A network as the settings want it.
#pragma once

#include <memory>

#include "imagenet/models/network.h"
#include "imagenet/train/settings.h"

namespace examples::imagenet {

/// LibTorch computes the same bits in every run (and warns of an operator that cannot), or chooses
/// the fastest convolutions.
void set_deterministic(bool on);

/// The device of this process: "cuda" is the GPU of its local rank.
at::Device device_for(const Settings& settings);

/// Fresh weights from the seed or those of a file, on the device, in the layout that was asked for.
std::shared_ptr<Network> network_for(const Settings& settings, std::int64_t kinds,
                                     at::Device device);

/// Parameters and buffers by their names.
torch::OrderedDict<std::string, at::Tensor> values_of(const Network& network);

/// Gives a network the weights of a safetensors file with torchvision's names, or of a checkpoint
/// of this program. A last layer for another number of classes stays as it is. Throws mezzo::Error,
/// and changes nothing, for a file of another network.
void load_weights(Network& network, const std::string& file);

}  // namespace examples::imagenet
