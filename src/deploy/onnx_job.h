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
  torch::jit::Module module;
  std::vector<std::vector<c10::IValue>> runs;  // inputs: the examples, and others at other sizes
  std::vector<std::string> argument_names;     // of a script; empty for traces of C++ networks
};

/// The result of an export.
struct Made {
  convert::MadeModel model;
  std::vector<at::ScalarType> output_types;
  int nodes = 0;
};

inline convert::Element element_of(at::ScalarType type) {
  return static_cast<convert::Element>(detail::onnx_type(type));
}

/// Runs the file on all inputs of the job and compares it with the module; Error where they differ.
void verify(const Job& job, const Made& made, const OnnxOptions& options,
            const std::vector<NamedInput>& inputs, const std::filesystem::path& file,
            ExportReport* report);

}  // namespace mezzo::deploy
