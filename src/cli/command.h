// The program's subcommands. A new one is a file with a `setup` function, which is declared here,
// and a row in commands.cpp.
#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace CLI {
class App;
}

namespace mezzo::cli {

/// The exit codes of the program.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

/// The action of a subcommand once its arguments are read: results to standard output, everything
/// else to standard error. Returns the exit code. An exception ends the program with a message:
/// ConfigError as wrong usage, anything else as failed.
using Action = std::function<int()>;

struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view example;            ///< shown below the options
  Action (*setup)(CLI::App& command);  ///< adds options; the action reads what they were set to
};

/// Each in the file of its name.
Action setup_info(CLI::App&);
Action setup_lists(CLI::App&);
Action setup_explain(CLI::App&);
Action setup_report(CLI::App&);
Action setup_advise(CLI::App&);
Action setup_lint(CLI::App&);
Action setup_convert(CLI::App&);
Action setup_export(CLI::App&);
Action setup_inspect(CLI::App&);
Action setup_launch(CLI::App&);
Action setup_bench(CLI::App&);
Action setup_completions(CLI::App&);

/// All subcommands, in the order in which help shows them.
std::span<const Command> commands();

}  // namespace mezzo::cli
