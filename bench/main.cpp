// The program behind `mezzo bench` and `./run bench`: [NAMES] [--json [FILE]] [--device cpu|cuda]
// [--repeats N] [--only TEXT]. Runs suites and prints ours, peer, ratio, spread.
#include <CLI/CLI.hpp>
#include <climits>
#include <exception>
#include <iostream>
#include <optional>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "amp_instructions.h"
#include "casting_instructions.h"
#include "core/nearest.h"
#include "core/raise.h"
#ifdef MEZZO_WITH_PARALLEL
#include "parallel_ranks.h"
#endif
#include "suites.h"

namespace {

std::string names_of_suites() {
  std::string text;
  for (const auto& suite : mezzo::bench::kSuites) {
    text += "\n  " + std::string(suite.name) + ": " + std::string(suite.what);
  }
  return text;
}

/// `json`: nothing, a file, or an empty name for standard output. `lines`: a file, or nothing.
int run(const std::vector<std::string>& names, const std::optional<std::string>& json,
        const std::string& lines, const mezzo::bench::Settings& settings) {
  const bool prints_json = json && json->empty();
  mezzo::bench::Report report(prints_json ? std::cerr : std::cout);
  if (!lines.empty()) report.append_lines_to(lines);
  const auto write = [&] {
    if (prints_json) report.write_json(std::cout);
    if (json && !prints_json) report.write_json(*json);
  };
  int ran = 0;
  int failed = 0;
  for (const auto& suite : mezzo::bench::kSuites) {
    const bool wanted = std::find(names.begin(), names.end(), suite.name) != names.end();
    // Every suite runs on the processor but one.
    const bool on_device = suite.name == "cuda";
    const bool has_device = on_device == (settings.device == "cuda");
    if (!wanted && !has_device) continue;
    if (!names.empty() && !wanted && std::find(names.begin(), names.end(), "all") == names.end())
      continue;
    report.heading(std::string(suite.name) + ": " + std::string(suite.what));
    try {
      ++ran;
      if (!has_device) {
        mezzo::raise("bench", "this suite runs with --device ", on_device ? "cuda" : "cpu");
      }
      suite.run(report, settings);
    } catch (const std::exception& e) {
      ++failed;
      std::cerr << "mezzo bench: suite " << suite.name << ": " << e.what() << '\n';
    }
  }
  write();
  if (ran == 0) std::cerr << "mezzo bench: this build has no suite for --device cuda\n";
  return ran > 0 && failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
#if defined(__GLIBC__)
  // Both sides of a comparison reuse memory; else the pages of fresh results cost more than what
  // is measured.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
  CLI::App app{"Measures Mezzo against its peers. Suites:" + names_of_suites(), "mezzo bench"};
  std::vector<std::string> names;
  std::string json;
  std::string lines;
  mezzo::bench::Settings settings;
  std::string counted;
  app.add_option("names", names, "suites to run (default: all)");
  const CLI::Option* json_option =
      app.add_option("--json", json,
                     "write one JSON object a line to this file, without one to standard output")
          ->expected(0, 1);
  app.add_option("--lines", lines, "append one JSON object to this file as each case ends");
  app.add_option("--device", settings.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--repeats", settings.repeats, "measurements of each case")
      ->check(CLI::Range(3, 1000));
  app.add_option("--only", settings.only,
                 "of step and layers: cases whose names contain this text");
  app.add_option("--count-instructions", counted, "used by the program itself, under callgrind")
      ->check(CLI::IsMember({"amp", "casting"}))
      ->group("");
  bool is_rank = false;
  app.add_flag("--parallel-rank", is_rank, "used by the program itself, in each rank")->group("");
  bool is_demo_rank = false;
  app.add_flag("--demo-rank", is_demo_rank, "used by the program itself, in each rank")->group("");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& name : names) {
    const auto known = [&](const auto& suite) { return suite.name == name; };
    if (name != "all" &&
        std::none_of(mezzo::bench::kSuites.begin(), mezzo::bench::kSuites.end(), known)) {
      std::vector<std::string_view> suites;
      suites.reserve(mezzo::bench::kSuites.size());
      for (const auto& suite : mezzo::bench::kSuites) suites.push_back(suite.name);
      std::cerr << "mezzo bench: no suite '" << name << "'; there are:" << names_of_suites()
                << '\n';
      for (const std::string_view meant : mezzo::nearest(name, suites, 1))
        std::cerr << "did you mean '" << meant << "'?\n";
      return 2;
    }
  }
  try {
    if (counted == "amp") return mezzo::bench::count_amp_instructions();
    if (counted == "casting") return mezzo::bench::count_casting_instructions();
#ifdef MEZZO_WITH_PARALLEL
    if (is_rank) return mezzo::bench::run_parallel_rank(settings.repeats);
    if (is_demo_rank) return mezzo::bench::run_demo_rank(settings.repeats);
#endif
    return run(names, json_option->count() > 0 ? std::optional(json) : std::nullopt, lines,
               settings);
  } catch (const std::exception& e) {
    std::cerr << "mezzo bench: " << e.what() << '\n';
    return 1;
  }
}
