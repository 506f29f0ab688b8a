#include "convert/options_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/nearest.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

using OptionJson = nlohmann::json;

void read_member(const OptionJson& json, std::vector<std::filesystem::path>& paths) {
  const auto texts = json.get<std::vector<std::string>>();
  paths.assign(texts.begin(), texts.end());
}

void read_member(const OptionJson& json, std::filesystem::path& path) {
  path = json.get<std::string>();
}

void read_member(const OptionJson& json, std::optional<std::vector<Conditional>>& conditions) {
  conditions.emplace();
  for (const OptionJson& condition : json) {
    conditions->push_back({condition.at(0).get<std::string>(), condition.at(1).get<std::string>(),
                           condition.at(2).get<std::vector<std::string>>()});
  }
}

template <typename T>
void read_member(const OptionJson& json, std::optional<T>& value) {
  value = json.get<T>();
}

template <typename T>
void read_member(const OptionJson& json, T& value) {
  json.get_to(value);
}

template <typename Whole>
struct Member {
  const char* name;
  const char* expected;
  void (*read)(const OptionJson&, Whole&);
};

constexpr const char* kText = "a text";
constexpr const char* kTexts = "an array of texts";
constexpr const char* kNumber = "a number";
constexpr const char* kBool = "true or false";

// NOLINTBEGIN(bugprone-macro-parentheses): `whole` is a type
#define MEZZO_MEMBER(whole, name, expected)                                                  \
  Member<whole> {                                                                            \
#name, expected, [](const OptionJson& json, whole& all) { read_member(json, all.name); } \
  }
// NOLINTEND(bugprone-macro-parentheses)

constexpr std::array kMembersOfOptions{
    MEZZO_MEMBER(Options, target_dtype, kText),
    MEZZO_MEMBER(Options, target_dtype_ops, kTexts),
    MEZZO_MEMBER(Options, fp32_ops, kTexts),
    MEZZO_MEMBER(Options, widest_dtype_ops, kTexts),
    MEZZO_MEMBER(Options, conditional_fp32_ops, "an array of [operator, attribute, [value, ...]]"),
    MEZZO_MEMBER(Options, excluded_names, kTexts),
    MEZZO_MEMBER(Options, included_names, kTexts),
    MEZZO_MEMBER(Options, excluded_tensors, kTexts),
    MEZZO_MEMBER(Options, excluded_inputs, kTexts),
    MEZZO_MEMBER(Options, excluded_regions, "an array of [from, to]"),
    MEZZO_MEMBER(Options, custom_operators, kTexts),
    MEZZO_MEMBER(Options, allow_unknown_ops, kBool),
    MEZZO_MEMBER(Options, cast_optional_params, kBool),
    MEZZO_MEMBER(Options, io, kText),
    MEZZO_MEMBER(Options, io_of, "an object of texts"),
    MEZZO_MEMBER(Options, profile, kText),
    MEZZO_MEMBER(Options, opset, kText),
    MEZZO_MEMBER(Options, calibration, kTexts),
    MEZZO_MEMBER(Options, headroom, kNumber),
    MEZZO_MEMBER(Options, verify, kText),
    MEZZO_MEMBER(Options, tolerance, kNumber),
    MEZZO_MEMBER(Options, check, kText),
    MEZZO_MEMBER(Options, attempts, kNumber),
    MEZZO_MEMBER(Options, time_limit, kNumber),
    MEZZO_MEMBER(Options, evaluator, kText),
    MEZZO_MEMBER(Options, onnxruntime, kText),
    MEZZO_MEMBER(Options, weights_only, kBool),
    MEZZO_MEMBER(Options, clamp_weights, kBool),
    MEZZO_MEMBER(Options, raise_epsilons, kBool),
    MEZZO_MEMBER(Options, fold_batch_norm, kBool),
    MEZZO_MEMBER(Options, without_pins, kTexts),
};

constexpr std::array kMembersOfJudges{
    MEZZO_MEMBER(Judges, verify, kText),      MEZZO_MEMBER(Judges, calibration, kTexts),
    MEZZO_MEMBER(Judges, tolerance, kNumber), MEZZO_MEMBER(Judges, check, kText),
    MEZZO_MEMBER(Judges, evaluator, kText),   MEZZO_MEMBER(Judges, onnxruntime, kText),
};

#undef MEZZO_MEMBER

template <typename Whole, std::size_t N>
Whole read_members(const std::string& text, const std::array<Member<Whole>, N>& members) {
  const OptionJson json = OptionJson::parse(text, nullptr, false);
  if (!json.is_object()) raise<ConfigError>("convert", "options are no JSON object: ", text);
  Whole whole;
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const auto member =
        std::find_if(members.begin(), members.end(), [&](const auto& m) { return name == m.name; });
    if (member == members.end()) {
      std::vector<std::string_view> names;
      names.reserve(members.size());
      for (const auto& m : members) names.emplace_back(m.name);
      raise<ConfigError>("convert", "unknown option '", name, "'", did_you_mean(name, names));
    }
    try {
      member->read(item.value(), whole);
    } catch (const OptionJson::exception&) {
      raise<ConfigError>("convert", "Options::", name, " is ", item.value().dump(), "; expected ",
                         member->expected);
    }
  }
  return whole;
}

}  // namespace

Options options_from_json(const std::string& text) {
  return read_members(text, kMembersOfOptions);
}

Judges judges_from_json(const std::string& text) {
  return read_members(text, kMembersOfJudges);
}

}  // namespace mezzo::convert
