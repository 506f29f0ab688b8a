// The caller's own judge: a command that says whether a model is acceptable.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mezzo::convert {

/// A command's verdict on a model.
struct CommandVerdict {
  bool accepts = false;
  std::string why;  ///< where it refuses: how it ended, and the last lines that it wrote
};

/// The command with the model's path in place of every {}, quoted as that place of it demands,
/// inside quotes too.
std::string command_for(std::string_view command, const std::filesystem::path& model);

/// Runs the command on a model by /bin/sh, without standard input; exit code 0 accepts. Processes
/// that it started end with it. Throws Error if there is no such command.
CommandVerdict ask_command(std::string_view command, const std::filesystem::path& model);

}  // namespace mezzo::convert
