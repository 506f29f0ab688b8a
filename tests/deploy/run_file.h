// An exported file on inputs that the export did not see.
#pragma once

#include <torch/script.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "convert/make/made_model.h"
#include "deploy/onnx_job.h"
#include "deploy/trace.h"

namespace mezzo::deploy {

inline OnnxOptions judged_options() {
  OnnxOptions options;
  options.evaluator = MEZZO_EVALUATOR;
#ifdef MEZZO_ONNXRUNTIME
  options.onnxruntime = MEZZO_ONNXRUNTIME;
#endif
  return options;
}

inline convert::Array array_from(const at::Tensor& tensor) {
  const at::Tensor stored = tensor.contiguous();
  return {element_of(tensor.scalar_type()), tensor.sizes().vec(),
          std::string(static_cast<const char*>(stored.data_ptr()), stored.nbytes())};
}

/// The largest error of an output relative to its range; infinity where sizes or types differ.
inline double error_of_file(const std::filesystem::path& file,
                            const std::vector<std::string>& names,
                            const std::vector<at::Tensor>& inputs, const c10::IValue& wanted) {
  convert::Sample sample;
  for (std::size_t i = 0; i < names.size(); ++i) sample[names[i]] = array_from(inputs[i]);
  const OnnxOptions options = judged_options();
  const convert::MadeRun run =
      convert::run_made(file, {sample}, options.evaluator, options.onnxruntime);
  const std::vector<at::Tensor> expected = outputs_in(wanted);
  double worst = expected.size() == run.outputs[0].size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < expected.size() && i < run.outputs[0].size(); ++i) {
    const convert::Array& got = run.outputs[0][i];
    const at::ScalarType type = expected[i].scalar_type();
    if (got.element != element_of(type)) return INFINITY;
    at::Tensor tensor = torch::empty(got.dims, type);
    std::memcpy(tensor.data_ptr(), got.bytes.data(), got.bytes.size());
    worst = std::max(worst, difference_of(expected[i], tensor).error);
  }
  return worst;
}

}  // namespace mezzo::deploy
