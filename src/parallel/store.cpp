#include "core/torch.h"  // first: LibTorch's include order

#include "parallel/store.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <exception>
#include <filesystem>
#include <future>
#include <thread>

#include "mezzo/export.h"
#include "parallel/communicator.h"
#include "parallel/engine_store.h"
#include "platform/network.h"
#include "ranks/launcher.h"

namespace mezzo::parallel {
namespace {

constexpr const char* kInStore = "init_process_group";

c10::intrusive_ptr<c10d::TCPStore> serve(const StoreAddress& address,
                                         std::chrono::milliseconds limit) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(address.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.multiTenant = true;
  options.timeout = limit;
  try {
    if (platform::is_loopback(address.host)) {
      // LibTorch would listen at every interface.
      int port = address.port;
      const std::string loopback =
          platform::is_numeric_address(address.host) ? address.host : "127.0.0.1";
      options.masterListenFd = platform::listen_at(loopback, port);
      options.port = static_cast<std::uint16_t>(port);
    }
    return c10::make_intrusive<c10d::TCPStore>(address.host, options);
  } catch (const std::exception& failure) {
    raise(kInStore, "cannot open the store at ", address.host, ":", address.port,
          " (is the port in use? choose another MASTER_PORT): ", text_of(failure));
  }
}

// LibTorch's client waits for ever for one who accepts its connection and never answers, as a
// server of another kind does. The thread then stays where it is.
c10::intrusive_ptr<c10d::TCPStore> client_within(const StoreAddress& address,
                                                 const c10d::TCPStoreOptions& options) {
  using Client = c10::intrusive_ptr<c10d::TCPStore>;
  std::promise<Client> promise;
  std::future<Client> client = promise.get_future();
  std::thread([host = address.host, options, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(c10::make_intrusive<c10d::TCPStore>(host, options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (client.wait_for(options.timeout) != std::future_status::ready) {
    throw std::runtime_error("it did not answer within " + std::to_string(options.timeout.count()) +
                             " ms");
  }
  return client.get();
}

c10::intrusive_ptr<c10d::TCPStore> connect(const StoreAddress& address,
                                           std::chrono::milliseconds limit) {
  if (std::string why; !platform::resolves(address.host, &why)) {
    raise(kInStore, "cannot resolve the master address '", address.host, "': ", why);
  }
  // LibTorch's client tries again as well, but past the limit and with backtraces in the log.
  if (!platform::wait_connectable(address.host, address.port, limit)) {
    raise(kInStore, "nobody answers at the master address ", address.host, ":", address.port,
          " within ", limit.count(), " ms: rank 0 is missing, or MASTER_ADDR or MASTER_PORT are ",
          "not its own");
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(address.port);
  options.waitWorkers = false;
  options.timeout = limit;
  try {
    return client_within(address, options);
  } catch (const std::exception& failure) {
    raise(kInStore, "what answers at the master address ", address.host, ":", address.port,
          " is no store (is MASTER_PORT that of another program?): ", text_of(failure));
  }
}

// LibTorch waits for a folder that is not there, without a message.
void check_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (std::error_code failure; !std::filesystem::is_directory(folder, failure)) {
    raise<ConfigError>(kInStore, "file://", path, ": there is no folder ", folder.string(),
                       "; expected a file in one that all ranks see");
  }
}

}  // namespace

std::shared_ptr<Store> open_store(const StoreAddress& address, std::chrono::milliseconds limit,
                                  int* port_taken) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!address.path.empty()) {
    check_folder(address.path);
    store = c10::make_intrusive<c10d::FileStore>(address.path, address.world_size);
  } else {
    const auto tcp = address.serve ? serve(address, limit) : connect(address, limit);
    if (port_taken != nullptr) *port_taken = tcp->getPort();
    store = tcp;
  }
  store->setTimeout(limit);
  return std::make_shared<EngineStore>(std::move(store));
}

std::shared_ptr<Store> under_prefix(const std::shared_ptr<Store>& store,
                                    const std::string& prefix) {
  const auto& inner = static_cast<const EngineStore&>(*store).engine();
  return std::make_shared<EngineStore>(c10::make_intrusive<c10d::PrefixStore>(prefix, inner));
}

namespace {

constexpr const char* kEnded = "nodes_ended";

class TcpStoreHost final : public ranks::StoreHost {
 public:
  TcpStoreHost(const std::string& address, int port) {
    StoreAddress at;
    at.host = address;
    at.port = port;
    at.serve = true;
    store_ = open_store(at, std::chrono::seconds(10), &port_);
  }
  int port() const override { return port_; }
  std::vector<ranks::FailureRecord> failures(const std::string& run_id) override {
    std::vector<ranks::FailureRecord> records;
    try {
      const auto run = under_prefix(store_, run_prefix(run_id, 0, 1));
      const std::int64_t count = run->add("failure/count", 0);
      for (std::int64_t i = 1; i <= count; ++i) {
        const std::string rank = run->get("failure/order/" + std::to_string(i));
        if (rank.empty()) continue;
        records.push_back({std::stoi(rank), recorded_failure(*run, std::stoi(rank))});
      }
    } catch (const std::exception&) {
      // The records only make the report better: a store that is gone has none.
    }
    return records;
  }
  int ended_nodes(const std::string& run_id) override {
    try {
      return static_cast<int>(under_prefix(store_, run_prefix(run_id, 0, 1))->add(kEnded, 0));
    } catch (const std::exception&) {
      return 0;
    }
  }

 private:
  int port_ = 0;
  std::shared_ptr<Store> store_;
};

void tell_node_ended(const std::string& address, int port, const std::string& run_id) {
  try {
    StoreAddress there;
    there.host = address;
    there.port = port;
    const auto store = open_store(there, std::chrono::seconds(1));
    under_prefix(store, run_prefix(run_id, 0, 1))->add(kEnded, 1);
  } catch (const std::exception&) {
    // Node 0 has ended, and nobody waits for this one.
  }
}

}  // namespace
}  // namespace mezzo::parallel

/// For `mezzo launch`, which starts without LibTorch and loads this library at run time.
extern "C" MEZZO_API mezzo::ranks::StoreHost* mezzo_host_store(const char* address, int port) {
  return new mezzo::parallel::TcpStoreHost(address, port);
}

/// For the launchers of other nodes.
extern "C" MEZZO_API void mezzo_tell_node_ended(const char* address, int port, const char* run_id) {
  mezzo::parallel::tell_node_ended(address, port, run_id);
}
