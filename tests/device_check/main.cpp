// Checks of the product on a device: [PARTS] [--device cpu|cuda] [--small] [--seconds N]
// [--out FILE]. One JSON line a result. GoogleTest has no part in it, so that it starts where
// nothing but LibTorch is.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "device_check/parts.h"
#include "device_check/rank_work.h"

namespace mezzo::device_check {
namespace {

std::string names_of_parts() {
  std::string text;
  for (const Part& part : kParts)
    text += "\n  " + std::string(part.name) + ": " + std::string(part.what);
  return text;
}

struct Settings {
  std::vector<std::string> parts;
  std::string device = "cuda";
  std::string out;
  std::string only;
  double seconds = 1e9;
  bool small = false;
  std::string rank_work;
};

int run(const Settings& settings) {
  std::ofstream file;
  if (!settings.out.empty()) file.open(settings.out, std::ios::app);
  Results results(settings.out.empty() ? std::cout : file, settings.seconds, settings.only);
  const Device device(settings.device, settings.small);
  for (const Part& part : kParts) {
    const auto& wanted = settings.parts;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), part.name) == wanted.end())
      continue;
    results.begin_part(std::string(part.name));
    const double before = results.seconds_left();
    part.run(device, results);
    results.end_part(before - results.seconds_left());
  }
  std::cerr << results.passed() << " passed, " << results.failed() << " failed" << std::endl;
  return results.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace mezzo::device_check

int main(int argc, char** argv) {
  using namespace mezzo::device_check;
  CLI::App app{"Checks Mezzo on a device. Parts:" + names_of_parts()};
  Settings settings;
  std::vector<std::string> names;
  for (const Part& part : kParts) names.emplace_back(part.name);
  app.add_option("parts", settings.parts, "parts to run (default: all)")
      ->check(CLI::IsMember(names));
  app.add_option("--device", settings.device, "cuda, cuda:1 or cpu");
  app.add_option("--out", settings.out, "append the lines to this file");
  app.add_option("--only", settings.only, "checks whose names contain this text");
  app.add_option("--seconds", settings.seconds, "checks that would begin later are skipped");
  app.add_flag("--small", settings.small, "sizes that a CPU does in seconds");
  app.add_option("--rank-work", settings.rank_work, "used by the program itself, in each rank")
      ->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!settings.rank_work.empty())
      return run_rank_work(settings.rank_work, Device(settings.device, settings.small));
    return run(settings);
  } catch (const std::exception& error) {
    std::cerr << "device_check: " << error.what() << std::endl;
    return 2;
  }
}
