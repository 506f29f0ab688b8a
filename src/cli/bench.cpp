// mezzo bench
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "cli/command.h"
#include "core/raise.h"
#include "platform/libraries.h"
#include "platform/libtorch.h"
#include "platform/process.h"

namespace mezzo::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "mezzo_bench";

struct BenchOptions {
  std::vector<std::string> names;
  std::string json;
  std::string device;
  std::string only;
  int repeats = 0;
};

/// Beside this program where it is installed, else in the build folder.
fs::path find_program() {
  const fs::path folder = platform::program_path().parent_path();
  for (const fs::path& place : {folder / kProgram, folder / MEZZO_BENCH_FOLDER / kProgram}) {
    if (fs::exists(place)) return place.lexically_normal();
  }
  raise<UnsupportedError>("bench", "the program ", kProgram, " is not installed with this one; ",
                          "it is built with LibTorch and MEZZO_BENCH=ON");
}

/// The command line. The program loads LibTorch by its run path, in the build folder and where the
/// copy has one of its own; elsewhere it is given the place of one.
std::vector<std::string> command_for(const fs::path& program) {
  std::vector<std::string> command;
  const fs::path folder = program.parent_path();
  const fs::path own = folder / MEZZO_LIBRARY_FOLDER / "mezzo/libtorch";
  const bool is_installed = folder == platform::program_path().parent_path();
  if (is_installed && (!fs::exists(own) || platform::environment_variable("LIBTORCH"))) {
    std::string looked;
    const fs::path libtorch = platform::find_libtorch(&looked);
    if (libtorch.empty() && !fs::exists(own)) {
      raise<UnsupportedError>("bench", "no LibTorch was found: ", looked, ", and ",
                              own.lexically_normal(), " does not exist");
    }
    if (!libtorch.empty()) {
      const auto before = platform::environment_variable("LD_LIBRARY_PATH");
      command = {"env", "LD_LIBRARY_PATH=" + (libtorch / "lib").string() +
                            (before ? ":" + *before : std::string())};
    }
  }
  command.push_back(program.string());
  return command;
}

}  // namespace

Action setup_bench(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  app.add_option(
      "NAMES", options->names,
      "Suites: amp, casting, convert, cuda, layers, memory, parallel, step, train (all)");
  CLI::Option* json = app.add_option("--json", options->json,
                                     "Write one JSON object a line to this file; without a file to "
                                     "standard output, and the table to standard error")
                          ->expected(0, 1)
                          ->type_name("[FILE]");
  app.add_option("--device", options->device, "cpu or cuda (cpu)");
  app.add_option("--repeats", options->repeats, "Measurements of each case (9)");
  app.add_option("--only", options->only,
                 "Of step and layers: cases whose names contain this text");
  return [options, json, &app]() -> int {
    std::vector<std::string> command = command_for(find_program());
    command.insert(command.end(), options->names.begin(), options->names.end());
    const auto pass_on = [&](const std::string& name, const std::string& value) {
      if (app.count(name) > 0) command.push_back(name + "=" + value);
    };
    pass_on("--device", options->device);
    pass_on("--repeats", std::to_string(options->repeats));
    pass_on("--only", options->only);
    if (json->count() > 0) {
      command.push_back(options->json.empty() ? "--json" : "--json=" + options->json);
    }
    platform::replace_process(command);
  };
}

}  // namespace mezzo::cli
