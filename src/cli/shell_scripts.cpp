#include "cli/shell_scripts.h"

#include <sstream>
#include <string_view>

namespace mezzo::cli {
namespace {

std::string joined_with(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

// Text between single quotes, with `escaped` characters behind a backslash.
std::string in_quotes(const std::string& text, std::string_view escaped, std::string_view quote) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += quote;
    } else {
      if (escaped.find(c) != std::string_view::npos) quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string bash_case(const ShellCommand& command) {
  std::ostringstream out;
  out << "      case $before in\n";
  std::vector<std::string> all;
  for (const ShellOption& option : command.options) {
    all.insert(all.end(), option.names.begin(), option.names.end());
    if (!option.value.is_taken) continue;
    out << "        " << joined_with(option.names, " | ")
        << ") kind=" << (option.value.is_file ? "files" : "words") << " words='"
        << joined_with(option.value.words, " ") << "' ;;\n";
  }
  out << "        *) kind=" << (command.takes_files ? "files" : "words") << " words='"
      << joined_with(command.words, " ") << "' options='" << joined_with(all, " ")
      << "' ;;\n      esac\n      ;;\n";
  return out.str();
}

// The value of an option in the words of zsh's _arguments.
std::string zsh_value(const ShellValue& value) {
  if (value.is_file) return ":file:_files";
  if (!value.words.empty()) return ":value:(" + joined_with(value.words, " ") + ")";
  return ":value:";
}

// Text between the brackets of _arguments, which brackets and colons would end.
std::string zsh_description(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') safe += '\\';
    safe += c;
  }
  return "[" + safe + "]";
}

void zsh_arguments(const ShellCommand& command, std::string_view indent, std::ostream& out) {
  for (const ShellOption& option : command.options) {
    for (const std::string& name : option.names) {
      const bool has_equals = option.value.is_taken && name.starts_with("--");
      const std::string value = option.value.is_taken ? zsh_value(option.value) : "";
      const std::string text =
          "*" + name + (has_equals ? "=" : "") + zsh_description(option.description) + value;
      out << " \\\n" << indent << in_quotes(text, "", "'\\''");
    }
  }
}

}  // namespace

std::string bash_script(const std::vector<ShellCommand>& commands) {
  std::ostringstream out;
  out << "# Completion of mezzo for bash, made by: mezzo completions bash\n"
         "_mezzo() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=\n"
         "  local kind=words words= options=\n"
         "  # bash takes the = of --option=value for a word.\n"
         "  if [[ $word == = ]]; then\n"
         "    word=\n"
         "  elif [[ $before == = ]]; then\n"
         "    before=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "  fi\n"
         "  [[ $COMP_CWORD -lt 2 ]] || command=${COMP_WORDS[1]}\n"
         "  case $command in\n"
         "    '')\n"
      << bash_case(commands[0]);
  for (std::size_t i = 1; i < commands.size(); ++i) {
    out << "    " << commands[i].name << ")\n" << bash_case(commands[i]);
  }
  out << "  esac\n"
         "  [[ $word != -* ]] || kind=words words=$options\n"
         "  if [[ $kind == files ]]; then\n"
         "    compopt -o filenames\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
         "  else\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "  fi\n"
         "}\n"
         "complete -F _mezzo mezzo\n";
  return out.str();
}

std::string zsh_script(const std::vector<ShellCommand>& commands) {
  std::ostringstream out;
  out << "#compdef mezzo\n"
         "# Completion of mezzo for zsh, made by: mezzo completions zsh\n"
         "_mezzo() {\n"
         "  local context state state_descr line\n"
         "  local -A opt_args\n"
         "  local -a commands=(\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    out << "    " << in_quotes(commands[i].name + ":" + commands[i].summary, "", "'\\''") << "\n";
  }
  out << "  )\n  _arguments -C";
  zsh_arguments(commands[0], "    ", out);
  out << " \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n"
         "  case $state in\n"
         "    command) _describe command commands ;;\n"
         "    argument)\n"
         "      case $words[1] in\n";
  for (std::size_t i = 1; i < commands.size(); ++i) {
    out << "        " << commands[i].name << ")\n          _arguments";
    zsh_arguments(commands[i], "            ", out);
    if (!commands[i].words.empty()) {
      out << " \\\n            '1:word:(" << joined_with(commands[i].words, " ") << ")'";
    } else {
      out << " \\\n            '*:argument:" << (commands[i].takes_files ? "_files" : "_default")
          << "'";
    }
    out << "\n          ;;\n";
  }
  out << "      esac\n"
         "      ;;\n"
         "  esac\n"
         "}\n"
         "# Sourced by hand it registers itself; found by the completion system it is called.\n"
         "if [[ $funcstack[1] == _mezzo ]]; then _mezzo \"$@\"; else compdef _mezzo mezzo; fi\n";
  return out.str();
}

std::string fish_script(const std::vector<ShellCommand>& commands) {
  std::ostringstream out;
  const auto quoted = [](const std::string& text) { return in_quotes(text, "\\", "\\'"); };
  out << "# Completion of mezzo for fish, made by: mezzo completions fish\n";
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const ShellCommand& command = commands[i];
    const std::string where =
        "complete -c mezzo -n '" +
        (i == 0 ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + command.name) + "'";
    if (i != 0) {
      out << "complete -c mezzo -n '__fish_use_subcommand' -f -a " << command.name << " -d "
          << quoted(command.summary) << "\n";
      if (!command.takes_files) out << where << " -f\n";
      if (!command.words.empty()) {
        out << where << " -a '" << joined_with(command.words, " ") << "'\n";
      }
    }
    for (const ShellOption& option : command.options) {
      out << where;
      for (const std::string& name : option.names) {
        out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
      }
      if (option.value.is_taken) out << (option.value.is_file ? " -r -F" : " -x");
      if (option.value.is_taken && !option.value.words.empty()) {
        out << " -a '" << joined_with(option.value.words, " ") << "'";
      }
      out << " -d " << quoted(option.description) << "\n";
    }
  }
  return out.str();
}

}  // namespace mezzo::cli
