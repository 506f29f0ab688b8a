// mezzo export: a TorchScript file becomes an ONNX file.
#include "mezzo/deploy.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/jit/serialization/import.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/torch/part.h"
#include "core/raise.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

/// "1x3x224x224:float32", "scalar", "2x16:int64": random floats, ones of other types.
at::Tensor example_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string shape = text.substr(0, colon);
  at::ScalarType type = at::kFloat;
  if (colon != std::string::npos) {
    const std::string name = text.substr(colon + 1);
    static const std::map<std::string, at::ScalarType> types = {
        {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
        {"bfloat16", at::kBFloat16}, {"int64", at::kLong},     {"int32", at::kInt},
        {"int16", at::kShort},       {"int8", at::kChar},      {"uint8", at::kByte},
        {"bool", at::kBool}};
    const auto found = types.find(name);
    if (found == types.end()) {
      raise<ConfigError>("export", "--input ", text, ": '", name,
                         "' is no type of elements; such as float32, int64, bool");
    }
    type = found->second;
  }
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; shape != "scalar" && begin <= shape.size();) {
    const std::size_t end = std::min(shape.find('x', begin), shape.size());
    const std::string size = shape.substr(begin, end - begin);
    if (size.empty() || size.size() > 12 ||
        size.find_first_not_of("0123456789") != std::string::npos)
      raise<ConfigError>("export", "--input ", text,
                         ": expected sizes such as 1x3x224x224, or scalar, got '", shape, "'");
    sizes.push_back(std::stoll(size));
    begin = end + 1;
  }
  if (at::isFloatingType(type)) return at::randn(sizes).to(type);
  return at::ones(sizes, at::TensorOptions(type));
}

}  // namespace

Json torch_export(const Json& request) {
  const auto model = request.at("model").get<std::string>();
  std::optional<torch::jit::Module> module;
  try {
    module = torch::jit::load(model, at::kCPU);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    raise("export", "'", model,
          "' is no TorchScript file that can be read: ", text.substr(0, text.find('\n')));
  }
  std::vector<at::Tensor> inputs;
  for (const Json& input : request.at("inputs"))
    inputs.push_back(example_of(input.get<std::string>()));
  deploy::OnnxOptions options;
  options.opset = request.at("opset").get<int>();
  options.verify = request.at("verify").get<bool>();
  options.tolerance = request.at("tolerance").get<double>();
  options.onnxruntime = request.at("onnxruntime").get<std::string>();
  options.evaluator = request.at("evaluator").get<std::string>();
  for (const Json& axis : request.at("dynamic"))
    options.dynamic_axes[axis.at(0).get<std::string>()][axis.at(1).get<std::int64_t>()] =
        axis.at(2).get<std::string>();
  const deploy::ExportReport report =
      deploy::export_onnx(*module, inputs, request.at("output").get<std::string>(), options);
  return {{"text", report.to_text()}, {"json", Json::parse(report.to_json())}};
}

}  // namespace mezzo::cli
