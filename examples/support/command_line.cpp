#include "support/command_line.h"

#include <mezzo/error.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <sstream>
#include <utility>

#include "support/process.h"

namespace examples {

namespace {

/// "batchSize" and "batch_size" as "batch-size".
std::string normalized(const std::string& name) {
  std::string result;
  for (const char c : name) {
    const bool capital = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (capital) result += '-';
    result += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

[[noreturn]] void wrong(const std::string& text) {
  throw mezzo::ConfigError(text);
}

struct Assign {
  const std::string& name;
  const std::string& value;

  void operator()(std::string* target) const { *target = value; }
  void operator()(int* target) const {
    const char* end = value.data() + value.size();
    const auto [rest, failure] = std::from_chars(value.data(), end, *target);
    if (failure != std::errc() || rest != end)
      wrong("--" + name + ": '" + value + "' is no whole number");
  }
  void operator()(double* target) const {
    char* rest = nullptr;
    *target = std::strtod(value.c_str(), &rest);
    if (value.empty() || *rest != '\0' || !std::isfinite(*target)) {
      wrong("--" + name + ": '" + value + "' is no number");
    }
  }
  void operator()(bool* target) const {
    const bool yes = value == "true" || value == "True" || value == "1";
    if (!yes && value != "false" && value != "False" && value != "0") {
      wrong("--" + name + ": '" + value + "' is neither true nor false");
    }
    *target = yes;
  }
};

struct Default {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const int* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const {
    std::ostringstream text;
    text << *value;
    return text.str();
  }
  std::string operator()(const bool*) const { return ""; }
};

}  // namespace

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

CommandLine::CommandLine(std::string program, std::string purpose)
    : program_(std::move(program)), purpose_(std::move(purpose)) {}

CommandLine::Option& CommandLine::find(const std::string& name) {
  for (Option& option : options_) {
    const bool is_it = option.name == normalized(name) ||
                       std::ranges::find(option.aliases, name) != option.aliases.end();
    if (!option.bare && is_it) return option;
  }
  const auto nearest = std::ranges::min_element(
      options_, {}, [&](const Option& option) { return edit_distance(option.name, name); });
  wrong("unknown option '--" + name + "'" +
        (nearest == options_.end() ? "" : "; did you mean '--" + nearest->name + "'?") +
        " --help lists all");
}

void CommandLine::take_word(const std::string& word) {
  for (Option& option : options_) {
    if (!option.bare || option.given) continue;
    std::visit(Assign{option.name, word}, option.target);
    option.given = true;
    option.value = word;
    return;
  }
  wrong("unexpected '" + word + "'; options begin with --, --help lists all");
}

bool CommandLine::parse(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::cout << help();
      return false;
    }
    const bool is_letter = name.size() > 1 && name[0] == '-' &&
                           std::isalpha(static_cast<unsigned char>(name[1])) != 0 &&
                           (name.size() == 2 || name[2] == '=');
    if (!is_letter && name.rfind("--", 0) != 0) {
      take_word(name);
      continue;
    }
    name.erase(0, is_letter ? 1 : 2);
    const std::size_t equals = name.find('=');
    std::string value = equals == std::string::npos ? "" : name.substr(equals + 1);
    Option& option = find(name.substr(0, equals));
    if (equals == std::string::npos) {
      if (std::holds_alternative<bool*>(option.target)) {
        value = "true";
      } else if (++i < argc) {
        value = argv[i];
      } else {
        wrong("--" + option.name + " needs a value");
      }
    }
    std::visit(Assign{option.name, value}, option.target);
    option.given = true;
    option.value = value;
  }
  return true;
}

bool CommandLine::given(const std::string& name) const {
  return std::ranges::any_of(options_, [&](const Option& o) { return o.name == name && o.given; });
}

std::vector<std::string> CommandLine::given_except(const std::vector<std::string>& names) const {
  std::vector<std::string> arguments;
  for (const Option& option : options_) {
    const bool wanted =
        option.given && !option.bare && std::ranges::find(names, option.name) == names.end();
    if (wanted) arguments.push_back("--" + option.name + '=' + option.value);
  }
  return arguments;
}

void CommandLine::require(const std::string& name, int value, int least, int most) const {
  if (value >= least && value <= most) return;
  wrong("--" + name + ": " + std::to_string(value) + " is not between " + std::to_string(least) +
        " and " + std::to_string(most));
}

std::string CommandLine::help() const {
  std::size_t width = 0;
  std::string words;
  const auto shown = [](const Option& option) {
    if (option.bare) return option.name;
    std::string text = "--" + option.name;
    for (const std::string& alias : option.aliases)
      text += (alias.size() == 1 ? ", -" : ", --") + alias;
    return text;
  };
  for (const Option& option : options_) {
    width = std::max(width, shown(option).size());
    if (option.bare) words += " [" + option.name + ']';
  }
  std::string text = purpose_ + "\n\nusage: " + program_ + " [--option VALUE]..." + words + "\n\n";
  for (const Option& option : options_) {
    const std::string value = std::visit(Default{}, option.target), name = shown(option);
    text += "  " + name + std::string(width - name.size() + 3, ' ') + option.help +
            (value.empty() ? "" : " (" + value + ")") + '\n';
  }
  return text;
}

int run_program(const std::string& program, int (*body)(int, char**), int argc, char** argv) {
  keep_freed_memory();
  try {
    return body(argc, argv);
  } catch (const mezzo::ConfigError& error) {
    std::cerr << program << ": " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace examples
