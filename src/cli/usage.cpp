#include "cli/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "core/nearest.h"

namespace mezzo::cli {
namespace {

std::string unknown(std::string_view what, std::string_view word,
                    const std::vector<std::string>& known) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  return "unknown " + std::string(what) + " '" + std::string(word) + "'" +
         did_you_mean(word, names);
}

std::vector<std::string> names_of_commands() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::string unknown_words(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  const CLI::App& at = parsed.empty() ? app : *parsed.back();
  std::vector<std::string> words = at.remaining();
  words.erase(std::ranges::find(words, "--"), words.end());  // behind it is what others read
  if (words.empty()) return {};
  const std::string where = parsed.empty() ? "mezzo: " : "mezzo " + at.get_name() + ": ";
  // An unknown option leaves its value over too, or takes a place that was another word's.
  const auto option =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (option != words.end()) {
    const std::string name = option->substr(0, option->find('='));
    return where + unknown("option", name, names_of_options(at));
  }
  if (parsed.empty()) return where + unknown("command", words.front(), names_of_commands());
  return where + "unexpected argument '" + words.front() + "'";
}

}  // namespace mezzo::cli
