#include "ranks/starter.h"

#include <charconv>
#include <string_view>

#include "core/raise.h"

namespace mezzo::ranks {
namespace {

constexpr const char* kInStarter = "init_process_group";

int to_number(std::string_view name, std::string_view text) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) {
    raise<ConfigError>(kInStarter, name, " is '", text, "', expected a whole number");
  }
  return value;
}

// The variables of one kind of starter.
struct Dialect {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  bool needs_master;
};

constexpr Dialect kDialects[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"PMIx", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE", false},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", true},
};

void check_range(const Starter& s) {
  if (s.world_size < 1) {
    raise<ConfigError>(kInStarter, "the world size is ", s.world_size, ", expected at least 1");
  }
  if (s.rank < 0 || s.rank >= s.world_size) {
    raise<ConfigError>(kInStarter, "the rank is ", s.rank, ", expected 0 to ", s.world_size - 1);
  }
  if (s.local_rank < 0) {
    raise<ConfigError>(kInStarter, "the local rank is ", s.local_rank, ", expected 0 or more");
  }
}

void check_port(std::string_view what, int port) {
  if (port < 1 || port > 65535) {
    raise<ConfigError>(kInStarter, what, " is ", port, ", expected 1 to 65535");
  }
}

Starter starter_of(const Dialect& dialect, const Variables& variables) {
  const auto number = [&](const char* name) -> std::optional<int> {
    const auto text = variables(name);
    return text ? std::optional(to_number(name, *text)) : std::nullopt;
  };
  Starter s;
  s.name = dialect.name;
  s.rank = number(dialect.rank).value();
  s.world_size = number(dialect.world_size).value();
  s.local_rank = number(dialect.local_rank).value_or(s.rank);
  s.local_world_size = number(dialect.local_world_size).value_or(0);
  s.master_address = variables("MASTER_ADDR").value_or("");
  s.master_port = number("MASTER_PORT").value_or(0);
  if (s.master_port != 0) check_port("MASTER_PORT", s.master_port);
  s.agent_store = variables("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  s.run_id = variables("TORCHELASTIC_RUN_ID").value_or("none");
  s.restart_count = number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  check_range(s);
  return s;
}

}  // namespace

Starter read_starter(const Variables& variables) {
  const bool has_master = variables("MASTER_ADDR").has_value();
  // `srun --mpi=pmix` sets PMIX_RANK and no size of that name: what one starter left half said
  // another may say whole.
  std::string half;
  for (const Dialect& dialect : kDialects) {
    const bool has_rank = variables(dialect.rank).has_value();
    const bool has_size = variables(dialect.world_size).has_value();
    if (dialect.needs_master && !has_master) continue;
    if (has_rank && has_size) return starter_of(dialect, variables);
    if (has_rank == has_size || !half.empty()) continue;
    half = std::string(has_rank ? dialect.rank : dialect.world_size) + " is set but " +
           (has_rank ? dialect.world_size : dialect.rank) + " is not";
    // These two are set by hand too, and then meant.
    if (has_rank && &dialect == kDialects) break;
  }
  if (!half.empty()) {
    raise<ConfigError>(kInStarter, half,
                       ": a process starter such as `mezzo launch` or torchrun sets ", "both");
  }
  raise<ConfigError>(
      kInStarter,
      "env:// found no starter's variables (RANK and WORLD_SIZE, those of Open MPI, PMI or ",
      "Slurm with MASTER_ADDR): start the program with `mezzo launch` or torchrun, or give ",
      "init_method tcp://HOST:PORT with rank and world_size");
}

namespace {

void parse_query(std::string_view query, MeetingPoint& point) {
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view item = query.substr(0, end);
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
    if (key == "rank") {
      point.rank = to_number(key, value);
    } else if (key == "world_size") {
      point.world_size = to_number(key, value);
    } else {
      raise<ConfigError>(kInStarter, "unknown parameter '", key,
                         "' in init_method; expected rank or world_size");
    }
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
  }
}

void parse_tcp(std::string_view address, MeetingPoint& point) {
  while (!address.empty() && address.back() == '/') address.remove_suffix(1);
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || address.back() == ']') {
    raise<ConfigError>(kInStarter, "'tcp://", address, "' has no port; expected tcp://HOST:PORT");
  }
  std::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  point.kind = MeetingPoint::Kind::kTcp;
  point.host = host;
  point.port = to_number("the port", address.substr(colon + 1));
  check_port("the port", point.port);
}

}  // namespace

MeetingPoint parse_init_method(const std::string& text) {
  MeetingPoint point;
  std::string_view rest = text;
  const std::size_t question = rest.find('?');
  if (question != std::string_view::npos) {
    parse_query(rest.substr(question + 1), point);
    rest = rest.substr(0, question);
  }
  if (rest == "env://") return point;
  if (rest.substr(0, 6) == "tcp://") {
    parse_tcp(rest.substr(6), point);
  } else if (rest.substr(0, 7) == "file://" && rest.size() > 7) {
    point.kind = MeetingPoint::Kind::kFile;
    point.path = rest.substr(7);
  } else {
    raise<ConfigError>(kInStarter, "unknown init_method '", text,
                       "'; expected env://, tcp://HOST:PORT or file:///PATH");
  }
  return point;
}

}  // namespace mezzo::ranks
