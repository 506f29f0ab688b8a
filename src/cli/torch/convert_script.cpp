#include "core/torch.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <ATen/CPUGeneratorImpl.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/torch/part.h"
#include "core/raise.h"
#include "core/scalar_type.h"
#include "mezzo/deploy_script.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

at::ScalarType type_named(const std::string& name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name || name == row.alias || name == row.short_name)
      return scalar_type_of(row.dtype);
  }
  raise<ConfigError>("convert", "'", name, "' is no type of an element");
}

/// SHAPE[:DTYPE], "1x3x224x224:float32" or "scalar".
at::Tensor random_input(const std::string& text, const at::Generator& generator) {
  const std::size_t colon = text.find(':');
  const at::ScalarType type =
      colon == std::string::npos ? at::kFloat : type_named(text.substr(colon + 1));
  const std::string shape = text.substr(0, colon);
  std::vector<std::int64_t> sizes;
  for (std::size_t at = 0; shape != "scalar" && at <= shape.size();) {
    const std::size_t end = std::min(shape.find('x', at), shape.size());
    std::int64_t size = -1;
    const char* const last = shape.data() + end;
    const auto read = std::from_chars(shape.data() + at, last, size);
    if (read.ec != std::errc() || read.ptr != last || size < 0) {
      raise<ConfigError>("convert", "--input '", text,
                         "'; expected SHAPE[:DTYPE], such as 1x3x224x224 or 1x128:int64");
    }
    sizes.push_back(size);
    at = end + 1;
  }
  if (at::isFloatingType(type)) return at::randn(sizes, generator).to(type);
  // Few values: larger ones may be no rows of a table.
  return at::randint(2, sizes, generator).to(type);
}

deploy::ScriptOptions options_of(const Json& request) {
  deploy::ScriptOptions options;
  options.target_dtype = type_named(request["dtype"].get<std::string>());
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
  const auto inputs = request["inputs"].get<Names>();
  if (!inputs.empty()) {
    constexpr std::uint64_t kSeed = 1;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
    std::vector<c10::IValue> values;
    for (const std::string& input : inputs) values.emplace_back(random_input(input, generator));
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
