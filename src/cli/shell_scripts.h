// Scripts by which shells complete the words of this program, written from its description.
#pragma once

#include <string>
#include <vector>

namespace mezzo::cli {

struct ShellValue {
  bool is_taken = false;  ///< the word behind the option is its value
  bool is_file = false;
  std::vector<std::string> words = {};  ///< what it may be; empty: anything
};

struct ShellOption {
  std::vector<std::string> names = {};  ///< with their dashes
  std::string description;
  ShellValue value = {};
};

struct ShellCommand {
  std::string name;
  std::string summary;
  bool takes_files = false;             ///< words that belong to no option are files
  std::vector<std::string> words = {};  ///< or these
  std::vector<ShellOption> options = {};
};

/// `commands` are the program itself, and behind it its commands.
std::string bash_script(const std::vector<ShellCommand>& commands);
std::string zsh_script(const std::vector<ShellCommand>& commands);
std::string fish_script(const std::vector<ShellCommand>& commands);

}  // namespace mezzo::cli
