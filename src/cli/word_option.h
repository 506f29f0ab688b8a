// Options that take one of a few words.
#pragma once

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/nearest.h"

namespace mezzo::cli {

/// "'flaot' is none of low, float, promote; did you mean 'float'?"
inline std::string none_of(const std::string& word, const std::vector<std::string>& words) {
  std::string text = "'" + word + "' is none of ";
  for (const std::string& each : words) text += (&each == words.data() ? "" : ", ") + each;
  return text + did_you_mean(word, std::vector<std::string_view>(words.begin(), words.end()));
}

/// Accepts these words alone; another one is answered with the nearest of them.
inline CLI::Validator one_of(std::vector<std::string> words) {
  std::string listed;
  for (const std::string& each : words) listed += (listed.empty() ? "" : ",") + each;
  return {[words = std::move(words)](const std::string& word) {
            return std::ranges::find(words, word) == words.end() ? none_of(word, words)
                                                                 : std::string();
          },
          "{" + listed + "}", "one_of"};
}

}  // namespace mezzo::cli
