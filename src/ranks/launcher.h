// Starts the processes of one machine, watches them, and ends them together: the successor of
// `apex.parallel.multiproc`, with torchrun's variables.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/process.h"

namespace mezzo::ranks {

/// A rank's note in the store about a collective that failed on it.
struct FailureRecord {
  int rank = 0;
  std::string text;
};

/// The store at which the ranks meet, hosted by the launcher: so no port is guessed, and it
/// survives the death of any rank.
class StoreHost {
 public:
  virtual ~StoreHost() = default;
  virtual int port() const = 0;
  /// The failures that ranks of this run recorded, first one first. Never throws.
  virtual std::vector<FailureRecord> failures(const std::string& run_id) = 0;
  /// How many other nodes have said that their ranks have ended. Never throws.
  virtual int ended_nodes(const std::string& run_id) = 0;
};

/// Opens a store at an address; port 0 lets the system choose. Throws Error. Null if this
/// process cannot host one: then rank 0 does, at the given port or at one that was free.
using HostStore = std::function<std::unique_ptr<StoreHost>(const std::string& address, int port)>;

/// Says at the store of node 0 that the ranks of another node have ended. A store that is gone is
/// no error.
using TellEnd =
    std::function<void(const std::string& address, int port, const std::string& run_id)>;

struct LaunchOptions {
  std::vector<std::string> command;  // program and arguments
  int processes_per_node = 1;
  int nodes = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  int master_port = 0;                  // 0: the system chooses, on one node
  std::filesystem::path log_directory;  // empty: lines go to the terminal, with the rank in front
  bool tee = false;                     // to files and to the terminal
  std::map<std::string, std::string> environment;  // for all ranks, on top of this process's
  std::chrono::milliseconds report_time{
      1000};                                 // after the first failure, for the others to report it
  std::chrono::milliseconds end_time{3000};  // after SIGTERM, before SIGKILL
  std::chrono::milliseconds nodes_time{300000};         // on node 0, for other nodes' ranks to end
  std::optional<std::chrono::milliseconds> time_limit;  // of the whole run
};

/// How one rank of this machine ended.
struct RankEnd {
  int rank = 0;
  int process = 0;
  platform::ProcessEnd end;
  bool ended_by_us = false;  // after another one's failure, a signal or the time limit
  std::string last_lines;    // of its standard error, else of its standard output
};

struct LaunchResult {
  // 0, the failure's code, 128 + signal, 124 after the time limit, 1 if only a log is not whole
  int exit_code = 0;
  std::optional<RankEnd> failure;  // the first cause
  std::string report;              // what failed, for people; empty if nothing did
  std::vector<RankEnd> ranks;
};

/// Runs the command once per rank of this node and waits for all. Lines of the ranks go to `out`
/// and `err` as "[rank 1] text". SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on and end the run,
/// and so does a broken pipe under `out` or `err`; SIGUSR1 and SIGUSR2 are passed on. The first
/// failure ends the others, by their own process ids: SIGTERM, then SIGKILL. With several nodes the
/// first one, whose launcher hosts the store, waits for the ranks of the others, which may still
/// need it. Throws ConfigError for options that cannot be (no command, sizes below 1, several nodes
/// without a port), Error if the program cannot be started or a log cannot be written.
LaunchResult launch(const LaunchOptions& options, const HostStore& host_store, std::ostream& out,
                    std::ostream& err, const TellEnd& tell_end = {});

/// The variables that rank `local_rank` of this node gets. `hosted`: the launcher of node 0 hosts
/// the store.
std::map<std::string, std::string> rank_variables(const LaunchOptions& options, int local_rank,
                                                  int port, const std::string& run_id,
                                                  bool hosted = true);

/// Which of the failures is the cause of the others: the first to end that did not record that a
/// collective failed on it, since that one left the others waiting; else the first to record one;
/// else the first. `failed` in the order of their ends, not empty. Returns an index into it.
std::size_t root_cause(const std::vector<RankEnd>& failed,
                       const std::vector<FailureRecord>& records);

}  // namespace mezzo::ranks
