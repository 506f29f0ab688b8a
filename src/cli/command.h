// The program's subcommands. A new one is a file with a `setup` function, and a row in
// commands.cpp.
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
/// else to standard error. Returns the exit code. What it throws ends the program with a message:
/// ConfigError as wrong usage, anything else as failed.
using Action = std::function<int()>;

struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view example;            ///< shown below the options
  Action (*setup)(CLI::App& command);  ///< adds options; the action reads what they were set to
};

/// All subcommands, in the order in which help shows them.
std::span<const Command> commands();

}  // namespace mezzo::cli
