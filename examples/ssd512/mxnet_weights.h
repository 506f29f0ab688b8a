// Weights that MXNet saved, in a network of LibTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <mezzo/convert_mxnet.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <string>

namespace examples {

/// An array of MXNet's as a tensor of its own. Throws mezzo::ConfigError where there is none of
/// that name, mezzo::UnsupportedError for unsigned types above 8 bits.
at::Tensor tensor_of(const mezzo::convert::mxnet::NDArrays& arrays, const std::string& name);

/// Copies weights and statistics from a file that `save_parameters`, `collect_params().save` or
/// `export` of MXNet wrote, by MXNet's names. Throws mezzo::Error, before anything is copied, that
/// names what the file lacks, what has another shape, and what is not the network's. Anchors are
/// computed here and not read; gammas that are fixed stay 1, as in MXNet.
void load_mxnet_weights(torch::nn::Module& net, const std::filesystem::path& file);

/// A parameter's name without the parts that differ between MXNet's ways of saving:
/// "arg:ssd0_resnetv10_stage1_conv0_weight", "features.resnetv10_stage1_conv0_weight" and our
/// "features.stage1.conv0.weight" are "stage1_conv0_weight".
std::string common_name(const std::string& name);

}  // namespace examples
