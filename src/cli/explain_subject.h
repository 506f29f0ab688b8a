// The subject of `explain`: a name, the rows that it means, and the rules that decide.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "operators/operators.h"
#include "policy/level.h"
#include "policy/rules.h"

namespace mezzo::cli {

struct Subject {
  std::string name;               ///< as it was given
  Form form = Form::kFunctional;  ///< "exp_" and "mm.out" are explained by their functional rows
  std::vector<std::size_t> rows;  ///< of the table, or behind it if no list has the operator
  std::vector<Rules> rules;       ///< for one low type or both

  /// The base name where all rows have one, the overload if there is one row, else the name.
  std::string title() const;
  /// The names of Apex and MXNet for any of the rows, sorted.
  std::vector<std::string_view> aliases() const;
};

/// Looks a name up: in the table, else among LibTorch's operators, where LibTorch can be loaded.
/// Without rows where neither knows it.
Subject subject_named(const std::string& name, std::vector<Rules> rules);

/// The default rules for each low type.
std::vector<Rules> default_rules(const std::optional<DType>& only);

/// The rules of a policy file. Throws Error for a file that cannot be read, and ConfigError for its
/// mistakes.
Rules rules_of_file(const std::string& path);

/// The subject's treatment at a level, in words; nothing if the rules are for another type.
std::optional<std::string> at_level(const Subject&, const Level&);

}  // namespace mezzo::cli
