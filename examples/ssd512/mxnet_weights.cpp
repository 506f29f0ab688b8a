#include "ssd512/mxnet_weights.h"

#include <mezzo/error.h>
#include <torch/types.h>

#include <cstring>
#include <map>
#include <regex>
#include <vector>

namespace examples {

namespace mx = mezzo::convert::mxnet;

namespace {

at::ScalarType scalar_type_of(const std::string& dtype, const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes{
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"uint8", at::kByte},     {"int8", at::kChar},
      {"int16", at::kShort},       {"int32", at::kInt},      {"int64", at::kLong},
      {"bool", at::kBool}};
  const auto found = kTypes.find(dtype);
  if (found == kTypes.end())
    throw mezzo::UnsupportedError("array '" + name + "' is " + dtype +
                                  ", which LibTorch does not compute with");
  return found->second;
}

std::map<std::string, at::Tensor> tensors_by_common_name(torch::nn::Module& net) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : net.named_parameters()) tensors[common_name(item.key())] = item.value();
  for (const auto& item : net.named_buffers()) tensors[common_name(item.key())] = item.value();
  return tensors;
}

std::string text_of(at::IntArrayRef shape) {
  std::string text = "(";
  for (const std::int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

}  // namespace

at::Tensor tensor_of(const mx::NDArrays& arrays, const std::string& name) {
  const at::ScalarType type = scalar_type_of(arrays.dtype(name), name);
  at::Tensor tensor = torch::empty(arrays.shape(name), type);
  const std::string_view bytes = arrays.bytes(name);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string common_name(const std::string& name) {
  static const std::regex kBackbone("^.*resnetv1\\d+_"), kExpansion("^.*expand_"),
      kOurs("^features[._](?=conv|batchnorm|stage)"), kPredictor("^.*convpredictor(\\d+)_conv0_"),
      kAnchors("^.*anchor_?(generator)?.*$");
  std::string common = std::regex_replace(name, std::regex("^(arg|aux):"), "");
  std::smatch match;
  if (std::regex_search(common, match, kPredictor)) {
    // Numbered through: for each map the classes first, then the boxes.
    const int number = std::stoi(match[1]);
    common = (number % 2 == 0 ? "class" : "box") + std::string("_predictors_") +
             std::to_string(number / 2) + '_' + match.suffix().str();
  }
  if (std::regex_match(common, kAnchors)) return "anchors";
  common = std::regex_replace(common, kBackbone, "");
  common = std::regex_replace(common, kOurs, "");
  common = std::regex_replace(common, kExpansion, "expand_");
  common = std::regex_replace(common, std::regex("\\.predictor\\."), ".");
  common = std::regex_replace(common, std::regex("^dense0_"), "output_");  // ResNet's last layer
  common = std::regex_replace(common, std::regex("moving_"), "running_");
  return std::regex_replace(common, std::regex("\\."), "_");
}

void load_mxnet_weights(torch::nn::Module& net, const std::filesystem::path& file) {
  const mx::NDArrays arrays = mx::NDArrays::load(file);
  const std::map<std::string, at::Tensor> wanted = tensors_by_common_name(net);
  std::map<std::string, std::string> given;  // by common name: the name in the file
  for (const std::string& name : arrays.names()) {
    const std::string common = common_name(name);
    if (common == "anchors") continue;
    if (!wanted.contains(common)) {
      throw mezzo::Error("'" + file.string() + "': the network has no parameter like '" + name +
                         "'");
    }
    given[common] = name;
  }
  for (const auto& [common, tensor] : wanted) {
    const auto found = given.find(common);
    if (found == given.end()) {
      throw mezzo::Error("'" + file.string() + "' has no parameter like '" + common +
                         "'; it holds " + std::to_string(given.size()) + ", the network has " +
                         std::to_string(wanted.size()));
    }
    if (tensor.sizes() != at::IntArrayRef(arrays.shape(found->second))) {
      throw mezzo::Error("'" + file.string() + "': '" + found->second + "' has the shape " +
                         text_of(arrays.shape(found->second)) + ", expected " +
                         text_of(tensor.sizes()));
    }
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [common, tensor] : wanted) {
    if (common.ends_with("gamma") && !tensor.requires_grad()) continue;
    at::Tensor(tensor).copy_(tensor_of(arrays, given.at(common)));
  }
}

}  // namespace examples
