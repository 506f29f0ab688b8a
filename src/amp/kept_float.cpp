#include "amp/kept_float.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <set>
#include <utility>

#include "amp/module_types.h"
#include "core/glob.h"
#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInKeepFloat = "keep_float";

/// "torch::nn::Linear" of a torch::nn::LinearImpl.
std::string type_of(const torch::nn::Module& module) {
  std::string name = c10::demangle(typeid(module).name());
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

/// Without its namespaces.
std::string last_part(const std::string& type) {
  const std::size_t colons = type.rfind("::", type.find('<'));
  return colons == std::string::npos ? type : type.substr(colons + 2);
}

/// A place of a network that patterns may name.
struct NamedPlace {
  std::string name;
  const torch::nn::Module* module;  // null: a tensor
  const c10::TensorImpl* tensor;
};

/// The modules of a network but its root, and its tensors.
std::vector<NamedPlace> places_in(const torch::nn::Module& root) {
  std::vector<NamedPlace> places;
  for (const auto& [name, module] : modules_of(root)) {
    places.push_back({name, module, nullptr});
    for (const auto& tensors : {module->named_parameters(false), module->named_buffers(false)}) {
      for (const auto& item : tensors) {
        if (!item.value().defined()) continue;
        places.push_back({name.empty() ? item.key() : name + "." + item.key(), nullptr,
                          item.value().unsafeGetTensorImpl()});
      }
    }
  }
  return places;
}

bool names(const FloatPattern& pattern, const NamedPlace& place) {
  if (place.module != nullptr && pattern.matches_type(*place.module)) return true;
  return !place.name.empty() && pattern.matches(place.name);
}

/// The possible names: a list of names and of types.
std::string choices_in(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  constexpr std::size_t kMost = 24;
  std::set<std::string> types;
  std::vector<std::string> found;
  for (const auto& root : modules) {
    for (const NamedPlace& place : places_in(*root)) {
      if (!place.name.empty()) found.push_back(place.name);
      if (place.module != nullptr) types.insert(last_part(type_of(*place.module)));
    }
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(found.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + found[i];
  if (found.size() > kMost) text += ", ... (" + std::to_string(found.size()) + " in all)";
  text += "; types of modules: ";
  std::string separator;
  for (const std::string& type : types) text += std::exchange(separator, ", ") + type;
  return text;
}

}  // namespace

FloatPattern::FloatPattern(std::string text) : text_(std::move(text)) {
  if (text_.empty()) raise<ConfigError>(kInKeepFloat, "a pattern is empty");
  const bool is_expression = text_.size() > 2 && text_.front() == '/' && text_.back() == '/';
  if (!is_expression && text_.find_first_of("*?") == std::string::npos) return;
  try {
    expression_ = std::make_shared<const std::regex>(
        is_expression ? text_.substr(1, text_.size() - 2) : expression_of_glob(text_));
  } catch (const std::regex_error& error) {
    raise<ConfigError>(kInKeepFloat, "'", text_, "' is no regular expression: ", error.what());
  }
}

bool FloatPattern::matches(const std::string& name) const {
  return name == text_ || (expression_ != nullptr && std::regex_match(name, *expression_));
}

bool FloatPattern::matches_type(const torch::nn::Module& module) const {
  const std::string type = type_of(module);
  const std::string last = last_part(type);
  if (type == text_ || last == text_ || last + "Impl" == text_ || type + "Impl" == text_)
    return true;
  return expression_ != nullptr && std::regex_match(last, *expression_);
}

KeptFloat::KeptFloat(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) patterns_.emplace_back(pattern);
}

void KeptFloat::check(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) const {
  for (const FloatPattern& pattern : patterns_) {
    const bool matches = std::ranges::any_of(modules, [&](const auto& root) {
      const auto places = places_in(*root);
      return std::ranges::any_of(places,
                                 [&](const NamedPlace& place) { return names(pattern, place); });
    });
    if (matches) continue;
    raise<ConfigError>(kInKeepFloat, "'", pattern.text(),
                       "' matches no parameter, buffer, module or type of module; there are: ",
                       choices_in(modules));
  }
}

std::unordered_set<const c10::TensorImpl*> KeptFloat::in(const torch::nn::Module& root) const {
  std::unordered_set<const c10::TensorImpl*> kept;
  if (patterns_.empty()) return kept;
  for (const NamedPlace& place : places_in(root)) {
    const bool is_named = std::ranges::any_of(
        patterns_, [&](const FloatPattern& pattern) { return names(pattern, place); });
    if (!is_named) continue;
    if (place.tensor != nullptr) {
      kept.insert(place.tensor);
      continue;
    }
    for (const auto& tensors : {place.module->parameters(), place.module->buffers()}) {
      for (const at::Tensor& tensor : tensors) {
        if (tensor.defined()) kept.insert(tensor.unsafeGetTensorImpl());
      }
    }
  }
  return kept;
}

}  // namespace mezzo::amp::detail
