// Starts this program again as two and as four ranks, and collects what they measured.
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/raise.h"
#include "platform/libraries.h"
#include "ranks/launcher.h"
#include "suites.h"

extern "C" mezzo::ranks::StoreHost* mezzo_host_store(const char* address, int port);

namespace mezzo::bench {
namespace {

Result result_of(const nlohmann::json& line) {
  Result result;
  result.name = line.at("case");
  result.unit = line.at("unit");
  result.ours = line.at("ours");
  result.peer = line.at("peer");
  result.peer_name = line.at("peer_name");
  result.spread = line.at("spread");
  if (line.contains("target")) result.target = line["target"].get<double>();
  if (line.contains("bytes")) result.bytes = line["bytes"].get<double>();
  return result;
}

// Runs this program again, once per rank, and adds the lines that rank 0 writes.
void run_ranks(Report& report, const Settings& settings, const char* which, int count) {
  ranks::LaunchOptions options;
  options.command = {platform::program_path().string(), which, "--repeats",
                     std::to_string(settings.repeats)};
  options.processes_per_node = count;
  std::ostringstream out;
  std::ostringstream err;
  const auto host = [](const std::string& address, int port) {
    return std::unique_ptr<ranks::StoreHost>(mezzo_host_store(address.c_str(), port));
  };
  const ranks::LaunchResult ended = ranks::launch(options, host, out, err);
  if (ended.exit_code != 0) raise("parallel", ended.report);
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find('{');
    if (begin != std::string::npos) {
      report.add(result_of(nlohmann::json::parse(line.substr(begin))));
    }
  }
}

}  // namespace

void run_parallel(Report& report, const Settings& settings) {
  for (const int count : {2, 4}) run_ranks(report, settings, "--parallel-rank", count);
}

void run_distributed(Report& report, const Settings& settings) {
  run_ranks(report, settings, "--demo-rank", 2);
}

}  // namespace mezzo::bench
