#include "core/torch.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/torch/input_request.h"
#include "cli/torch/part.h"
#include "deploy/files/script_file.h"
#include "mezzo/deploy_script.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

at::Tensor random_input(const InputRequest& input, const at::Generator& generator) {
  if (at::isFloatingType(input.type)) return at::randn(input.sizes, generator).to(input.type);
  // Few values: larger ones may be no rows of a table.
  return at::randint(2, input.sizes, generator).to(input.type);
}

// The module tells the order of inputs that have names.
std::vector<InputRequest> ordered_inputs(const Json& request) {
  constexpr const char* kWhere = "convert";
  std::vector<InputRequest> inputs = input_requests_of(kWhere, request["inputs"]);
  const auto has_name = [](const InputRequest& input) { return !input.name.empty(); };
  if (std::ranges::none_of(inputs, has_name)) return inputs;
  return in_order(kWhere, inputs, deploy::load_script(request["in"].get<std::string>(), kWhere));
}

deploy::ScriptOptions options_of(const Json& request) {
  deploy::ScriptOptions options;
  options.target_dtype = type_named("convert", request["dtype"].get<std::string>());
  options.excluded_sym_names = request["exclude"].get<Names>();
  options.cast_optional_params = request["cast_weights"].get<bool>();
  options.fold_batch_norm = request["fold_batch_norm"].get<bool>();
  if (request.contains("target_ops")) options.target_dtype_ops = request["target_ops"].get<Names>();
  if (request.contains("fp32_ops")) options.fp32_ops = request["fp32_ops"].get<Names>();
  if (request.contains("conditional")) {
    options.conditional_fp32_ops.emplace();
    for (const Json& one : request["conditional"]) {
      options.conditional_fp32_ops->push_back({one["op"].get<std::string>(),
                                               one["argument"].get<std::string>(),
                                               one["values"].get<Names>()});
    }
  }
  if (request.contains("tolerance")) options.check_tolerance = request["tolerance"].get<double>();
  const std::vector<InputRequest> inputs = ordered_inputs(request);
  if (!inputs.empty()) {
    constexpr std::uint64_t kSeed = 1;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
    std::vector<c10::IValue> values;
    values.reserve(inputs.size());
    for (const InputRequest& input : inputs) values.emplace_back(random_input(input, generator));
    options.check_with = deploy::Examples(std::move(values));
  }
  return options;
}

}  // namespace

Json torch_convert_script(const Json& request) {
  const deploy::ScriptReport report = deploy::convert_script(
      request["in"].get<std::string>(), request["out"].get<std::string>(), options_of(request));
  return {{"text", report.to_text()}, {"json", report.to_json()}};
}

}  // namespace mezzo::cli
