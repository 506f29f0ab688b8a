// The functions behind the library's one entry.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace mezzo::cli {

/// Answers a request; what it throws reaches the caller of ask_torch().
using TorchFunction = nlohmann::ordered_json (*)(const nlohmann::ordered_json& request);

/// Versions, devices, rates and compute modes. The request is ignored.
nlohmann::ordered_json torch_info(const nlohmann::ordered_json& request);

/// Exports a TorchScript file: model, output, target (what the caller makes of `output`), inputs,
/// dynamic, opset, tolerance, verify, evaluator, onnxruntime. Answers with the report as `text` and
/// `json`.
nlohmann::ordered_json torch_export(const nlohmann::ordered_json& request);

/// Checks a TorchScript file, `model`. Answers with the findings as `text` and `json`.
nlohmann::ordered_json torch_lint(const nlohmann::ordered_json& request);

/// The functional overloads that LibTorch has under a name (a string: "silu", "aten::add.Tensor"),
/// with their namespace, sorted. Empty: it has none.
nlohmann::ordered_json torch_overloads(const nlohmann::ordered_json& request);

/// Converts a TorchScript file. The request has the paths `in` and `out` and the options of
/// src/cli/convert_script.cpp; the answer is the report as `text` and as `json`.
nlohmann::ordered_json torch_convert_script(const nlohmann::ordered_json& request);

}  // namespace mezzo::cli
