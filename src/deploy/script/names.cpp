#include "deploy/script/names.h"

#include <algorithm>

#include "core/glob.h"
#include "core/raise.h"

namespace mezzo::deploy::script {
namespace {

/// The names of a chain of prim::GetAttr, outermost first; nothing if it does not start at the
/// graph's module.
std::optional<std::vector<std::string>> chain_of(const torch::jit::Value* value) {
  std::vector<std::string> names;
  const torch::jit::Node* node = value->node();
  for (; node->kind() == c10::prim::GetAttr; node = value->node()) {
    names.push_back(node->s(c10::attr::name));
    value = node->inputs().at(0);
  }
  const auto& inputs = node->owningGraph()->inputs();
  if (inputs.empty() || value != inputs.at(0)) return std::nullopt;
  std::ranges::reverse(names);
  return names;
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string path;
  for (const std::string& name : names) (path += path.empty() ? "" : ".") += name;
  return path;
}

std::regex expression_for(const std::string& pattern) {
  try {
    if (pattern.size() > 1 && pattern.front() == '/' && pattern.back() == '/')
      return std::regex(pattern.substr(1, pattern.size() - 2));
    return std::regex(expression_of_glob(pattern));
  } catch (const std::regex_error& error) {
    raise<ConfigError>("convert_hybrid_block", "excluded_sym_names: '", pattern,
                       "' is no regular expression: ", error.what());
  }
}

}  // namespace

std::optional<AttributePlace> attribute_of(const torch::jit::Value* value,
                                           const torch::jit::Module& module) {
  if (value->node()->kind() != c10::prim::GetAttr) return std::nullopt;
  auto names = chain_of(value);
  if (!names) return std::nullopt;
  AttributePlace place{module._ivalue(), names->back(), joined_names(*names)};
  names->pop_back();
  for (const std::string& name : *names) {
    const c10::IValue inner = place.object->getAttr(name);
    if (!inner.isObject()) return std::nullopt;
    place.object = inner.toObject();
  }
  if (!place.object->type()->findAttribute(place.name)) return std::nullopt;
  return place;
}

std::optional<std::string> module_path_of(const torch::jit::Value* value) {
  const auto names = chain_of(value);
  if (!names) return std::nullopt;
  return joined_names(*names);
}

ExcludedNames::ExcludedNames(const std::vector<std::string>& patterns,
                             const torch::jit::Module& module) {
  std::vector<std::string> known;
  for (const auto& each : module.named_modules()) known.push_back(each.name);
  for (const auto& each : module.named_attributes()) {
    if (!each.value.isObject()) known.push_back(each.name);
  }
  for (const std::string& text : patterns) {
    patterns_.push_back({text, expression_for(text)});
    const auto matches = [&](const std::string& name) {
      return std::regex_match(name, patterns_.back().expression);
    };
    if (!text.empty() && std::ranges::any_of(known, matches)) continue;
    std::string some;
    std::size_t count = 0;
    for (const std::string& name : known) {
      if (name.empty() || name.ends_with("training") || count == 8) continue;
      (some += count++ == 0 ? "" : ", ") += name;
    }
    raise<ConfigError>("convert_hybrid_block", "excluded_sym_names: '", text,
                       "' names no module and no parameter; there are ", some,
                       known.size() > count + 1 ? ", ..." : "");
  }
}

std::string ExcludedNames::pattern_for(std::string_view path) const {
  for (std::string_view part = path; !part.empty();) {
    for (const Pattern& pattern : patterns_) {
      if (std::regex_match(part.begin(), part.end(), pattern.expression)) return pattern.text;
    }
    const std::size_t dot = part.rfind('.');
    part = dot == std::string_view::npos ? std::string_view{} : part.substr(0, dot);
  }
  return {};
}

std::string common_path(std::string_view a, std::string_view b) {
  std::size_t end = 0;
  for (std::size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool a_ends = i == a.size() || a[i] == '.';
    const bool b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return std::string(a.substr(0, end));
}

}  // namespace mezzo::deploy::script
