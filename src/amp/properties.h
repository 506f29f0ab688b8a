// From what the caller asked to what is in force.
#pragma once

#include <optional>
#include <string>

#include "mezzo/options.h"
#include "policy/level.h"
#include "scaling/scale_state.h"

namespace mezzo::amp::detail {

/// Options that were checked against the level and each other: what the rest of the module acts on.
struct Plan {
  amp::Properties properties;
  const Level* level = nullptr;
  std::optional<Policy> policy;           // operators are cast by it; empty: none are
  std::optional<at::ScalarType> convert;  // the model becomes this type
  bool convert_doubles = false;
  bool keep_types = false;  // the caller chose the model's types, half included
  at::ScalarType low = at::kHalf;
  bool keep_batch_norms = false;
  bool masters = false;
  bool split_masters = false;             // only with masters, of bfloat16 weights
  std::optional<at::ScalarType> outputs;  // empty: low types become float
  bool check_finite = false;
  scaling::ScaleRules scale_rules;
  double first_scale = 1;
};

/// Throws ConfigError for anything that contradicts the level or something else.
Plan resolve(const amp::Options& options);

/// The message of `initialize`: the level, its defaults, what the caller changed, and the result.
/// `is_float64`: all parameters of the networks are.
std::string describe(const amp::Options& options, const Plan& plan, bool is_float64);

}  // namespace mezzo::amp::detail
