#include "gluon/mxnet_policy.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "core/raise.h"
#include "core/scalar_type.h"
#include "gluon/list_changes.h"
#include "operators/mxnet_lists_table.h"
#include "operators/operators.h"
#include "policy/rules.h"

namespace mezzo::gluon {
namespace {

/// Names of MXNet that do not count if another name of the same operator does: forms
/// with a number, for sparse tensors or of old, outputs that have functions of their own here, and
/// operators that ATen makes of others.
bool is_secondary(std::string_view name) {
  return name.starts_with("linalg_") || name.starts_with("_linalg_") || name == "khatri_rao" ||
         name == "_square_sum" || name.ends_with("_scalar") || name.ends_with("Scalar") ||
         name.ends_with("_v1") || name.starts_with("_sparse_") ||
         name.ends_with("RegressionOutput") || name == "SoftmaxOutput" || name == "Correlation";
}

/// MXNet's classes for every row. For float16 the operator table has them; for bfloat16, and where
/// the table has none, they follow from the names on the lists of 1.9.1.
RowClasses listed_classes(DType low) {
  const auto table = operators();
  struct Found {
    std::optional<CastClass> primary, secondary;
  };
  std::vector<Found> found(table.size());
  for (const ListedOperator& listed : kMxnetLists) {
    const auto cast_class = listed_class_of(listed, low);
    if (!cast_class) continue;
    for (const std::size_t row : rows_meant_by(listed.name)) {
      auto& slot = is_secondary(listed.name) ? found[row].secondary : found[row].primary;
      if (!slot || strength(*cast_class) > strength(*slot)) slot = cast_class;
    }
  }
  RowClasses classes;
  for (std::size_t row = 0; row < table.size(); ++row) {
    CastClass by_table = table[row].listed_by(System::kMxnet).value_or(CastClass::kNeutral);
    if (by_table == CastClass::kConditional) by_table = CastClass::kNeutral;
    const CastClass by_name = found[row].primary.value_or(found[row].secondary.value_or(by_table));
    const bool is_known = low == DType::kFloat16 && table[row].listed_by(System::kMxnet);
    classes.push_back(is_known ? by_table : by_name);
  }
  return classes;
}

RowClasses merged_classes(DType low) {
  RowClasses classes;
  for (const Operator& op : operators()) classes.push_back(op.class_for(low));
  return classes;
}

/// The operators behind conditional values.
void set_conditionals(const std::vector<Conditional>& conditionals, CastClass cast_class,
                      RowClasses& classes, const RowDeciders& deciders, bool explicitly) {
  for (const Conditional& conditional : conditionals) {
    for (const std::string& value : conditional.values) {
      const auto alias = std::ranges::find_if(conditional_aliases(), [&](const auto& known) {
        return known.name == conditional.op && known.argument == conditional.argument &&
               known.value == value;
      });
      if (alias == conditional_aliases().end()) {
        raise<ConfigError>(kInit, "conditional_fp32_ops: '", conditional.op, "' with ",
                           conditional.argument, " = '", value,
                           "' is unknown; expected Activation or LeakyReLU, act_type, and one of "
                           "its values");
      }
      for (const std::size_t row : resolve(alias->operators)) {
        const auto decider = deciders.find(row);
        if (explicitly && decider != deciders.end() && decider->second.cast_class != cast_class) {
          raise<ConfigError>(kInit, "conditional_fp32_ops: '", conditional.op, "' with '", value,
                             "' is on another list already, as '", decider->second.name, "'");
        }
        if (decider == deciders.end()) classes[row] = cast_class;
      }
    }
  }
}

at::ScalarType low_type_of(const std::string& target_dtype) {
  for (const DType low : kLowTypes) {
    if (target_dtype == name_of(low)) return scalar_type_of(low);
  }
  raise<ConfigError>(kInit, "target_dtype is '", target_dtype, "'; AMP currently supports only ",
                     low_type_names(), " as a target_dtype");
}

RowClasses classes_of(const InitOptions& options, DType low) {
  const std::vector<Conditional> usual{{"Activation", "act_type", {"softrelu"}},
                                       {"LeakyReLU", "act_type", {"elu", "selu"}}};
  RowClasses classes = options.merged_lists ? merged_classes(low) : listed_classes(low);
  ListChanges changes(options.merged_lists ? std::nullopt : std::optional(low));
  if (options.target_precision_ops)
    changes.add("target_precision_ops", CastClass::kLow, *options.target_precision_ops);
  if (options.fp32_ops) changes.add("fp32_ops", CastClass::kFloat, *options.fp32_ops);
  const RowDeciders deciders = changes.apply(classes);
  if (options.conditional_fp32_ops) {
    set_conditionals(usual, CastClass::kNeutral, classes, deciders, /*explicitly=*/false);
    set_conditionals(*options.conditional_fp32_ops, CastClass::kFloat, classes, deciders, true);
  } else if (!options.merged_lists) {
    set_conditionals(usual, CastClass::kFloat, classes, deciders, /*explicitly=*/false);
  }
  return classes;
}

}  // namespace

Policy policy_of(const InitOptions& options) {
  const at::ScalarType low = low_type_of(options.target_dtype);
  const DType low_dtype = low_dtype_of(low, kInit);
  const RowClasses wanted = classes_of(options, low_dtype);
  Policy policy = Policy::defaults(low);
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    const Operator& op = operators()[row];
    if (op.class_for(low_dtype) == wanted[row]) continue;
    std::string name = "aten::" + std::string(op.name);
    if (op.name.find('.') == std::string_view::npos) name += ".default";
    policy = policy.with(name, wanted[row]);
  }
  return policy;
}

bool same_options(const InitOptions& a, const InitOptions& b) {
  const auto key = [](const Conditional& one) {
    return std::tie(one.op, one.argument, one.values);
  };
  const auto same_conditionals = [&] {
    if (a.conditional_fp32_ops.has_value() != b.conditional_fp32_ops.has_value()) return false;
    return !a.conditional_fp32_ops ||
           std::ranges::equal(*a.conditional_fp32_ops, *b.conditional_fp32_ops, {}, key, key);
  };
  return a.target_dtype == b.target_dtype && a.target_precision_ops == b.target_precision_ops &&
         a.fp32_ops == b.fp32_ops && a.merged_lists == b.merged_lists && same_conditionals();
}

}  // namespace mezzo::gluon
