#include "platform/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "core/raise.h"

namespace mezzo::platform {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int& failure) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  failure = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return {failure == 0 ? found : nullptr, freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

}  // namespace

bool resolves(const std::string& host, std::string* why) {
  int failure = 0;
  resolve(host, failure);
  if (failure != 0 && why != nullptr) *why = gai_strerror(failure);
  return failure == 0;
}

std::string address_towards(const std::string& host) {
  int failure = 0;
  const Addresses found = resolve(host, failure);
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    sockaddr_storage target{};
    std::memcpy(&target, to->ai_addr, to->ai_addrlen);
    // A datagram socket's connect() sends nothing: it only asks the routing table.
    const int descriptor = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    reinterpret_cast<sockaddr_in*>(&target)->sin_port = htons(9);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool known =
        connect(descriptor, reinterpret_cast<sockaddr*>(&target), to->ai_addrlen) == 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    close(descriptor);
    if (known) return numeric(reinterpret_cast<sockaddr*>(&own), size);
  }
  return "";
}

bool is_loopback(const std::string& host) {
  in_addr number{};
  if (inet_pton(AF_INET, host.c_str(), &number) == 1) return host.rfind("127.", 0) == 0;
  return host == "::1" || host == "localhost" || host == "localhost.localdomain";
}

namespace {

// Either family has its port at the same place.
std::optional<socklen_t> fill_address(const std::string& text, int port, sockaddr_storage& at) {
  auto* const four = reinterpret_cast<sockaddr_in*>(&at);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&at);
  four->sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    return sizeof *four;
  }
  if (inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    return sizeof *six;
  }
  return std::nullopt;
}

}  // namespace

bool is_numeric_address(const std::string& host) {
  sockaddr_storage unused{};
  return fill_address(host, 0, unused).has_value();
}

std::string outward_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const bool leads_out = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (one->ifa_addr == nullptr || !leads_out || one->ifa_addr->sa_family != AF_INET) continue;
    return numeric(one->ifa_addr, sizeof(sockaddr_in));
  }
  return "";
}

namespace {

bool can_connect(const addrinfo& to, int port, std::chrono::milliseconds limit) {
  const int descriptor = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return false;
  sockaddr_storage target{};
  std::memcpy(&target, to.ai_addr, to.ai_addrlen);
  reinterpret_cast<sockaddr_in*>(&target)->sin_port = htons(static_cast<std::uint16_t>(port));
  int failure = 0;
  if (connect(descriptor, reinterpret_cast<sockaddr*>(&target), to.ai_addrlen) != 0) {
    failure = errno;
    pollfd ready{descriptor, POLLOUT, 0};
    socklen_t size = sizeof failure;
    if (failure == EINPROGRESS && poll(&ready, 1, static_cast<int>(limit.count())) == 1) {
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &size);
    }
  }
  close(descriptor);
  return failure == 0;
}

}  // namespace

bool wait_connectable(const std::string& host, int port, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limit;
  while (true) {
    int failure = 0;
    const Addresses found = resolve(host, failure);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      if (can_connect(*to, port, std::max(left, std::chrono::milliseconds(1)))) return true;
    }
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

int listen_at(const std::string& address, int& port) {
  sockaddr_storage at{};
  const std::optional<socklen_t> filled = fill_address(address, port, at);
  if (!filled) raise("process", "'", address, "' is no numeric address");
  const int descriptor = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  socklen_t size = *filled;
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      listen(descriptor, SOMAXCONN) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    const int why = errno;
    close(descriptor);
    raise("process", "cannot listen at ", address, ", port ", port, ": ", std::strerror(why));
  }
  port = ntohs(reinterpret_cast<sockaddr_in*>(&at)->sin_port);
  return descriptor;
}

void close_descriptor(int descriptor) {
  close(descriptor);
}

}  // namespace mezzo::platform
