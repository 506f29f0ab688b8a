#include "ranks/launcher.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <ostream>
#include <sstream>

#include "core/raise.h"
#include "platform/network.h"
#include "ranks/rank_output.h"

namespace mezzo::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kInLauncher = "launch";
constexpr int kTimeLimitCode = 124;  // as coreutils' timeout

void validate(const LaunchOptions& o) {
  if (o.command.empty()) raise<ConfigError>(kInLauncher, "no program to start");
  if (o.processes_per_node < 1) {
    raise<ConfigError>(kInLauncher, "--nproc-per-node is ", o.processes_per_node,
                       ", expected at least 1");
  }
  if (o.nodes < 1)
    raise<ConfigError>(kInLauncher, "--nnodes is ", o.nodes, ", expected at least 1");
  if (o.node_rank < 0 || o.node_rank >= o.nodes) {
    raise<ConfigError>(kInLauncher, "--node-rank is ", o.node_rank, ", expected 0 to ",
                       o.nodes - 1);
  }
  if (o.nodes > 1 && o.master_port == 0) {
    raise<ConfigError>(kInLauncher,
                       "several nodes need --master-addr and --master-port: the same on ",
                       "all, the address being node 0's");
  }
  if (o.master_port < 0 || o.master_port > 65535) {
    raise<ConfigError>(kInLauncher, "--master-port is ", o.master_port, ", expected 1 to 65535");
  }
  if (o.tee && o.log_directory.empty()) raise<ConfigError>(kInLauncher, "--tee needs --log-dir");
  if (std::string why; !platform::resolves(o.master_address, &why)) {
    raise<ConfigError>(kInLauncher, "cannot resolve --master-addr '", o.master_address, "': ", why);
  }
}

// One run: the processes of this node and what was learnt of them.
class Run {
 public:
  Run(const LaunchOptions& options, StoreHost* store, int port, std::ostream& out,
      std::ostream& err)
      : options_(options), store_(store), err_(err), started_(Clock::now()) {
    run_id_ = options.nodes == 1 ? "mezzo-" + std::to_string(port) + "-" +
                                       std::to_string(started_.time_since_epoch().count())
                                 : "mezzo-" + std::to_string(port);
    for (int local = 0; local < options.processes_per_node; ++local) {
      const int rank = options.node_rank * options.processes_per_node + local;
      outputs_.emplace_back(rank, options.log_directory, options.tee, out, err);
      ends_.emplace_back();
      processes_.push_back(std::make_unique<platform::Process>(
          options.command, rank_variables(options, local, port, run_id_,
                                          store != nullptr || options.node_rank > 0)));
    }
  }

  LaunchResult wait() {
    while (!all_ended()) {
      forward_signals();
      read_outputs(std::chrono::milliseconds(50));
      note_ends();
      end_others();
    }
    read_outputs(std::chrono::milliseconds(0));
    for (RankOutput& output : outputs_) output.flush();
    if (options_.nodes > 1 && options_.node_rank == 0 && store_ != nullptr) wait_for_nodes();
    return result();
  }

  const std::string& run_id() const { return run_id_; }

 private:
  bool all_ended() const {
    return std::all_of(ends_.begin(), ends_.end(), [](const auto& end) { return end.has_value(); });
  }

  void forward_signals() {
    while (const std::optional<int> signal = catcher_.taken()) {
      // A pipe that broke is this process's own: nobody reads what the ranks write any more.
      const int to_ranks = *signal == platform::kBrokenPipe ? platform::kTerminate : *signal;
      for (auto& process : processes_) process->send(to_ranks);
      // These ask for something, such as a checkpoint, and not for the end.
      if (*signal == platform::kUser1 || *signal == platform::kUser2) continue;
      forwarded_ = *signal;
      if (!terminated_at_) terminated_at_ = Clock::now();
    }
  }

  void read_outputs(std::chrono::milliseconds limit) {
    std::vector<int> descriptors;
    for (auto& process : processes_) {
      for (int which : {0, 1}) descriptors.push_back(process->pipe(which));
    }
    platform::wait_readable(descriptors, limit);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      for (int which : {0, 1}) {
        std::string text;
        processes_[i]->read(which, text);
        if (!text.empty()) outputs_[i].add(which, text);
      }
    }
  }

  void note_ends() {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (ends_[i]) continue;
      const auto end = processes_[i]->end();
      if (!end) continue;
      RankEnd& noted = ends_[i].emplace();
      noted.rank = outputs_[i].rank();
      noted.process = processes_[i]->id();
      noted.end = *end;
      noted.ended_by_us = terminated_at_.has_value();
      if (end->failed() && !noted.ended_by_us) {
        failed_.push_back(i);
        if (!first_failure_at_) first_failure_at_ = Clock::now();
      }
    }
  }

  void end_others() {
    const auto now = Clock::now();
    if (!terminated_at_) {
      const bool late = options_.time_limit && now - started_ > *options_.time_limit;
      if (late) note_hanging();
      if (late || (first_failure_at_ && now - *first_failure_at_ > options_.report_time)) {
        terminated_at_ = now;
        for (auto& process : processes_) process->send(platform::kTerminate);
      }
    } else if (now - *terminated_at_ > options_.end_time) {
      for (auto& process : processes_) process->send(platform::kKill);
    }
  }

  // Ranks of other nodes may still form groups, or leave notes of what ended them. After a failure
  // they end soon, or do not know of it.
  void wait_for_nodes() {
    constexpr std::chrono::seconds kPatience{2};
    const auto began = Clock::now();
    const bool in_order = failed_.empty() && !terminated_at_;
    const auto limit = in_order ? options_.nodes_time : options_.report_time;
    bool told = false;
    while (store_->ended_nodes(run_id_) < options_.nodes - 1) {
      const auto now = Clock::now();
      const bool late = options_.time_limit && now - started_ > *options_.time_limit;
      forward_signals();
      if (late || now - began > limit || forwarded_ != 0) return;
      if (in_order && !told && now - began > kPatience) {
        told = true;
        err_ << "[launch] the ranks of this node have ended; other nodes' may still need the "
                "store, which is here: waiting for them"
             << std::endl;
      }
      platform::wait_readable({}, std::chrono::milliseconds(50));
    }
  }

  void note_hanging() {
    std::ostringstream text;
    text << "[launch] the time limit of " << options_.time_limit->count() << " ms is over:\n";
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (ends_[i]) {
        text << "  rank " << outputs_[i].rank() << " had ended\n";
      } else {
        text << "  rank " << outputs_[i].rank() << " (process " << processes_[i]->id()
             << ") still ran; it wrote last:\n"
             << indented(outputs_[i].last_lines());
      }
    }
    time_report_ = text.str();
  }

  LaunchResult result() {
    LaunchResult result;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      ends_[i]->last_lines = outputs_[i].last_lines();
      result.ranks.push_back(*ends_[i]);
    }
    std::vector<RankEnd> failed;
    for (std::size_t index : failed_) failed.push_back(*ends_[index]);
    const std::vector<FailureRecord> records =
        store_ != nullptr ? store_->failures(run_id_) : std::vector<FailureRecord>{};
    if (!failed.empty()) {
      result.failure = failed[root_cause(failed, records)];
      result.exit_code = result.failure->end.shell_code();
      result.report = describe(*result.failure, failed, records);
    } else if (!time_report_.empty()) {
      result.exit_code = kTimeLimitCode;
    } else if (forwarded_ != 0) {
      result.exit_code = 128 + forwarded_;
      result.report = "[launch] ended by " + platform::signal_name(forwarded_) + "\n";
    } else if (std::ranges::any_of(outputs_, &RankOutput::has_lost)) {
      result.exit_code = 1;
      result.report = "[launch] all ranks succeeded, but a log is not whole\n";
    }
    result.report += time_report_;
    return result;
  }

  static std::string end_of(const RankEnd& rank) {
    std::ostringstream text;
    text << "rank " << rank.rank << " (process " << rank.process << ") ";
    if (rank.end.signal != 0) {
      text << "was ended by " << platform::signal_name(rank.end.signal);
    } else {
      text << "ended with exit code " << rank.end.code;
    }
    return text.str();
  }

  static std::string describe(const RankEnd& failure, const std::vector<RankEnd>& failed,
                              const std::vector<FailureRecord>& records) {
    std::ostringstream text;
    text << "[launch] " << end_of(failure) << "; it wrote last:\n" << indented(failure.last_lines);
    std::vector<int> told{failure.rank};
    for (const FailureRecord& record : records) {
      if (record.rank == failure.rank) continue;
      text << "  rank " << record.rank << " reported: " << record.text << '\n';
      told.push_back(record.rank);
    }
    // Which one was the cause cannot always be known: all that ended by themselves are shown.
    for (const RankEnd& other : failed) {
      if (std::find(told.begin(), told.end(), other.rank) != told.end()) continue;
      text << "  " << end_of(other) << ", too; it wrote last:\n" << indented(other.last_lines);
    }
    return text.str();
  }

  const LaunchOptions& options_;
  StoreHost* const store_;
  std::ostream& err_;
  const Clock::time_point started_;
  std::string run_id_;
  platform::SignalCatcher catcher_;
  std::deque<RankOutput> outputs_;
  std::vector<std::optional<RankEnd>> ends_;
  std::vector<std::size_t> failed_;  // in the order of their ends
  std::optional<Clock::time_point> first_failure_at_;
  std::optional<Clock::time_point> terminated_at_;
  int forwarded_ = 0;
  std::string time_report_;
  // Last, so that an exception ends the processes while all else is still there.
  std::vector<std::unique_ptr<platform::Process>> processes_;
};

}  // namespace

std::map<std::string, std::string> rank_variables(const LaunchOptions& o, int local_rank, int port,
                                                  const std::string& run_id, bool hosted) {
  const int rank = o.node_rank * o.processes_per_node + local_rank;
  const int world = o.nodes * o.processes_per_node;
  const auto text = [](int number) { return std::to_string(number); };
  std::map<std::string, std::string> all = o.environment;
  all.insert({{"RANK", text(rank)},
              {"LOCAL_RANK", text(local_rank)},
              {"WORLD_SIZE", text(world)},
              {"LOCAL_WORLD_SIZE", text(o.processes_per_node)},
              {"GROUP_RANK", text(o.node_rank)},
              {"GROUP_WORLD_SIZE", text(o.nodes)},
              {"ROLE_RANK", text(rank)},
              {"ROLE_WORLD_SIZE", text(world)},
              {"ROLE_NAME", "default"},
              {"MASTER_ADDR", o.master_address},
              {"MASTER_PORT", text(port)},
              {"TORCHELASTIC_USE_AGENT_STORE", hosted ? "True" : "False"},
              {"TORCHELASTIC_RUN_ID", run_id},
              {"TORCHELASTIC_RESTART_COUNT", "0"},
              {"TORCHELASTIC_MAX_RESTARTS", "0"}});
  if (o.processes_per_node > 1 && !platform::environment_variable("OMP_NUM_THREADS")) {
    all.insert({"OMP_NUM_THREADS", "1"});
  }
  return all;
}

std::size_t root_cause(const std::vector<RankEnd>& failed,
                       const std::vector<FailureRecord>& records) {
  const auto recorded = [&](const RankEnd& end) {
    return std::any_of(records.begin(), records.end(),
                       [&](const FailureRecord& record) { return record.rank == end.rank; });
  };
  const auto silent = std::find_if_not(failed.begin(), failed.end(), recorded);
  if (silent != failed.end()) return static_cast<std::size_t>(silent - failed.begin());
  for (const FailureRecord& record : records) {
    const auto found = std::find_if(failed.begin(), failed.end(),
                                    [&](const RankEnd& end) { return end.rank == record.rank; });
    if (found != failed.end()) return static_cast<std::size_t>(found - failed.begin());
  }
  return 0;
}

LaunchResult launch(const LaunchOptions& options, const HostStore& host_store, std::ostream& out,
                    std::ostream& err, const TellEnd& tell_end) {
  validate(options);
  if (!options.log_directory.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(options.log_directory, failure);
    if (failure) {
      raise(kInLauncher, "cannot make the folder --log-dir '", options.log_directory.string(),
            "': ", failure.message());
    }
  }
  std::unique_ptr<StoreHost> store;
  int port = options.master_port;
  if (options.node_rank == 0) {
    store = host_store(options.master_address, options.master_port);
    if (store != nullptr) {
      port = store->port();
    } else if (port == 0) {
      platform::close_descriptor(platform::listen_at("127.0.0.1", port));
    }
  }
  Run run(options, store.get(), port, out, err);
  LaunchResult result = run.wait();
  if (options.node_rank > 0 && tell_end) tell_end(options.master_address, port, run.run_id());
  return result;
}

}  // namespace mezzo::ranks
