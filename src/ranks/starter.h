// The starter of this process, and the meeting point of its peers: the variables that process
// starters set, and the address in an `init_method`. Nothing here talks to the network.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace mezzo::ranks {

/// One process among `world_size`, as its starter describes it.
struct Starter {
  std::string name;  // "torchrun", "mpirun", ...: for messages
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 0;    // on this machine; 0: not said
  std::string master_address;  // empty if the starter sets none
  int master_port = 0;
  bool agent_store = false;     // the starter hosts the store: every rank is a client
  std::string run_id = "none";  // one per run ...
  int restart_count = 0;  // ... and per restart of it: keys of an earlier try stay in the store
};

/// Looks up an environment variable.
using Variables = std::function<std::optional<std::string>(const std::string&)>;

/// Reads what torchrun, `mezzo launch`, Open MPI, PMI/PMIx starters or Slurm left in the
/// environment: the first that set both a rank and a size. Slurm counts only where MASTER_ADDR is
/// set: its variables exist in a batch shell too, where a lone program would wait for peers. Throws
/// ConfigError: no starter's variables, one of them missing, not a number, or out of range.
Starter read_starter(const Variables& variables);

/// Where the ranks meet.
struct MeetingPoint {
  enum class Kind { kEnvironment, kTcp, kFile };
  Kind kind = Kind::kEnvironment;
  std::string host;
  int port = 0;
  std::string path;
  std::optional<int> rank;
  std::optional<int> world_size;
};

/// "env://", "tcp://HOST:PORT", "file:///PATH", each with "?rank=R&world_size=N" if wanted. IPv6
/// hosts stand in brackets. Anything else: ConfigError.
MeetingPoint parse_init_method(const std::string& text);

}  // namespace mezzo::ranks
