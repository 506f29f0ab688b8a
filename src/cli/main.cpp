// The program `mezzo`. It starts without LibTorch: see torch_part.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/option_names.h"
#include "cli/usage.h"
#include "cli/version_text.h"
#include "mezzo/error.h"

namespace mezzo::cli {
namespace {

struct Entry {
  const CLI::App* app;
  Action action;
};

int run(const Entry& entry) {
  const std::string where = "mezzo " + entry.app->get_name() + ": ";
  try {
    const int code = entry.action();
    if (!std::cout.flush()) {
      std::cerr << where << "the result cannot be written to standard output\n";
      return kFailed;
    }
    return code;
  } catch (const ConfigError& error) {
    std::cerr << where << in_flags(error.what()) << '\n';
    return kWrongUsage;
  } catch (const std::exception& error) {
    std::cerr << where << in_flags(error.what()) << '\n';
    return kFailed;
  }
}

int main(int argc, char** argv) {
  CLI::App app("Automatic mixed precision for C++ programs on LibTorch", "mezzo");
  app.set_version_flag("--version", version_text, "Show version, commit, compiler and LibTorch");
  app.require_subcommand(1);
  std::vector<Entry> entries;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    sub->footer("Example:\n  " + std::string(command.example));
    entries.push_back({sub, command.setup(*sub)});
  }
  try {
    // CLI11 takes the last word first.
    std::vector<std::string> words = with_joined_edits({argv + 1, argv + argc});
    std::ranges::reverse(words);
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      if (const std::string unknown = unknown_words(app); !unknown.empty()) {
        std::cerr << unknown << "\nRun with --help for more information.\n";
        return kWrongUsage;
      }
    }
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  }
  for (const Entry& entry : entries) {
    if (entry.app->parsed()) return run(entry);
  }
  return kWrongUsage;
}

}  // namespace
}  // namespace mezzo::cli

int main(int argc, char** argv) {
  return mezzo::cli::main(argc, argv);
}
