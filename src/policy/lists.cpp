// MXNet's list_* functions, from the operator table.
#include <algorithm>

#include "core/scalar_type.h"
#include "mezzo/policy.h"
#include "operators/operators.h"

namespace mezzo {
namespace {

std::vector<std::string> names_of(CastClass cast_class, at::ScalarType target_dtype) {
  const DType low = low_dtype_of(target_dtype, "list");
  std::vector<std::string> names;
  for (const Operator& op : operators()) {
    if (op.class_for(low) == cast_class) names.emplace_back(op.name);
  }
  return names;
}

/// Does MXNet decide by an argument about all that this alias means, and float by default here?
bool is_conditional_float(const ConditionalAlias& alias, DType low) {
  return std::ranges::all_of(resolve(alias.operators), [&](std::size_t row) {
    const Operator& op = operators()[row];
    return op.listed_by(System::kMxnet) == CastClass::kConditional &&
           op.class_for(low) == CastClass::kFloat;
  });
}

}  // namespace

std::vector<std::string> list_lp16_ops(at::ScalarType target_dtype) {
  return names_of(CastClass::kLow, target_dtype);
}

std::vector<std::string> list_fp32_ops(at::ScalarType target_dtype) {
  return names_of(CastClass::kFloat, target_dtype);
}

std::vector<std::string> list_lp16_fp32_ops(at::ScalarType target_dtype) {
  return names_of(CastClass::kNeutral, target_dtype);
}

std::vector<std::string> list_widest_type_cast(at::ScalarType target_dtype) {
  return names_of(CastClass::kPromote, target_dtype);
}

std::vector<std::string> list_loss_output_functions(at::ScalarType target_dtype) {
  low_dtype_of(target_dtype, "list");
  return {"LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
          "SoftmaxOutput"};
}

std::vector<Conditional> list_conditional_fp32_ops(at::ScalarType target_dtype) {
  const DType low = low_dtype_of(target_dtype, "list");
  std::vector<Conditional> found;
  for (const ConditionalAlias& alias : conditional_aliases()) {
    if (!is_conditional_float(alias, low)) continue;
    if (found.empty() || found.back().op != alias.name) {
      found.push_back({std::string(alias.name), std::string(alias.argument), {}});
    }
    found.back().values.emplace_back(alias.value);
  }
  return found;
}

std::map<std::string, std::vector<std::string>> list_lp16_use_fp32_params(
    at::ScalarType target_dtype) {
  if (low_dtype_of(target_dtype, "list") == DType::kFloat16) return {};
  std::map<std::string, std::vector<std::string>> found;
  for (const Operator& op : operators()) {
    if (op.input_only)
      found[std::string(op.name)] = {"weight", "bias", "running_mean", "running_var"};
  }
  return found;
}

}  // namespace mezzo
