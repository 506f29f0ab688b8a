// Names: of the dispatcher, of Apex, of MXNet.
#include <algorithm>

#include "core/words.h"
#include "operators/operators.h"
#include "operators/rows/apex_names_table.h"
#include "operators/rows/mxnet_names_table.h"

namespace mezzo {
namespace {

using rows::Alias;

static_assert(std::ranges::is_sorted(rows::kApexNames, {}, &Alias::name), "bisected");

constexpr std::string_view kFunctional = "torch.nn.functional.";
constexpr std::string_view kMethods = "torch.Tensor.";
constexpr std::string_view kTorch = "torch.";

/// Ways to write a namespace, and how the alias tables have it.
constexpr struct {
  std::string_view written, meant;
} kPrefixes[] = {
    {"torch::nn::functional::", kFunctional},
    {"nn.functional.", kFunctional},
    {"F::", kFunctional},
    {"F.", kFunctional},
    {"Tensor.", kMethods},
    {"mx.nd.", ""},
    {"mx.sym.", ""},
    {"nd.", ""},
    {"sym.", ""},
    {"torch::", kTorch},
};

constexpr ConditionalAlias kConditionals[] = {
    {"Activation", "act_type", "relu", "relu"},
    {"Activation", "act_type", "sigmoid", "sigmoid"},
    {"Activation", "act_type", "softrelu", "softplus"},
    {"Activation", "act_type", "tanh", "tanh"},
    {"LeakyReLU", "act_type", "elu", "elu"},
    {"LeakyReLU", "act_type", "gelu", "gelu"},
    {"LeakyReLU", "act_type", "leaky", "leaky_relu"},
    {"LeakyReLU", "act_type", "prelu", "prelu"},
    {"LeakyReLU", "act_type", "rrelu", "rrelu"},
    {"LeakyReLU", "act_type", "selu", "selu"},
};

std::string_view without(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

void add_rows_named(std::string_view name, std::vector<std::size_t>& found) {
  constexpr std::string_view kDefault = ".default";
  const auto table = operators();
  if (name.ends_with(kDefault)) {
    if (const auto row = index_of(name.substr(0, name.size() - kDefault.size()))) {
      found.push_back(*row);
    }
    return;
  }
  if (name.find('.') != std::string_view::npos) {
    if (const auto row = index_of(name)) found.push_back(*row);
    return;
  }
  const auto first = std::ranges::lower_bound(table, name, {}, &Operator::name);
  for (auto row = first; row != table.end() && row->base() == name; ++row) {
    found.push_back(static_cast<std::size_t>(row - table.begin()));
  }
}

/// MXNet's names, sorted.
std::span<const Alias> mxnet_names() {
  static const std::vector<Alias> kNames = [] {
    std::vector<Alias> all;
    for (const rows::Meaning& row : rows::kMxnetNames)
      each_word(row.names, [&](std::string_view name) { all.push_back({name, row.operators}); });
    std::ranges::sort(all, {}, &Alias::name);
    return all;
  }();
  return kNames;
}

const Alias* alias_in(std::span<const Alias> names, std::string_view name) {
  const auto alias = std::ranges::lower_bound(names, name, {}, &Alias::name);
  return alias != names.end() && alias->name == name ? &*alias : nullptr;
}

std::vector<std::size_t> rows_of(std::string_view names) {
  std::vector<std::size_t> found;
  each_word(names, [&](std::string_view name) { add_rows_named(name, found); });
  return found;
}

const Alias* alias_named(std::string_view name) {
  if (const Alias* alias = alias_in(mxnet_names(), name)) return alias;
  if (const Alias* alias = alias_in(rows::kApexNames, name)) return alias;
  for (const std::string_view space : {kFunctional, kTorch, kMethods}) {
    const std::string full = std::string(space) + std::string(name);
    if (const Alias* alias = alias_in(rows::kApexNames, full)) return alias;
  }
  return nullptr;
}

/// The name with its namespace as the alias tables write it.
std::string normal(std::string_view name) {
  for (const auto& prefix : kPrefixes) {
    if (name.starts_with(prefix.written)) {
      return std::string(prefix.meant) + std::string(name.substr(prefix.written.size()));
    }
  }
  return std::string(name);
}

template <typename Visit>
void for_each_alias(const Visit& visit) {
  for (const Alias& alias : rows::kApexNames) visit(alias);
  for (const Alias& alias : mxnet_names()) visit(alias);
}

}  // namespace

std::vector<std::size_t> resolve(std::string_view name) {
  const std::string function = std::string(kFunctional) + std::string(name);
  if (const Alias* alias = alias_in(rows::kApexNames, function)) return rows_of(alias->operators);
  std::vector<std::size_t> found;
  add_rows_named(without(without(name, "aten::"), "at::"), found);
  if (!found.empty()) return found;
  const std::string full = normal(name);
  if (const Alias* alias = alias_named(full)) return rows_of(alias->operators);
  std::string_view bare = full;
  for (const std::string_view space : {kFunctional, kMethods, kTorch}) bare = without(bare, space);
  if (bare != name) add_rows_named(bare, found);
  return found;
}

bool is_foreign(std::string_view name) noexcept {
  const std::string full = normal(name);
  return has_word(rows::kMxnetForeign, full) || has_word(rows::kApexForeign, full);
}

std::vector<std::string_view> aliases_of(std::size_t row) {
  std::vector<std::string_view> names;
  for_each_alias([&](const Alias& alias) {
    if (alias.operators.find(operators()[row].base()) == std::string_view::npos) return;
    const std::vector<std::size_t> found = rows_of(alias.operators);
    if (std::ranges::find(found, row) != found.end()) names.push_back(alias.name);
  });
  std::ranges::sort(names);
  return names;
}

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names;
  for (const Operator& op : operators()) {
    if (names.empty() || names.back() != op.base()) names.push_back(op.base());
    if (op.name != op.base()) names.push_back(op.name);
  }
  for_each_alias([&](const Alias& alias) { names.push_back(alias.name); });
  return names;
}

std::span<const ConditionalAlias> conditional_aliases() noexcept {
  return kConditionals;
}

}  // namespace mezzo
