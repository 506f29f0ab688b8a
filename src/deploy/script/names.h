// Paths of modules and parameters, and the patterns that name them.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "core/torch.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace mezzo::deploy::script {

/// A tensor or another attribute that a graph reads, by the object that holds it.
struct AttributePlace {
  c10::intrusive_ptr<c10::ivalue::Object> object;
  std::string name;  ///< within the object
  std::string path;  ///< from the module: "layer1.0.conv.weight"

  c10::IValue value() const { return object->getAttr(name); }
};

/// The attribute that a prim::GetAttr reads by a chain from the graph's module; nothing for other
/// values.
std::optional<AttributePlace> attribute_of(const torch::jit::Value* value,
                                           const torch::jit::Module& module);

/// The path of a module that a graph reads by such a chain, or that is the graph's own ("").
std::optional<std::string> module_path_of(const torch::jit::Value* value);

/// The modules and parameters that stay float.
class ExcludedNames {
 public:
  /// Throws ConfigError for a pattern that is no expression and for one that nothing matches.
  ExcludedNames(const std::vector<std::string>& patterns, const torch::jit::Module& module);

  /// The pattern that names the path, or a module around it; empty: none does.
  std::string pattern_for(std::string_view path) const;

 private:
  struct Pattern {
    std::string text;
    std::regex expression;
  };
  std::vector<Pattern> patterns_;
};

/// The path that both have in common, whole names only.
std::string common_path(std::string_view a, std::string_view b);

}  // namespace mezzo::deploy::script
