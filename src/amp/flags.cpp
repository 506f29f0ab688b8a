#include <charconv>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/nearest.h"
#include "core/raise.h"
#include "core/scalar_type.h"
#include "core/torch.h"
#include "mezzo/options.h"

namespace mezzo::amp {
namespace {

constexpr std::string_view kInFlags = "flags";

[[noreturn]] void refuse(const std::string& key, const std::string& value,
                         std::string_view expected) {
  raise<ConfigError>(kInFlags, key, " is '", value, "'; expected ", expected, ", or None");
}

bool to_bool(const std::string& key, const std::string& value) {
  if (value == "True" || value == "true" || value == "1") return true;
  if (value == "False" || value == "false" || value == "0") return false;
  refuse(key, value, "True or False");
}

template <typename Number>
Number to_number(const std::string& key, const std::string& value) {
  Number number{};
  const char* end = value.data() + value.size();
  const auto [stop, failure] = std::from_chars(value.data(), end, number);
  if (failure != std::errc() || stop != end) refuse(key, value, "a number");
  return number;
}

/// "float16", "torch.float16", "half"; "False" is Apex's word for "do not cast".
at::ScalarType to_type(const std::string& key, const std::string& value) {
  if (value == "False" || value == "false") return at::ScalarType::Undefined;
  std::string_view name = value;
  if (name.starts_with("torch.")) name.remove_prefix(6);
  const std::optional<DType> type = parse_dtype(name);
  if (type && row_of(*type).is_float) return scalar_type_of(*type);
  refuse(key, value, floating_type_names(&DTypeRow::name) + " or False");
}

Policy read_policy(const std::string& path) {
  std::ifstream file(path);
  if (!file) raise<ConfigError>(kInFlags, "cannot read the policy file '", path, "'");
  return Policy::from_toml(file, path);
}

std::vector<std::string> split_at_commas(const std::string& value) {
  std::vector<std::string> parts;
  std::istringstream words(value);
  for (std::string part; std::getline(words, part, ',');) parts.push_back(part);
  return parts;
}

using Setter = std::function<void(Options&, const std::string& key, const std::string& value)>;

const std::map<std::string, Setter>& setters() {
  using S = const std::string&;
  static const std::map<std::string, Setter> table{
      {"enabled", [](Options& o, S k, S v) { o.enabled = to_bool(k, v); }},
      {"opt_level", [](Options& o, S, S v) { o.opt_level = v; }},
      {"cast_model_type", [](Options& o, S k, S v) { o.cast_model_type = to_type(k, v); }},
      {"patch_torch_functions",
       [](Options& o, S k, S v) { o.patch_torch_functions = to_bool(k, v); }},
      {"keep_batchnorm_fp32", [](Options& o, S k, S v) { o.keep_batchnorm_fp32 = to_bool(k, v); }},
      {"master_weights", [](Options& o, S k, S v) { o.master_weights = to_bool(k, v); }},
      {"loss_scale", [](Options& o, S, S v) { o.loss_scale = LossScale(v); }},
      {"cast_model_outputs", [](Options& o, S k, S v) { o.cast_model_outputs = to_type(k, v); }},
      {"num_losses", [](Options& o, S k, S v) { o.num_losses = to_number<int>(k, v); }},
      {"min_loss_scale", [](Options& o, S k, S v) { o.min_loss_scale = to_number<double>(k, v); }},
      {"max_loss_scale", [](Options& o, S k, S v) { o.max_loss_scale = to_number<double>(k, v); }},
      {"init_loss_scale",
       [](Options& o, S k, S v) { o.init_loss_scale = to_number<double>(k, v); }},
      {"growth_interval", [](Options& o, S k, S v) { o.growth_interval = to_number<int>(k, v); }},
      {"verbosity", [](Options& o, S k, S v) { o.verbosity = to_number<int>(k, v); }},
      {"split_masters", [](Options& o, S k, S v) { o.split_masters = to_bool(k, v); }},
      {"defer_unscale", [](Options& o, S k, S v) { o.defer_unscale = to_bool(k, v); }},
      {"check_finite", [](Options& o, S k, S v) { o.check_finite = to_bool(k, v); }},
      {"protect_batchnorm", [](Options& o, S k, S v) { o.protect_batchnorm = to_bool(k, v); }},
      {"protect_rng", [](Options& o, S k, S v) { o.protect_rng = to_bool(k, v); }},
      {"expect_equal_every",
       [](Options& o, S k, S v) { o.expect_equal_every = to_number<int>(k, v); }},
      {"keep_float", [](Options& o, S, S v) { o.keep_float = split_at_commas(v); }},
      {"explain_skips", [](Options& o, S k, S v) { o.explain_skips = to_number<int>(k, v); }},
      {"policy", [](Options& o, S, S v) { o.policy = read_policy(v); }},
  };
  return table;
}

std::string names() {
  std::string text;
  for (const auto& [name, setter] : setters()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Options Options::from_flags(const std::map<std::string, std::string>& flags) {
  Options options;
  for (const auto& [key, value] : flags) {
    const auto setter = setters().find(key);
    if (setter == setters().end()) {
      std::vector<std::string_view> known;
      for (const auto& [name, set] : setters()) known.push_back(name);
      raise<ConfigError>(kInFlags, "unknown option '", key, "'; expected one of ", names(),
                         did_you_mean(key, known));
    }
    if (value != "None") setter->second(options, key, value);
  }
  return options;
}

}  // namespace mezzo::amp
