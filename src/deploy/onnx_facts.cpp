#include "deploy/onnx_facts.h"

namespace mezzo::deploy::detail {

const std::set<std::string>& identities() {
  static const std::set<std::string> names = {
      "aten::detach",         "aten::contiguous",      "aten::alias",
      "aten::dropout",        "aten::clone",           "aten::feature_dropout",
      "aten::alpha_dropout",  "aten::requires_grad",   "aten::cpu",
      "aten::detach_",        "aten::resolve_conj",    "aten::dropout_",
      "aten::lift",           "aten::lift_fresh",      "aten::resolve_neg",
      "aten::requires_grad_", "aten::lift_fresh_copy", "aten::feature_alpha_dropout",
      "prim::unchecked_cast"};
  return names;
}

const std::set<std::string>& static_facts() {
  static const std::set<std::string> names = {
      "prim::dtype",        "prim::device",       "aten::dim",           "aten::is_floating_point",
      "prim::is_cuda",      "prim::layout",       "prim::requires_grad", "aten::is_complex",
      "aten::__is__",       "aten::__isnot__",    "prim::is_sparse",     "aten::isinstance",
      "prim::is_quantized", "aten::__contains__", "aten::ndimension",    "prim::is_nested",
      "prim::is_mkldnn",    "prim::is_meta",      "aten::format",        "aten::str",
      "aten::percentFormat"};
  return names;
}

bool is_view_free(std::string_view name) {
  return name == "aten::clone" || name == "aten::contiguous" || name == "aten::lift_fresh_copy";
}

bool only_says(std::string_view name) {
  return name == "aten::warn" || name == "prim::Print";
}

}  // namespace mezzo::deploy::detail
