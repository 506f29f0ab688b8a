#include "parallel/rendezvous.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/nearest.h"
#include "parallel/nccl_part.h"
#include "platform/network.h"
#include "platform/process.h"
#include "ranks/rank_list.h"
#include "ranks/starter.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInRendezvous = "init_process_group";

// The time that counts as for ever: in milliseconds it still fits an int, which some of the
// system's waits take.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 24);

using ranks::MeetingPoint;
using ranks::Starter;

void validate(const InitOptions& options) {
  if (options.backend != "auto" && options.backend != "gloo" && options.backend != "nccl") {
    constexpr std::array<std::string_view, 3> kBackends{"auto", "gloo", "nccl"};
    raise<ConfigError>(kInRendezvous, "unknown backend '", options.backend,
                       "'; expected one of auto, gloo, nccl",
                       did_you_mean(options.backend, kBackends));
  }
  if (options.timeout <= std::chrono::milliseconds(0)) {
    raise<ConfigError>(kInRendezvous, "the timeout is ", options.timeout.count(),
                       " ms, expected more than 0");
  }
}

// The starter's description of this process, if there is one. Slurm's variables count beside
// MASTER_ADDR alone, in whose place there is a meeting point here.
std::optional<Starter> starter_beside(const MeetingPoint& point) {
  const auto variables = [&](const std::string& name) {
    auto value = platform::environment_variable(name);
    if (!value && name == "MASTER_ADDR") value = point.host;
    return value;
  };
  try {
    return ranks::read_starter(variables);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// A process that meets the others at an address or in a file. Its starter knows what was not given.
Starter identify_at(const MeetingPoint& point, std::optional<int> rank, std::optional<int> size,
                    const std::string& init_method) {
  const std::optional<Starter> starter = starter_beside(point);
  if (starter && !rank) rank = starter->rank;
  if (starter && !size) size = starter->world_size;
  if (!rank || !size) {
    raise<ConfigError>(kInRendezvous, init_method, " needs rank and world_size where no starter's ",
                       "variables give them");
  }
  if (*size < 1 || *rank < 0 || *rank >= *size) {
    raise<ConfigError>(kInRendezvous, "rank ", *rank, " of world_size ", *size,
                       " is out of range; expected 0 <= rank < world_size");
  }
  Starter self;
  self.name = "init_method";
  self.rank = self.local_rank = *rank;
  self.world_size = *size;
  // Whoever numbers ranks otherwise than the starter does may have started several in its place.
  if (starter && starter->rank == *rank && starter->world_size == *size) {
    self.local_rank = starter->local_rank;
    self.local_world_size = starter->local_world_size;
  }
  self.master_address = point.host;
  self.master_port = point.port;
  return self;
}

// Combines the options, the address and the starter, in this order.
Starter identify(const InitOptions& options, const MeetingPoint& point) {
  const auto rank = options.rank ? options.rank : point.rank;
  const auto size = options.world_size ? options.world_size : point.world_size;
  if (point.kind != MeetingPoint::Kind::kEnvironment) {
    return identify_at(point, rank, size, options.init_method);
  }
  Starter self = ranks::read_starter(platform::environment_variable);
  if ((rank && *rank != self.rank) || (size && *size != self.world_size)) {
    raise<ConfigError>(kInRendezvous, "rank and world_size are ", rank.value_or(self.rank), " and ",
                       size.value_or(self.world_size), ", but the environment of ", self.name,
                       " says ", self.rank, " and ", self.world_size);
  }
  if (self.world_size > 1 && (self.master_address.empty() || self.master_port == 0)) {
    raise<ConfigError>(kInRendezvous, "env:// needs MASTER_ADDR and MASTER_PORT, which ", self.name,
                       " does not set: export them before the start (rank 0's host, a free ",
                       "port), or give init_method tcp://HOST:PORT or file:///PATH");
  }
  return self;
}

// Every rank signs in and waits for the others, so that a missing one is named before any
// transport is built.
void sign_in(Store& store, const Starter& self, std::chrono::milliseconds limit) {
  const auto key = [](int rank) { return "ready/" + std::to_string(rank); };
  if (store.add("claim/" + std::to_string(self.rank), 1) > 1) {
    raise(kInRendezvous, "rank ", self.rank,
          " signed in twice: two processes have this rank, or the ",
          "store (a file?) is left from an earlier run");
  }
  store.set(key(self.rank), std::to_string(self.world_size));
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(self.world_size));
  for (int rank = 0; rank < self.world_size; ++rank) keys.push_back(key(rank));
  const std::vector<int> missing = store.wait(keys, limit);
  if (!missing.empty()) {
    raise(kInRendezvous, "rank ", self.rank, " waited ", limit.count(), " ms for ", missing.size(),
          " of ", self.world_size, " ranks that did not come: ", ranks::listed(missing));
  }
  for (int rank = 0; rank < self.world_size; ++rank) {
    const std::string size = store.get(key(rank));
    if (size != std::to_string(self.world_size)) {
      raise<ConfigError>(kInRendezvous, "rank ", self.rank, " expects ", self.world_size,
                         " ranks, rank ", rank, " expects ", size);
    }
  }
}

// Where the other ranks reach this one.
std::string gloo_address(const Starter& self) {
  if (platform::is_loopback(self.master_address)) return "127.0.0.1";
  std::string towards = platform::address_towards(self.master_address);
  // Debian's machines take their own names for 127.0.1.1.
  const bool is_own_name = platform::is_loopback(towards);
  if (!is_own_name || self.local_world_size >= self.world_size) return towards;
  const std::string outward = platform::outward_address();
  return outward.empty() ? towards : outward;
}

EngineOptions engine_options(const std::shared_ptr<Store>& store, const Starter& self,
                             std::chrono::milliseconds limit) {
  EngineOptions options;
  options.store = store;
  options.timeout = limit;
  options.interface = platform::environment_variable("GLOO_SOCKET_IFNAME").value_or("");
  if (options.interface.empty() && !self.master_address.empty()) {
    options.address = gloo_address(self);
  }
  return options;
}

// Why these ranks cannot have NCCL together; empty if they can. `gpus`: the rank's own GPU each.
std::string why_not_together(const std::vector<std::string>& gpus) {
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty()) return "rank " + std::to_string(rank) + " cannot use it";
    for (std::size_t other = 0; other < rank; ++other) {
      if (gpus[rank] == gpus[other]) {
        return "ranks " + std::to_string(other) + " and " + std::to_string(rank) +
               " share a GPU, which NCCL does not support";
      }
    }
  }
  return {};
}

// NCCL where every rank has it and a GPU of its own; all ranks decide alike.
std::shared_ptr<Engine> cuda_engine(const InitOptions& options, const EngineOptions& engine,
                                    const Starter& self) {
  std::string why = "backend gloo was asked for";
  std::string own;
  std::shared_ptr<Engine> nccl;
  if (options.backend != "gloo") {
    if (const NcclPart* const part = nccl_part(&why)) {
      nccl = part->make_engine(engine, &why);
      if (nccl != nullptr) own = part->gpu_of(self.local_rank);
    }
  }
  const auto key = [](int rank) { return "gpu/" + std::to_string(rank); };
  engine.store->set(key(self.rank), own.empty() ? "none" : own);
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(self.world_size));
  for (int rank = 0; rank < self.world_size; ++rank) keys.push_back(key(rank));
  engine.store->wait(keys, options.timeout);
  std::vector<std::string> gpus;
  gpus.reserve(keys.size());
  for (const std::string& one : keys) {
    const std::string gpu = engine.store->get(one);
    gpus.push_back(gpu == "none" ? "" : gpu);
  }
  if (nccl != nullptr) why = why_not_together(gpus);
  if (nccl != nullptr && why.empty()) return nccl;
  if (options.backend == "nccl") {
    raise<UnsupportedError>(kInRendezvous, "backend nccl cannot be used here: ", why);
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<Session> meet(const InitOptions& given) {
  validate(given);
  InitOptions options = given;
  options.timeout = std::min(given.timeout, kLongest);
  const MeetingPoint point = ranks::parse_init_method(options.init_method);
  const Starter self = identify(options, point);
  Session::Options session;
  session.rank = self.rank;
  session.size = self.world_size;
  session.local_rank = self.local_rank;
  session.timeout = options.timeout;
  session.compare_calls = options.check_collectives;
  if (self.world_size == 1) return std::make_shared<Session>(std::move(session));

  StoreAddress address;
  address.host = self.master_address;
  address.port = self.master_port;
  address.path = point.path;
  address.serve = self.rank == 0 && !self.agent_store;
  address.world_size = self.world_size;
  const std::shared_ptr<Store> whole = open_store(address, options.timeout);
  // Counted in each process: all ranks leave and join a process group equally often.
  static std::atomic<int> generation{0};
  session.store = under_prefix(whole, run_prefix(self.run_id, self.restart_count, ++generation));
  const EngineOptions engine = engine_options(session.store, self, options.timeout);
  try {
    sign_in(*session.store, self, options.timeout);
    session.cuda = cuda_engine(options, engine, self);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    if (!point.path.empty()) {
      raise(kInRendezvous, "the ranks cannot meet in ", options.init_method, ": ",
            text_of(failure));
    }
    raise(kInRendezvous, "the store vanished while rank ", self.rank,
          " waited for the others: its host (rank 0 or the launcher) ended: ", text_of(failure));
  }
  try {
    session.cpu = gloo_engine(engine);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    raise(kInRendezvous, "no network device for Gloo (GLOO_SOCKET_IFNAME '", engine.interface,
          "', address '", engine.address, "'): ", text_of(failure));
  }
  return std::make_shared<Session>(std::move(session));
}

}  // namespace mezzo::parallel
