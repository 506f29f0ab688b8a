#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>

#include "deploy/kept_buffers.h"
#include "deploy/onnx_job.h"
#include "deploy/trace.h"

namespace mezzo::deploy {
namespace {

convert::Array array_of(const at::Tensor& tensor) {
  const at::Tensor stored = tensor.detach().to(at::kCPU).contiguous();
  return {element_of(tensor.scalar_type()), tensor.sizes().vec(),
          std::string(static_cast<const char*>(stored.data_ptr()), stored.nbytes())};
}

at::Tensor tensor_of(const convert::Array& array, at::ScalarType type) {
  at::Tensor tensor = at::empty(array.dims, at::TensorOptions(type));
  if (array.element != element_of(type) || array.bytes.size() != tensor.nbytes()) return {};
  std::memcpy(tensor.data_ptr(), array.bytes.data(), array.bytes.size());
  return tensor;
}

/// Results that are something else in a second run are random: their sizes alone are compared.
std::vector<bool> random_outputs(const Job& job, const std::vector<at::Tensor>& first,
                                 const std::vector<c10::IValue>& run) {
  torch::jit::Module module = before_calls(job);
  const KeptBuffers kept(module);
  const std::vector<at::Tensor> second = outputs_in(module.forward(copied(run)));
  std::vector<bool> random;
  random.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i)
    random.push_back(i < second.size() && !(difference_of(first[i], second[i]).error == 0));
  return random;
}

double error_of(const at::Tensor& wanted, const at::Tensor& got, bool is_random) {
  if (!got.defined()) return std::numeric_limits<double>::infinity();
  if (!is_random) return difference_of(wanted, got).error;
  return wanted.sizes() == got.sizes() ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace

void verify(const Job& job, const Made& made, const OnnxOptions& options,
            const std::vector<NamedInput>& inputs, const std::filesystem::path& file,
            ExportReport* report) {
  std::vector<convert::Sample> samples;
  std::vector<c10::IValue> expected;
  const at::NoGradGuard no_grad;
  for (const auto& run : job.runs) {
    const std::vector<at::Tensor> tensors = inputs_in(job, run);
    convert::Sample sample;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool is_read =
          std::any_of(made.model.graph.inputs.begin(), made.model.graph.inputs.end(),
                      [&](const auto& one) { return one.name == inputs[i].name; });
      if (is_read) sample[inputs[i].name] = array_of(tensors[i]);
    }
    samples.push_back(std::move(sample));
    torch::jit::Module module = before_calls(job);
    const KeptBuffers kept(module);
    expected.push_back(module.forward(copied(run)));
  }
  const convert::MadeRun judged =
      convert::run_made(file, samples, options.evaluator, options.onnxruntime);
  report->errors.assign(made.output_types.size(), 0);
  bool any_random = false;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    const std::vector<at::Tensor> wanted = outputs_in(expected[r]);
    const std::vector<bool> random =
        made.draws ? random_outputs(job, wanted, job.runs[r]) : std::vector<bool>(wanted.size());
    any_random = any_random || std::ranges::find(random, true) != random.end();
    for (std::size_t i = 0; i < made.output_types.size() && i < wanted.size(); ++i) {
      const at::Tensor got = tensor_of(judged.outputs[r][i], made.output_types[i]);
      const double error = error_of(wanted[i], got, random[i]);
      report->errors[i] = std::max(report->errors[i], error);
      if (error <= options.tolerance) continue;
      std::ostringstream sizes;
      for (const auto& [name, array] : samples[r])
        sizes << " " << name << " " << c10::IntArrayRef(array.dims);
      raise(kWho, "the file and the network differ: output '", made.model.graph.outputs[i].name,
            "' by ", error, " of its range for inputs of sizes", sizes.str(),
            ", and options.tolerance is ", options.tolerance, ". Computed by ", judged.judge);
    }
  }
  report->verified = judged.judge + " on " + std::to_string(samples.size()) + " sets of inputs";
  if (any_random) report->verified += ", random results by their sizes alone";
}

}  // namespace mezzo::deploy
