// An export on its way: the module, its inputs, and the model that was made of it.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "convert/make/made_model.h"
#include "deploy/examples.h"
#include "deploy/onnx_builder.h"

namespace mezzo::deploy {

/// Where errors come from.
inline constexpr const char* kWho = "export_onnx";

/// The subject of an export.
struct Job {
  torch::jit::Module module;                   // what is translated
  torch::jit::Module to_run;                   // the same for LibTorch's executor
  std::vector<std::vector<c10::IValue>> runs;  // inputs: the examples, and others at other sizes
  std::vector<std::string> argument_names;     // of a script; empty for traces of C++ networks
  std::size_t given = 0;  // of a script: arguments that are inputs; the others have their defaults
  bool keeps_attributes = false;  // of the module, from call to call
  std::vector<std::string> warnings;
};

/// Does a method of the module write attributes? (onnx_objects.cpp)
bool keeps_attributes(const torch::jit::Module& module);

/// The module as it is before its first call, to be called once. Weights and buffers are the job's.
inline torch::jit::Module before_calls(const Job& job) {
  return job.keeps_attributes ? job.to_run.clone() : job.to_run;
}

/// Is an argument a number that is an input of the model? Numbers of scripts are.
bool is_number_input(const Job& job, std::size_t argument);

/// The inputs of the model in one of the runs: tensors depth first, numbers without dimensions.
std::vector<at::Tensor> inputs_in(const Job& job, const std::vector<c10::IValue>& run);

/// The outputs of the model in what a run gave: tensors depth first, numbers without dimensions.
std::vector<at::Tensor> outputs_in(const c10::IValue& result);

/// The inputs with their names in the model. Throws ConfigError for names that do not fit.
std::vector<NamedInput> named_inputs(const Job& job, const OnnxOptions& options);

/// The axes of inputs that are tensors, by what dynamic_axes may call them: names, and numbers.
std::vector<AxisOfInputs> axes_of(const Job& job, const DynamicAxes& axes,
                                  const std::vector<NamedInput>& inputs);
/// The axes of each input by their numbers, as trace() takes them.
DynamicAxes axes_by_number(const Job& job, const DynamicAxes& axes,
                           const std::vector<NamedInput>& inputs);

/// Settles the arguments of a script: one-element tensors for numbers become numbers, defaults
/// are filled in. Throws ConfigError if there are too few or too many.
void settle_arguments(Job* job);

/// Adds up to three sets of inputs with other sizes at which a script runs, all axes changed at
/// once. Two of them are far from the example; in one of these the longer side of an image is the
/// shorter one, if the script runs there.
void add_runs(Job* job, const std::vector<AxisOfInputs>& axes);

/// The examples of a run once more, with other integers, for an imagined run.
std::vector<c10::IValue> imagined_run(const Job& job);

/// The result of an export.
struct Made {
  convert::MadeModel model;
  std::vector<at::ScalarType> output_types;
  bool draws = false;  // random numbers
};

inline convert::Element element_of(at::ScalarType type) {
  return static_cast<convert::Element>(detail::onnx_type(type));
}

/// Runs the file on all inputs of the job and compares it with the module; Error if they differ.
void verify(const Job& job, const Made& made, const OnnxOptions& options,
            const std::vector<NamedInput>& inputs, const std::filesystem::path& file,
            ExportReport* report);

}  // namespace mezzo::deploy
