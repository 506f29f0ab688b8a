// mezzo report
#include "mezzo/report.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.h"
#include "mezzo/insight_diagnosis.h"

namespace mezzo::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string html;
  std::string tensorboard;
  bool json = false;
  bool diagnose = false;
};

int run(const ReportOptions& options) {
  report::Report all;
  for (const std::string& file : options.files) {
    report::Report one = report::read(file);
    all.machine = std::move(one.machine);
    std::ranges::move(one.runs, std::back_inserter(all.runs));
  }
  if (!options.html.empty()) {
    report::save(all, options.html);
    std::cerr << "wrote " << options.html << '\n';
  }
  if (!options.tensorboard.empty()) {
    report::replay(all, *report::tensorboard(options.tensorboard));
    std::cerr << "wrote " << options.tensorboard << '\n';
  }
  if (options.diagnose) {
    const std::vector<insight::Finding> findings = insight::diagnose(all);
    std::cout << (options.json ? insight::to_json(findings) : insight::to_text(findings));
    return kDone;
  }
  std::cout << (options.json ? report::to_json(all) : report::to_table(all));
  return kDone;
}

}  // namespace

Action setup_report(CLI::App& app) {
  const auto options = std::make_shared<ReportOptions>();
  app.add_option("files", options->files,
                 "Logs of events (JSON lines) or report.json files; their runs stand side by side")
      ->required()
      ->type_name("FILE");
  app.add_option("--html", options->html, "Write a page with plots, FILE.html")->type_name("FILE");
  app.add_option("--tensorboard", options->tensorboard, "Write event files below this folder")
      ->type_name("PATH");
  app.add_flag("--json", options->json, "Print the figures as JSON instead of a table");
  app.add_flag("--diagnose", options->diagnose,
               "Print what went wrong in the runs and what to change, instead of the table");
  return [options] { return run(*options); };
}

}  // namespace mezzo::cli
