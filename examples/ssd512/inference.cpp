#include "ssd512/inference.h"

#include <mezzo/convert_mxnet.h>
#include <mezzo/deploy_script.h>
#include <mezzo/error.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/types.h>

#include <iostream>

#include "ssd512/network.h"
#include "ssd512/symbols.h"
#include "support/process.h"
#include "support/recorder.h"

namespace examples {

namespace {

namespace deploy = mezzo::deploy;
namespace mx = mezzo::convert::mxnet;

void expect(bool holds, const std::string& otherwise) {
  if (!holds) throw mezzo::Error("inference: " + otherwise);
}

/// Largest difference, as a share of the range of what is right.
double error_of(const at::Tensor& result, const at::Tensor& right) {
  return ((result - right).abs().max() / right.abs().max()).item<double>();
}

/// The tutorial's gluon model, which is then saved and loaded as well.
void convert_network(const InferenceSettings& settings) {
  const at::Device device = device_of(settings.device);
  torch::manual_seed(static_cast<std::uint64_t>(settings.seed));
  ResNet50 model;
  initialize_weights(*model);
  model->to(device);
  model->eval();
  deploy::ScriptOptions options;
  options.target_dtype = settings.dtype == "float16" ? at::kHalf : at::kBFloat16;
  const std::vector<std::int64_t> shape{1, 3, settings.data_shape, settings.data_shape};
  torch::jit::Module converted_model =
      deploy::convert_hybrid_block(model, {torch::zeros(shape, device)}, options);

  const torch::NoGradGuard no_grad;
  const at::Tensor image = torch::rand(shape).to(device);
  const at::Tensor result = converted_model.forward({image}).toTensor();
  const double error = error_of(result, model(image));
  constexpr double kLargest = 0.05;
  expect(error < kLargest, "the converted ResNet-50 is " + std::to_string(error) +
                               " of the output's range from the float one");
  const std::string file = (settings.folder / "amp_tutorial_resnet50.pt").string();
  converted_model.save(file);
  const at::Tensor loaded = torch::jit::load(file, device).forward({image}).toTensor();
  expect(loaded.equal(result), "the saved ResNet-50 gives another result than the one saved");
  std::cout << "ResNet-50 in " << settings.dtype << ": " << 100 * error
            << " % of the output's range from float\n"
            << "Conversion and Inference completed successfully" << std::endl;
}

/// Computes the model as ONNX, which takes MXNet's place: no output may stop being finite. Casts of
/// MXNet's are undone on the way, so `options` says once more which operators run in which type, by
/// ONNX's names.
void run_symbol(const mx::Checkpoint& model, const InferenceSettings& settings,
                mezzo::convert::Options options = {}) {
  const TemporaryFolder folder;
  options.target_dtype = settings.dtype;
  options.verify = "run";
#ifdef MEZZO_EVALUATOR
  options.evaluator = MEZZO_EVALUATOR;  // not installed yet
#endif
  if (settings.dtype == "bfloat16") options.opset = "auto";
  mx::to_onnx(model, folder.path() / "model.onnx", options,
              {{"data", {1, 3, settings.data_shape, settings.data_shape}}});
}

void convert_symbols(const InferenceSettings& settings) {
  torch::manual_seed(static_cast<std::uint64_t>(settings.seed));
  const mx::Checkpoint model =
      settings.model.empty() ? make_resnet18() : mx::load_checkpoint(settings.model, 0);
  mx::Options options;
  options.target_dtype = settings.dtype;
  run_symbol(mx::convert_model(model, options), settings);
  std::cout << "Conversion and Inference completed successfully" << std::endl;

  // Only convolutions run in 16 bits, and parameters are stored in 16 bits wherever possible.
  options.target_dtype_ops = {"Convolution"};
  options.fp32_ops = {"SoftmaxOutput", "FullyConnected"};
  options.cast_optional_params = true;
  const mx::Checkpoint result = mx::convert_model(model, options);
  const auto check_types = [&](const mx::Checkpoint& converted) {
    for (const char* name : {"conv0_weight", "fc1_bias"}) {
      expect(converted.arg_params.contains(name),
             "the model has no parameter '" + std::string(name) +
                 "', whose type the tutorial asserts; expected one like imagenet1k-resnet-18");
    }
    const std::string convolution = converted.arg_params.dtype("conv0_weight");
    expect(convolution == settings.dtype, "conv0_weight is " + convolution);
    const std::string connected = converted.arg_params.dtype("fc1_bias");
    expect(connected == "float32", "fc1_bias is " + connected);
  };
  check_types(result);
  const std::string prefix = (settings.folder / "amp_tutorial_model").string();
  mx::save_checkpoint(prefix, 0, result, /*remove_amp_cast=*/false);
  const mx::Checkpoint loaded = mx::load_checkpoint(prefix, 0);
  check_types(loaded);
  expect(loaded.symbol.to_json() == result.symbol.to_json(), "the saved graph is another one");
  mezzo::convert::Options as_onnx;
  as_onnx.target_dtype_ops = {"Conv"};
  as_onnx.fp32_ops = {"Softmax", "Gemm", "MatMul"};
  as_onnx.cast_optional_params = true;
  run_symbol(loaded, settings, as_onnx);
  std::cout << "conv0_weight is " << settings.dtype << ", fc1_bias is float32\n"
            << "Conversion and Inference completed successfully\n"
            << "wrote " << prefix << "-symbol.json and " << prefix << "-0000.params" << std::endl;
}

}  // namespace

void convert_and_infer(const InferenceSettings& settings) {
  convert_network(settings);
  convert_symbols(settings);
}

}  // namespace examples
