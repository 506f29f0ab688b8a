#include "support/compare.h"

#include <mezzo/error.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "support/process.h"

namespace examples {

namespace {

constexpr std::string_view kFloatNorms = "+bn";

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> arguments_of(const std::string& level, const std::filesystem::path& log) {
  std::vector<std::string> arguments{"--log", log.string(), "--opt-level"};
  if (level.ends_with(kFloatNorms)) {
    arguments.push_back(level.substr(0, level.size() - kFloatNorms.size()));
    arguments.insert(arguments.end(), {"--keep-batchnorm-fp32", "True"});
  } else {
    arguments.push_back(level);
  }
  return arguments;
}

std::filesystem::path with_ending(std::filesystem::path file, const char* ending) {
  return file.replace_extension(ending);
}

}  // namespace

std::vector<std::string> parse_levels(const std::string& text, const std::vector<std::string>& all,
                                      const std::vector<std::string>& known) {
  if (text == "all") return all;
  std::vector<std::string> levels;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    if (std::ranges::find(known, part) == known.end()) {
      throw mezzo::ConfigError("unknown level '" + part +
                               "' (the letter O, not zero); expected some of " + joined(known) +
                               ", or all");
    }
    if (std::ranges::find(levels, part) != levels.end()) {
      throw mezzo::ConfigError("level '" + part + "' is there twice");
    }
    levels.push_back(part);
  }
  if (levels.empty())
    throw mezzo::ConfigError("no level to compare; expected some of " + joined(known));
  return levels;
}

mezzo::report::Report compare_levels(const std::vector<std::string>& levels,
                                     const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  mezzo::report::Report report;
  for (const std::string& level : levels) {
    const std::filesystem::path log = folder.path() / (level + ".jsonl");
    std::vector<std::string> all = arguments_of(level, log);
    all.insert(all.end(), arguments.begin(), arguments.end());
    const int code = run_and_wait(this_program(), all);
    if (code == 2) throw mezzo::ConfigError("level " + level + " was refused; nothing was written");
    if (code != 0) {
      throw mezzo::Error("level " + level + " ended with exit code " + std::to_string(code) +
                         "; nothing was written");
    }
    mezzo::report::Report one = mezzo::report::read(log);
    one.runs.front().name = level;
    report.runs.push_back(std::move(one.runs.front()));
    report.machine = std::move(one.machine);
  }
  return report;
}

void require_report_writable(const std::filesystem::path& file) {
  require_writable(with_ending(file, ".json"));
  require_writable(with_ending(file, ".html"));
}

void save_report(const mezzo::report::Report& report, const std::filesystem::path& file) {
  for (const char* ending : {".json", ".html"}) {
    mezzo::report::save(report, with_ending(file, ending));
    std::cerr << "wrote " << with_ending(file, ending).string() << '\n';
  }
}

}  // namespace examples
