#include "convert/mxnet/lists.h"

#include <algorithm>
#include <array>

#include "convert/mxnet/attribute_defaults.h"
#include "convert/mxnet/facts.h"
#include "convert/mxnet/numpy_operators.h"
#include "core/nearest.h"
#include "core/raise.h"
#include "mezzo/messages.h"
#include "operators/condition.h"
#include "operators/mxnet_lists_table.h"

namespace mezzo::convert::mxnet {
namespace {

constexpr const char* kInConvert = "mxnet";
using Names = std::set<std::string, std::less<>>;

Names default_list(char letter, bool is_bfloat16) {
  Names names;
  for (const ListedOperator& op : kMxnetLists) {
    if (op.classes[is_bfloat16 ? 1 : 0] == letter) names.emplace(op.name);
  }
  for (const NumpyOperator& op : numpy_operators()) {
    if (op.classes[is_bfloat16 ? 1 : 0] == letter) names.emplace(op.name);
  }
  return names;
}

void change_list(Names& names, const std::optional<std::vector<std::string>>& given,
                 const char* option) {
  if (!given) return;
  const auto is_edit = [](const std::string& name) {
    return name.starts_with('+') || name.starts_with('-');
  };
  const auto edits = std::ranges::count_if(*given, is_edit);
  if (edits != 0 && edits != std::ssize(*given)) {
    raise<ConfigError>(kInConvert, option,
                       " mixes names with \"+Op\" and \"-Op\"; expected names alone, which replace "
                       "the default list, or edits alone");
  }
  if (edits == 0) names.clear();
  for (const std::string& name : *given) {
    if (edits == 0) {
      names.insert(name);
    } else if (name.starts_with('+')) {
      names.insert(name.substr(1));
    } else if (names.erase(name.substr(1)) == 0) {
      raise<ConfigError>(kInConvert, option, " takes '", name.substr(1),
                         "' off the list, which does not have it");
    }
  }
}

void check_disjoint(const Names& a, const char* a_name, const Names& b, const char* b_name) {
  for (const std::string& name : a) {
    if (!b.contains(name)) continue;
    raise<ConfigError>(kInConvert, "Ops cannot be in two or more lists. Common ops in ", a_name,
                       " and ", b_name, " {'", name,
                       "'}; a list that is given replaces its own default alone, so that both need "
                       "to be given, or edited with \"+Op\" and \"-Op\"");
  }
}

void check_known(const Names& names, bool is_bfloat16) {
  std::vector<std::string_view> known;
  for (const ListedOperator& op : kMxnetLists) {
    const char letter = op.classes[is_bfloat16 ? 1 : 0];
    if (letter != '-' && letter != 'p') known.push_back(op.name);
  }
  for (const NumpyOperator& op : numpy_operators()) {
    const char letter = op.classes[is_bfloat16 ? 1 : 0];
    if (letter == 'l' || letter == 'f' || letter == 'n') known.push_back(op.name);
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const bool is_widest = default_list('p', is_bfloat16).contains(name);
    raise<ConfigError>(
        kInConvert,
        "Can only choose ops from one of the three lists for lp16_ops and fp32_ops: "
        "'",
        name,
        is_widest ? "' runs in the widest type of its inputs, always" : "' is not in any of them",
        is_widest ? "" : did_you_mean(name, known));
  }
}

}  // namespace

Lists::Lists(const Options& options) : dtype_(options.target_dtype) {
  if (dtype_ != "float16" && dtype_ != "bfloat16") {
    raise<ConfigError>(
        kInConvert, "target_dtype is '", dtype_,
        "'; only target_dtype float16 and bfloat16 are supported currently",
        did_you_mean(dtype_, std::array<std::string_view, 2>{"float16", "bfloat16"}));
  }
  is_bfloat16_ = dtype_ == "bfloat16";
  low_ = default_list('l', is_bfloat16_);
  float_ = default_list('f', is_bfloat16_);
  widest_ = default_list('p', is_bfloat16_);
  change_list(low_, options.target_dtype_ops, "target_dtype_ops");
  change_list(float_, options.fp32_ops, "fp32_ops");
  conditionals_ = options.conditional_fp32_ops.value_or(std::vector<Conditional>{
      {"Activation", "act_type", {"softrelu"}}, {"LeakyReLU", "act_type", {"elu", "selu"}}});
  Names conditional;
  for (const Conditional& one : conditionals_) conditional.insert(one.op);
  check_disjoint(low_, "target_dtype_ops", float_, "fp32_ops");
  check_disjoint(low_, "target_dtype_ops", conditional, "conditional_fp32_ops");
  check_disjoint(conditional, "conditional_fp32_ops", float_, "fp32_ops");
  for (const Names* names : {&low_, &float_, &conditional}) check_known(*names, is_bfloat16_);
  excluded_.insert(options.excluded_sym_names.begin(), options.excluded_sym_names.end());
}

Class Lists::class_of(const Node& node) const {
  const std::string_view op = classic_name(node.op);
  if (float_.contains(op) || excluded_.contains(node.name) || disables_amp(node))
    return Class::kFloat;
  if (low_.contains(op)) return Class::kLow;
  if (widest_.contains(op)) return Class::kWidest;
  for (const Conditional& one : conditionals_) {
    if (one.op != op) continue;
    auto value = node.attr(one.attribute);
    if (!value) value = default_of(op, one.attribute);
    if (value && is_condition_value(*value, one.values)) return Class::kFloat;
  }
  return Class::kNeutral;
}

void Lists::tell_of_missing_names(const std::vector<const Symbol*>& graphs) const {
  Names missing = excluded_;
  for (const Symbol* graph : graphs) {
    for (const Node& node : graph->nodes()) missing.erase(node.name);
  }
  if (missing.empty()) return;
  std::string text = "excluded_sym_names are not present in the network. Missing nodes: {";
  std::string between;
  for (const std::string& name : missing) {
    text += between + "'" + name + "'";
    between = ", ";
  }
  send_message(text + "}");
}

}  // namespace mezzo::convert::mxnet
