#include "amp/properties.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "core/raise.h"
#include "core/scalar_type.h"
#include "core/torch.h"

namespace mezzo {
namespace amp::detail {
namespace {

constexpr std::string_view kInProperties = "initialize";

amp::Properties defaults_of(const Level& level) {
  amp::Properties properties;
  properties.enabled = true;
  properties.opt_level = std::string(level.name);
  if (level.cast_model_type) properties.cast_model_type = scalar_type_of(*level.cast_model_type);
  properties.patch_torch_functions = level.cast_ops;
  properties.keep_batchnorm_fp32 = level.keep_batchnorm_fp32;
  properties.master_weights = level.master_weights;
  properties.loss_scale = level.loss_scale ? amp::LossScale(*level.loss_scale) : "dynamic";
  return properties;
}

void check_types(const amp::Options& options, const Level& level) {
  if (options.cast_model_type && *options.cast_model_type != at::ScalarType::Undefined) {
    const at::ScalarType type = *options.cast_model_type;
    if (!is_network_type(type)) {
      raise<ConfigError>(kInProperties, "cast_model_type is ", type, "; expected ",
                         floating_type_names(&DTypeRow::torch_name),
                         ", or Undefined to keep the model's types");
    }
    if (level.cast_ops && type != at::kFloat) {
      raise<ConfigError>(
          kInProperties, level.name,
          " casts around operators and keeps weights in float, but cast_model_type is ", type,
          "; to cast the model itself use O2, O3 or O5");
    }
  }
  if (options.cast_model_outputs && *options.cast_model_outputs != at::ScalarType::Undefined &&
      !is_network_type(*options.cast_model_outputs)) {
    raise<ConfigError>(kInProperties, "cast_model_outputs is ", *options.cast_model_outputs,
                       "; expected ", floating_type_names(&DTypeRow::torch_name),
                       ", or Undefined to leave outputs as they come");
  }
}

void check_against_level(const amp::Options& options, const Level& level) {
  if (options.patch_torch_functions.value_or(false) && !level.cast_ops) {
    raise<ConfigError>(kInProperties, "patch_torch_functions cannot be switched on at ", level.name,
                       "; choose O1 or O4, which cast operators");
  }
  if (level.cast_ops && options.keep_batchnorm_fp32) {
    raise<ConfigError>(kInProperties, "keep_batchnorm_fp32 has no meaning at ", level.name,
                       ", where batch norms are float already; leave it unset");
  }
  if (level.cast_ops && options.master_weights) {
    raise<ConfigError>(kInProperties, "master_weights has no meaning at ", level.name,
                       ", where weights are float already; leave it unset");
  }
  // Other levels cast no operator: a program may keep its policy when it goes to O0 to compare.
  if (level.cast_ops && options.policy && options.policy->low() != scalar_type_of(level.low)) {
    raise<ConfigError>(kInProperties, "the policy casts to ", options.policy->low(), ", but ",
                       level.name, " casts to ", scalar_type_of(level.low));
  }
}

/// A split master is a bfloat16 weight and what it lacks of a float.
void check_split_masters(const Options& options, const Plan& plan) {
  const Level& level = *plan.level;
  if (!options.split_masters) return;
  const bool is_bfloat16 = level.low == DType::kBFloat16 && plan.convert == at::kBFloat16;
  if (level.master_weights.value_or(false) && is_bfloat16 && plan.masters) return;
  if (level.master_weights.value_or(false) && level.low == DType::kBFloat16) {
    raise<ConfigError>(
        kInProperties, "split_masters splits float masters of bfloat16 weights, but ",
        plan.masters ? "cast_model_type asks for other weights" : "master_weights is off",
        "; leave that option unset");
  }
  raise<ConfigError>(kInProperties, "split_masters has no meaning at ", level.name,
                     "; choose O5, which has bfloat16 weights with float masters");
}

void check_numbers(const amp::Options& options) {
  if (options.num_losses < 1) {
    raise<ConfigError>(kInProperties, "num_losses is ", options.num_losses, "; expected 1 or more");
  }
  if (options.growth_interval < 1) {
    raise<ConfigError>(kInProperties, "growth_interval is ", options.growth_interval,
                       "; expected 1 or more");
  }
  if (options.expect_equal_every < 0) {
    raise<ConfigError>(kInProperties, "expect_equal_every is ", options.expect_equal_every,
                       "; expected 0 (never) or a number of steps");
  }
  if (options.expect_equal_every > 0 && options.overflow_group &&
      !options.overflow_group->group()) {
    raise<ConfigError>(kInProperties,
                       "expect_equal_every compares the ranks of overflow_group, which is none(); "
                       "leave one of both unset");
  }
  if (options.explain_skips < 0) {
    raise<ConfigError>(kInProperties, "explain_skips is ", options.explain_skips,
                       "; expected 0 (never) or how many skipped steps are to be explained");
  }
  const auto check_scale = [](std::string_view name, double scale) {
    if (!(scale > 0) || !std::isfinite(static_cast<float>(scale)) ||
        static_cast<float>(scale) == 0) {
      raise<ConfigError>(kInProperties, name, " is ", scale,
                         "; expected a positive number that float can hold");
    }
  };
  if (options.min_loss_scale) check_scale("min_loss_scale", *options.min_loss_scale);
  check_scale("max_loss_scale", options.max_loss_scale);
  check_scale("init_loss_scale", options.init_loss_scale);
  if (options.verbosity < 0 || options.verbosity > 2) {
    raise<ConfigError>(kInProperties, "verbosity is ", options.verbosity, "; expected 0, 1 or 2");
  }
}

void plan_scaling(const amp::Options& options, Plan& plan) {
  const amp::LossScale& scale = plan.properties.loss_scale;
  plan.scale_rules.dynamic = scale.is_dynamic();
  plan.scale_rules.growth_interval = options.growth_interval;
  plan.scale_rules.floor = options.min_loss_scale.value_or(plan.scale_rules.floor);
  plan.scale_rules.ceiling = options.max_loss_scale;
  if (plan.scale_rules.floor > plan.scale_rules.ceiling) {
    raise<ConfigError>(kInProperties, "min_loss_scale ", plan.scale_rules.floor,
                       " is above max_loss_scale ", plan.scale_rules.ceiling);
  }
  plan.first_scale = scale.is_dynamic() ? options.init_loss_scale : scale.value();
  plan.check_finite = options.check_finite.value_or(plan.level->check_finite ||
                                                    scale.is_dynamic() || scale.value() != 1.0);
  if (scale.is_dynamic() && !plan.check_finite) {
    raise<ConfigError>(kInProperties,
                       "check_finite is off, but a dynamic loss scale moves by that check; "
                       "choose a static loss_scale");
  }
}

void print_properties(std::ostream& out, const amp::Properties& properties) {
  const auto row = [&](std::string_view name) -> std::ostream& {
    return out << "\n  " << std::left << std::setw(22) << name << ": ";
  };
  const auto tri = [](const std::optional<bool>& value) {
    return !value ? "none" : *value ? "true" : "false";
  };
  row("enabled") << (properties.enabled ? "true" : "false");
  row("opt_level") << properties.opt_level;
  if (!properties.cast_model_type) {
    row("cast_model_type") << "none";
  } else if (*properties.cast_model_type == at::ScalarType::Undefined) {
    row("cast_model_type") << "as it is";
  } else {
    row("cast_model_type") << *properties.cast_model_type;
  }
  row("patch_torch_functions") << (properties.patch_torch_functions ? "true" : "false");
  row("keep_batchnorm_fp32") << tri(properties.keep_batchnorm_fp32);
  row("master_weights") << tri(properties.master_weights);
  row("loss_scale") << properties.loss_scale.to_string();
}

}  // namespace

Plan resolve(const amp::Options& options) {
  Plan plan;
  plan.level = &level_named(options.opt_level);
  const Level& level = *plan.level;
  check_types(options, level);
  check_against_level(options, level);
  check_numbers(options);

  amp::Properties& properties = plan.properties;
  properties = defaults_of(level);
  properties.enabled = options.enabled;
  if (options.cast_model_type) properties.cast_model_type = options.cast_model_type;
  if (options.patch_torch_functions)
    properties.patch_torch_functions = *options.patch_torch_functions;
  if (options.keep_batchnorm_fp32) properties.keep_batchnorm_fp32 = options.keep_batchnorm_fp32;
  if (options.master_weights) properties.master_weights = options.master_weights;
  if (options.loss_scale) properties.loss_scale = *options.loss_scale;

  plan.low = scalar_type_of(level.low);
  plan.keep_types = properties.cast_model_type == at::ScalarType::Undefined;
  if (properties.cast_model_type && !plan.keep_types) plan.convert = properties.cast_model_type;
  plan.convert_doubles = options.cast_model_type.has_value();
  if (properties.patch_torch_functions) {
    plan.policy = options.policy ? *options.policy : Policy::defaults(plan.low);
  }
  plan.keep_batch_norms = properties.keep_batchnorm_fp32.value_or(false);
  plan.masters = properties.master_weights.value_or(false);
  check_split_masters(options, plan);
  plan.split_masters = options.split_masters;
  plan.outputs = options.cast_model_outputs;
  plan_scaling(options, plan);
  return plan;
}

std::string describe(const amp::Options& options, const Plan& plan, bool is_float64) {
  std::ostringstream text;
  text << "mezzo: optimization level " << plan.level->name << ": ";
  // Levels alone never cast doubles.
  if (is_float64 && !plan.convert_doubles) {
    text << "the network is float64 and stays so, whatever the level casts";
  } else {
    text << plan.level->brief;
  }
  const amp::Properties defaults = defaults_of(*plan.level);
  text << "\nmezzo: this level's defaults are";
  print_properties(text, defaults);
  if (!(defaults == plan.properties)) {
    text << "\nmezzo: after the options that were given";
    print_properties(text, plan.properties);
  }
  if (!options.keep_float.empty() && plan.convert) {
    text << "\nmezzo: these keep float:";
    for (const std::string& pattern : options.keep_float) text << " '" << pattern << "'";
  }
  if (plan.split_masters)
    text << "\nmezzo: masters are split: 16 bits beside each weight instead of a float";
  if (options.num_losses > 1)
    text << "\nmezzo: " << options.num_losses << " losses with a scale each";
  return text.str();
}

}  // namespace amp::detail

namespace amp {

Properties level_defaults(const std::string& opt_level) {
  return detail::defaults_of(level_named(opt_level));
}

}  // namespace amp
}  // namespace mezzo
