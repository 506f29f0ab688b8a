#include "cli/option_names.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace mezzo::cli {
namespace {

// Fields whose flag is another word.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFlags{{
    {"custom_operators", "custom-ops"},
    {"excluded_names", "exclude"},
    {"excluded_tensors", "exclude-tensor"},
    {"excluded_inputs", "exclude-input"},
    {"excluded_regions", "exclude-region"},
    {"included_names", "include"},
    {"target_dtype", "dtype"},
    {"without_pins", "without-pin"},
}};

std::string flag_of(std::string_view field) {
  const auto* found =
      std::ranges::find(kFlags, field, &std::pair<std::string_view, std::string_view>::first);
  std::string flag(found == kFlags.end() ? field : found->second);
  std::ranges::replace(flag, '_', '-');
  return "--" + flag;
}

}  // namespace

std::string in_flags(std::string text) {
  constexpr std::string_view kOption = "Options::";
  for (std::size_t at = text.find(kOption); at != std::string::npos; at = text.find(kOption, at)) {
    std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + kOption.size());
    if (end == std::string::npos) end = text.size();
    const std::string flag =
        flag_of(std::string_view(text).substr(at + kOption.size(), end - at - kOption.size()));
    // A value in quotes stands as it is typed.
    if (text.compare(end, 2, " '") == 0) {
      const std::size_t close = text.find('\'', end + 2);
      if (close != std::string::npos) {
        text.erase(close, 1);
        text.erase(end + 1, 1);
      }
    }
    text.replace(at, end - at, flag);
    at += flag.size();
  }
  return text;
}

std::vector<std::string> with_joined_edits(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 3> kLists{"--target-ops", "--fp32-ops", "--widest-ops"};
  const auto is_edit = [](const std::string& word) {
    return word.size() > 1 && (word[0] == '+' || word[0] == '-') && word[1] >= 'A' &&
           word[1] <= 'Z';
  };
  std::vector<std::string> joined;
  bool is_list = false;  // the word before belongs to a list that edits may go on
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_list && is_edit(words[i])) {
      joined.back() += "," + words[i];
      continue;
    }
    joined.push_back(words[i]);
    const std::string_view name = std::string_view(words[i]).substr(0, words[i].find('='));
    is_list = std::ranges::find(kLists, name) != kLists.end();
    const bool has_value = name.size() != words[i].size();
    if (is_list && !has_value && i + 1 < words.size()) joined.push_back(words[++i]);
  }
  return joined;
}

}  // namespace mezzo::cli
