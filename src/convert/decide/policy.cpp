#include "convert/decide/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "convert/decide/pin_context.h"
#include "convert/decide/profile.h"
#include "convert/onnx/concat.h"
#include "convert/standard/operator_facts.h"
#include "convert/standard/schema.h"
#include "core/glob.h"
#include "core/nearest.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

Element parse_low(const std::string& name) {
  const auto low = parse_element(name);
  if (low != Element::kFloat16 && low != Element::kBFloat16) {
    raise<ConfigError>("convert", "target_dtype '", name, "'; expected float16 or bfloat16",
                       did_you_mean(name, std::array<std::string_view, 2>{"float16", "bfloat16"}));
  }
  return *low;
}

bool knows_attribute(std::string_view op, std::string_view attribute) {
  return std::ranges::any_of(all_schemas(), [&](const Schema& schema) {
    return schema.name == op && schema.attribute(attribute) != nullptr;
  });
}

std::string nearest_attribute(std::string_view op, std::string_view attribute) {
  std::vector<std::string_view> names;
  for (const Schema& schema : all_schemas()) {
    if (schema.name != op) continue;
    for (const AttributeFact& each : schema.attributes) names.emplace_back(each.name);
  }
  return did_you_mean(attribute, names);
}

std::string nearest_operator(std::string_view op) {
  std::vector<std::string_view> names;
  for (const Schema& schema : all_schemas()) names.emplace_back(schema.name);
  return did_you_mean(op, names);
}

/// The names in "keep, low".
std::vector<std::string_view> listed(std::string_view names) {
  std::vector<std::string_view> list;
  for (;;) {
    const std::size_t comma = names.find(", ");
    list.push_back(names.substr(0, comma));
    if (comma == std::string_view::npos) return list;
    names.remove_prefix(comma + 2);
  }
}

void check_opset(const std::string& opset) {
  if (opset == "keep" || opset == "auto") return;
  const bool is_number = !opset.empty() && opset.size() < 4 &&
                         std::ranges::all_of(opset, [](char c) { return c >= '0' && c <= '9'; });
  const int number = is_number ? std::stoi(opset) : 0;
  if (number < 1 || number > newest_opset()) {
    raise<ConfigError>("convert", "opset '", opset, "'; expected keep, auto or 1 to ",
                       newest_opset(), did_you_mean(opset, listed("keep, auto")));
  }
}

void check_choices(const Options& options) {
  const auto one_of = [](std::string_view what, const std::string& value,
                         std::initializer_list<std::string_view> choices) {
    if (std::ranges::find(choices, value) != choices.end()) return;
    std::string list;
    for (const std::string_view choice : choices)
      list += concat({list.empty() ? "" : ", ", choice});
    raise<ConfigError>("convert", what, " '", value, "'; expected one of ", list,
                       did_you_mean(value, std::vector<std::string_view>(choices)));
  };
  one_of("io", options.io, {"keep", "low"});
  one_of("verify", options.verify, {"none", "load", "run", "compare"});
  if (find_profile(options.profile) == nullptr) {
    const std::string names = profile_names();
    raise<ConfigError>("convert", "profile '", options.profile, "'; expected one of ", names,
                       did_you_mean(options.profile, listed(names)));
  }
  std::string pins;
  for (const PinRule& rule : pin_rules()) pins += concat({pins.empty() ? "" : ", ", rule.name});
  for (const std::string& name : options.without_pins) {
    if (std::ranges::find(pin_rules(), std::string_view(name), &PinRule::name) == pin_rules().end())
      raise<ConfigError>("convert", "without_pins names '", name, "'; expected some of ", pins,
                         did_you_mean(name, listed(pins)));
  }
  check_opset(options.opset);
  if (!(options.headroom >= 1 && options.headroom <= 65504)) {
    raise<ConfigError>("convert", "headroom ", options.headroom, "; expected 1 to 65504");
  }
  if (options.tolerance && !(*options.tolerance > 0)) {
    raise<ConfigError>("convert", "tolerance ", *options.tolerance, "; expected a positive number");
  }
  if (!options.check.empty() && options.check.find("{}") == std::string::npos) {
    raise<ConfigError>("convert", "check '", options.check,
                       "'; expected a command with {} where the model's path is to stand");
  }
  if (options.attempts < 1) {
    raise<ConfigError>("convert", "attempts ", options.attempts, "; expected a positive number");
  }
  if (options.time_limit && !(*options.time_limit > 0)) {
    raise<ConfigError>("convert", "time_limit ", *options.time_limit,
                       "; expected a positive number of seconds");
  }
}

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) raise<ConfigError>("convert", "cannot read '", path.string(), "'");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Names may have colons of their own; the last one counts.
InputPattern parse_input(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string_view digits =
      colon == std::string::npos ? "" : std::string_view(text).substr(colon + 1);
  int index = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (colon == 0 || digits.empty() || read.ec != std::errc() ||
      read.ptr != digits.data() + digits.size() || index < 0) {
    raise<ConfigError>("convert", "excluded_inputs has '", text,
                       "'; expected NODE:INDEX or OP:INDEX, such as Gather:0");
  }
  return {NamePattern(text.substr(0, colon)), index, text};
}

}  // namespace

NamePattern::NamePattern(std::string text) : text_(std::move(text)) {
  if (text_.empty()) raise<ConfigError>("convert", "a name pattern is empty");
  const bool is_regex = text_.size() > 2 && text_.front() == '/' && text_.back() == '/';
  if (!is_regex && text_.find_first_of("*?") == std::string::npos) return;
  expression_ = is_regex ? text_.substr(1, text_.size() - 2) : expression_of_glob(text_);
  try {
    std::regex(expression_, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    raise<ConfigError>("convert", "'", text_, "' is no regular expression: ", error.what());
  }
}

bool NamePattern::matches(std::string_view name) const {
  if (name == text_) return true;
  if (expression_.empty()) return false;
  // Compiling costs far more than matching.
  thread_local std::map<std::string, std::regex, std::less<>> compiled;
  auto found = compiled.find(expression_);
  if (found == compiled.end()) found = compiled.emplace(expression_, std::regex(expression_)).first;
  return std::regex_match(name.begin(), name.end(), found->second);
}

ConvertPolicy::ConvertPolicy(const Options& options, std::vector<std::string> custom_texts)
    : options_(options),
      low_(parse_low(options.target_dtype)),
      custom_texts_(std::move(custom_texts)) {
  check_choices(options);
  read_custom_operators();
  for (const OperatorFacts& facts : operator_facts()) {
    classes_[std::string(facts.op)] = {default_class(facts.op, low_), Level::kDefault,
                                       default_reason(facts.op, low_)};
  }
  read_list(options.target_dtype_ops, CastClass::kLow, "target_dtype_ops");
  read_list(options.fp32_ops, CastClass::kFloat, "fp32_ops");
  read_list(options.widest_dtype_ops, CastClass::kPromote, "widest_dtype_ops");
  conditions_ =
      options.conditional_fp32_ops.value_or(list_conditional_fp32_ops(options.target_dtype));
  for (const Conditional& condition : conditions_) {
    check_operator(condition.op, "conditional_fp32_ops");
    if (is_known_operator(condition.op) && !knows_attribute(condition.op, condition.attribute)) {
      raise<ConfigError>("convert", "conditional_fp32_ops names the attribute '",
                         condition.attribute, "', which ", condition.op, " has in no opset",
                         nearest_attribute(condition.op, condition.attribute));
    }
    const ClassOf listed = class_of(condition.op);
    if (options.conditional_fp32_ops && listed.level == Level::kList) {
      raise<ConfigError>("convert", "'", condition.op, "' is in conditional_fp32_ops and ",
                         listed.why);
    }
  }
  profile_ = find_profile(options.profile);
  for (const std::string& name : options.excluded_names) excluded_.emplace_back(name);
  for (const std::string& name : options.included_names) included_.emplace_back(name);
  for (const std::string& name : options.excluded_tensors) excluded_tensors_.emplace_back(name);
  for (const std::string& text : options.excluded_inputs)
    excluded_inputs_.push_back(parse_input(text));
  for (const auto& [from, to] : options.excluded_regions)
    excluded_regions_.push_back({NamePattern(from), NamePattern(to)});
  for (const auto& [name, dtype] : options.io_of) {
    const auto element = parse_element(dtype);
    if (element != Element::kFloat && element != low_) {
      raise<ConfigError>("convert", "io_of '", name, "' asks for '", dtype,
                         "'; expected float32 or ", options.target_dtype);
    }
  }
}

void ConvertPolicy::read_custom_operators() {
  if (options_.custom_operators.empty() && custom_texts_.empty()) {
    custom_ = {&CustomOperators::built_in(), [](const CustomOperators*) {}};
    return;
  }
  auto custom = std::make_shared<CustomOperators>();
  for (const std::string& text : custom_texts_) custom->add(text, "plan");
  for (const std::filesystem::path& path : options_.custom_operators) {
    custom_texts_.push_back(text_of_file(path));
    custom->add(custom_texts_.back(), path.string());
  }
  custom_ = std::move(custom);
}

void ConvertPolicy::check_operator(const std::string& op, std::string_view option) {
  if (is_known_operator(op) || custom_->find(op) != nullptr) return;
  if (options_.allow_unknown_ops) {
    warnings_.push_back(concat({option, " names '", op, "', which nothing describes"}));
    return;
  }
  raise<ConfigError>("convert", option, " names '", op, "', which no ONNX opset up to ",
                     newest_opset(), " knows and no file of custom operators describes",
                     nearest_operator(op));
}

void ConvertPolicy::read_list(const std::optional<std::vector<std::string>>& list, CastClass cast,
                              std::string_view option) {
  if (!list) return;
  const auto is_edit = [](const std::string& entry) {
    return !entry.empty() && (entry[0] == '+' || entry[0] == '-');
  };
  const bool edits = !list->empty() && std::ranges::all_of(*list, is_edit);
  if (!edits && std::ranges::any_of(*list, is_edit)) {
    raise<ConfigError>("convert", option,
                       " mixes names with +Op and -Op: either replace the list or edit it");
  }
  if (!edits) {
    replaced_.insert(cast);
    std::erase_if(classes_, [&](const auto& entry) {
      return entry.second.cast == cast && entry.second.level == Level::kDefault;
    });
  }
  for (const std::string& entry : *list) {
    const std::string op = edits ? entry.substr(1) : entry;
    check_operator(op, option);
    if (const CustomOperator* custom = custom_->find(op);
        custom != nullptr && !replaced_.contains(custom->cast))
      classes_.try_emplace(op, ClassOf{custom->cast, Level::kDefault, std::string(custom->why)});
    const auto found = classes_.find(op);
    if (edits && entry[0] == '-') {
      if (found == classes_.end() || found->second.cast != cast) {
        raise<ConfigError>("convert", option, " takes '", op, "' out, which is not in that list");
      }
      found->second = {CastClass::kNeutral, Level::kDefault, "follows its neighbours"};
      continue;
    }
    if (found != classes_.end() && found->second.level == Level::kList &&
        found->second.cast != cast) {
      raise<ConfigError>("convert", "'", op, "' is in ", option, " and ", found->second.why);
    }
    classes_[op] = {cast, Level::kList, concat({"in ", option})};
  }
}

bool ConvertPolicy::avoids_joins() const {
  return low_ == Element::kFloat16 && profile_->avoids_joins;
}

bool ConvertPolicy::is_without(std::string_view pin) const {
  return std::ranges::find(options_.without_pins, pin) != options_.without_pins.end();
}

ClassOf ConvertPolicy::class_of(std::string_view op) const {
  const auto found = classes_.find(op);
  if (found != classes_.end()) return found->second;
  const CustomOperator* custom = find_facts(op) == nullptr ? custom_->find(op) : nullptr;
  if (custom != nullptr && !replaced_.contains(custom->cast))
    return {custom->cast, Level::kDefault, std::string(custom->why)};
  return {CastClass::kNeutral, Level::kDefault, "follows its neighbours"};
}

CastClass ConvertPolicy::default_class_of(std::string_view op) const {
  const CustomOperator* custom = find_facts(op) == nullptr ? custom_->find(op) : nullptr;
  return custom == nullptr ? default_class(op, low_) : custom->cast;
}

Label ConvertPolicy::io_label(const std::string& name) const {
  const auto found = options_.io_of.find(name);
  if (found != options_.io_of.end()) {
    return parse_element(found->second) == low_ ? Label::kLow : Label::kHigh;
  }
  return options_.io == "low" ? Label::kLow : Label::kHigh;
}

namespace {

std::vector<std::string> ops_of(CastClass cast, std::string_view dtype) {
  const Element low = parse_low(std::string(dtype));
  std::set<std::string> ops;
  for (const Schema& schema : all_schemas()) {
    if (schema.domain.empty() && !schema.is_deprecated && default_class(schema.name, low) == cast) {
      ops.emplace(schema.name);
    }
  }
  return {ops.begin(), ops.end()};
}

}  // namespace

std::vector<std::string> list_lp16_ops(std::string_view dtype) {
  return ops_of(CastClass::kLow, dtype);
}

std::vector<std::string> list_fp32_ops(std::string_view dtype) {
  return ops_of(CastClass::kFloat, dtype);
}

std::vector<std::string> list_lp16_fp32_ops(std::string_view dtype) {
  return ops_of(CastClass::kNeutral, dtype);
}

std::vector<std::string> list_widest_type_cast(std::string_view dtype) {
  return ops_of(CastClass::kPromote, dtype);
}

std::vector<Conditional> list_conditional_fp32_ops(std::string_view dtype) {
  parse_low(std::string(dtype));
  return {{"BatchNormalization", "training_mode", {"1"}}, {"Resize", "mode", {"cubic"}}};
}

}  // namespace mezzo::convert
