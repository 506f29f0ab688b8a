// mezzo completions
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/shell_scripts.h"
#include "cli/word_option.h"

namespace mezzo::cli {
namespace {

std::vector<std::string> split_at(std::string_view text, char at) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool is_word(const std::string& text) {
  return std::ranges::any_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

// A value's type is shown in help as FILE, as a|b|N, or, with CLI11's own check, as TEXT:{a,b}.
ShellValue value_of(const CLI::Option& option) {
  ShellValue value;
  if (option.get_items_expected_max() == 0) return value;
  const std::string type = option.get_type_name();
  value.is_taken = option.get_items_expected_min() != 0;
  value.is_file = type == "FILE" || type == "[FILE]" || type == "OUT" || type == "PATH";
  const std::size_t brace = type.find(":{");
  if (brace != std::string::npos) {
    value.words = split_at(type.substr(brace + 2, type.find('}', brace) - brace - 2), ',');
  } else if (type.find('|') != std::string::npos) {
    value.words = split_at(type, '|');
  }
  std::erase_if(value.words, [](const std::string& word) { return !is_word(word); });
  return value;
}

ShellOption option_of(const CLI::Option& option) {
  ShellOption described{.description = option.get_description(), .value = value_of(option)};
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    // Names with underscores are there for those who know them from other programs.
    if (name.find('_') == std::string::npos) described.names.push_back("--" + name);
  }
  return described;
}

ShellCommand command_of(const CLI::App& app) {
  ShellCommand command;
  command.name = app.get_name();
  command.summary = app.get_description().substr(0, app.get_description().find('\n'));
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      const ShellValue value = value_of(*option);
      command.takes_files |= value.is_file;
      command.words.insert(command.words.end(), value.words.begin(), value.words.end());
    } else {
      command.options.push_back(option_of(*option));
    }
  }
  return command;
}

int print_script(const CLI::App& program, const std::string& shell) {
  std::vector<ShellCommand> all{command_of(program)};
  for (const CLI::App* sub : program.get_subcommands([](const CLI::App*) { return true; })) {
    all.push_back(command_of(*sub));
    all.front().words.push_back(sub->get_name());
  }
  if (shell == "bash") {
    std::cout << bash_script(all);
  } else if (shell == "zsh") {
    std::cout << zsh_script(all);
  } else {
    std::cout << fish_script(all);
  }
  return kDone;
}

}  // namespace

Action setup_completions(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "Whose script to print")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(one_of({"bash", "zsh", "fish"}).description(""));
  return [&app, shell] { return print_script(*app.get_parent(), *shell); };
}

}  // namespace mezzo::cli
