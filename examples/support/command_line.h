// A program's options: --name VALUE, --name=VALUE, or --name alone for a switch; -n VALUE where a
// letter stands for a name.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace examples {

class CommandLine {
 public:
  CommandLine(std::string program, std::string purpose);

  /// Declares an option; what `target` holds now is its default. `target` must live until parse().
  template <class T>
  CommandLine& option(std::string name, T& target, std::string help) {
    options_.push_back({std::move(name), &target, std::move(help), false, {}, {}, false});
    return *this;
  }

  /// Other names of the option that was declared last; one letter is a name after one dash, too.
  CommandLine& also(std::vector<std::string> names) {
    options_.back().aliases = std::move(names);
    return *this;
  }

  /// Declares a word without a dash; the program may be started without it.
  CommandLine& argument(std::string name, std::string& target, std::string help) {
    options_.push_back({std::move(name), &target, std::move(help), false, {}, {}, true});
    return *this;
  }

  /// Fills the targets. False: --help was asked for and has been written to standard output. Throws
  /// mezzo::ConfigError on an unknown option, a missing value and a value of the wrong kind.
  /// batch-size, batch_size and batchSize are the same name.
  bool parse(int argc, const char* const* argv);

  /// Was this option given?
  bool given(const std::string& name) const;

  /// The options that were given, without those named here, for another program of this kind.
  std::vector<std::string> given_except(const std::vector<std::string>& names) const;

  /// Throws mezzo::ConfigError unless least <= value <= most.
  void require(const std::string& name, int value, int least, int most) const;

 private:
  using Target = std::variant<std::string*, int*, double*, bool*>;
  struct Option {
    std::string name;
    Target target;
    std::string help;
    bool given;
    std::string value;
    std::vector<std::string> aliases;
    bool bare;  // a word without a name
  };

  Option& find(const std::string& name);
  void take_word(const std::string& word);
  std::string help() const;

  std::string program_, purpose_;
  std::vector<Option> options_;
};

/// The letters that must change to make one word the other.
std::size_t edit_distance(const std::string& a, const std::string& b);

/// Runs a program's body. An exception goes to standard error in one line; the exit code is 2 for
/// mezzo::ConfigError (wrong usage) and 1 for every other exception.
int run_program(const std::string& program, int (*body)(int, char**), int argc, char** argv);

}  // namespace examples
