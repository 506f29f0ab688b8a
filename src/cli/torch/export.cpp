// mezzo export: a TorchScript file becomes an ONNX file.
#include "mezzo/deploy.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/torch/input_request.h"
#include "cli/torch/part.h"
#include "deploy/files/script_file.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Random floats, the same in every run; ones of other types.
at::Tensor example_of(const InputRequest& input, const at::Generator& generator) {
  if (at::isFloatingType(input.type)) return at::randn(input.sizes, generator).to(input.type);
  return at::ones(input.sizes, at::TensorOptions(input.type));
}

}  // namespace

Json torch_export(const Json& request) {
  constexpr const char* kWhere = "export";
  const auto model = request.at("model").get<std::string>();
  deploy::refuse_same_file(model, request.at("target").get<std::string>(), kWhere);
  const torch::jit::Module module = deploy::load_script(model, kWhere);
  std::vector<at::Tensor> inputs;
  const at::Generator generator = at::detail::createCPUGenerator(0);
  const auto asked = input_requests_of(kWhere, request.at("inputs"));
  for (const InputRequest& input : in_order(kWhere, asked, module))
    inputs.push_back(example_of(input, generator));
  deploy::OnnxOptions options;
  options.opset = request.at("opset").get<int>();
  options.verify = request.at("verify").get<bool>();
  options.tolerance = request.at("tolerance").get<double>();
  options.onnxruntime = request.at("onnxruntime").get<std::string>();
  options.evaluator = request.at("evaluator").get<std::string>();
  for (const Json& axis : request.at("dynamic"))
    options.dynamic_axes[axis.at(0).get<std::string>()][axis.at(1).get<std::int64_t>()] =
        axis.at(2).get<std::string>();
  deploy::ExportReport report;
  try {
    report = deploy::export_onnx(module, inputs, request.at("output").get<std::string>(), options);
  } catch (...) {
    deploy::rethrow_naming(model, kWhere);
  }
  return {{"text", report.to_text()}, {"json", Json::parse(report.to_json())}};
}

}  // namespace mezzo::cli
