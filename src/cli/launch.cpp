// mezzo launch
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/torch_part.h"
#include "core/raise.h"
#include "ranks/launcher.h"

namespace mezzo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct LaunchOptions {
  std::string program;
  ranks::LaunchOptions launch;
  double grace = 3;
  double time_limit = 0;
  bool json = false;
};

/// The store of LibTorch where that can be loaded, so that the ranks' meeting place outlives them.
std::unique_ptr<ranks::StoreHost> host_store(const std::string& address, int port) {
  using Open = ranks::StoreHost* (*)(const char*, int);
  void* found = nullptr;
  try {
    found = find_in_torch_part("mezzo_host_store");
  } catch (const UnsupportedError&) {
    // Programs that bring a LibTorch of their own, or none, are started all the same.
  }
  if (found == nullptr) return nullptr;
  return std::unique_ptr<ranks::StoreHost>(reinterpret_cast<Open>(found)(address.c_str(), port));
}

void tell_end(const std::string& address, int port, const std::string& run_id) {
  using Tell = void (*)(const char*, int, const char*);
  void* found = nullptr;
  try {
    found = find_in_torch_part("mezzo_tell_node_ended");
  } catch (const UnsupportedError&) {
    // Node 0's launcher, which has none either, hosts no store.
  }
  if (found != nullptr) reinterpret_cast<Tell>(found)(address.c_str(), port, run_id.c_str());
}

Json described(const ranks::RankEnd& end) {
  Json rank;
  rank["rank"] = end.rank;
  rank["process"] = end.process;
  rank["exit_code"] = end.end.shell_code();
  rank["signal"] = end.end.signal;
  rank["ended_by_launcher"] = end.ended_by_us;
  rank["last_lines"] = end.last_lines;
  return rank;
}

Json described(const ranks::LaunchResult& result) {
  Json all;
  all["exit_code"] = result.exit_code;
  all["failure"] = nullptr;
  if (result.failure) all["failure"] = described(*result.failure);
  all["ranks"] = Json::array();
  for (const ranks::RankEnd& end : result.ranks) all["ranks"].push_back(described(end));
  return all;
}

std::chrono::milliseconds milliseconds(const char* option, double seconds) {
  constexpr double kYear = 365.0 * 24 * 3600;
  if (!(seconds >= 0 && seconds <= kYear)) {
    raise<ConfigError>("launch", option, " is ", seconds, ", expected seconds from 0 on");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

/// `rest`: "--" and the program's arguments. Without the dashes a program's option could be ours.
std::vector<std::string> command_of(const std::string& program, std::vector<std::string> rest) {
  if (!rest.empty() && rest.front() != "--") {
    raise<ConfigError>("launch", "'", rest.front(), "' is no option of launch; a program and its ",
                       "arguments follow two dashes: mezzo launch [OPTIONS] -- PROGRAM ...");
  }
  if (rest.empty() || program.empty()) {
    raise<ConfigError>("launch", "expected two dashes and a program: mezzo launch [OPTIONS] -- ",
                       "PROGRAM ...");
  }
  rest.front() = program;
  return rest;
}

int run(LaunchOptions options, std::vector<std::string> rest) {
  options.launch.command = command_of(options.program, std::move(rest));
  options.launch.end_time = milliseconds("--grace", options.grace);
  const auto limit = milliseconds("--time-limit", options.time_limit);
  if (limit.count() > 0) options.launch.time_limit = limit;
  const ranks::LaunchResult result = ranks::launch(
      options.launch, host_store, options.json ? std::cerr : std::cout, std::cerr, tell_end);
  std::cerr << result.report;
  if (options.json) {
    // A rank may have written bytes that are no UTF-8.
    std::cout << described(result).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  }
  return result.exit_code;
}

}  // namespace

Action setup_launch(CLI::App& app) {
  const auto options = std::make_shared<LaunchOptions>();
  ranks::LaunchOptions& launch = options->launch;
  app.description(app.get_description() + "\n  mezzo launch [OPTIONS] -- PROGRAM [ARGUMENTS...]");
  app.add_option("PROGRAM", options->program, "What every rank runs, with the arguments behind it");
  app.prefix_command();
  app.add_option("--nproc-per-node,--nproc_per_node", launch.processes_per_node,
                 "Processes on this machine (1)");
  app.add_option("--nnodes", launch.nodes, "Machines (1); the command runs once on each");
  app.add_option("--node-rank,--node_rank", launch.node_rank, "Which of them this is, from 0");
  app.add_option("--master-addr,--master_addr", launch.master_address,
                 "Where the ranks meet: an address of node 0 (127.0.0.1)");
  app.add_option("--master-port,--master_port", launch.master_port,
                 "The port there; one machine needs none");
  app.add_option("--log-dir,--log_dir", launch.log_directory,
                 "Write rank_N.out and rank_N.err there instead of to the terminal");
  app.add_flag("--tee", launch.tee, "Write to the terminal too");
  app.add_option("--grace", options->grace,
                 "Seconds between SIGTERM and SIGKILL where ranks are ended (3)");
  app.add_option("--time-limit", options->time_limit,
                 "End all ranks after so many seconds, with exit code 124");
  app.add_flag("--json", options->json,
               "Print how every rank ended as JSON; the ranks' lines go to standard error");
  return [options, &app] {
    if (options->launch.nodes > 1 && app.count("--master-addr") == 0) {
      raise<ConfigError>("launch", "several nodes need --master-addr, the same on all: an address ",
                         "of node 0 that the others reach");
    }
    return run(*options, app.remaining());
  };
}

}  // namespace mezzo::cli
