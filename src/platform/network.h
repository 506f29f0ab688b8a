// Hosts, addresses and connections.
#pragma once

#include <chrono>
#include <string>

namespace mezzo::platform {

/// Does this host name resolve? If not, `why` holds the resolver's message.
bool resolves(const std::string& host, std::string* why = nullptr);

/// The numeric address of this machine from which packets to `host` leave; empty if none does.
std::string address_towards(const std::string& host);

/// Does `host` mean the loopback on every machine (127.0.0.0/8, ::1, localhost)? A machine's own
/// name does not, though on that machine it may lead there.
bool is_loopback(const std::string& host);

/// Is it a number of IPv4 or IPv6, and no name?
bool is_numeric_address(const std::string& host);

/// A numeric address of this machine that others may reach; empty if it has none.
std::string outward_address();

/// Waits until a TCP connection to `host` can be made, and closes it again; false if none can be
/// within the limit.
bool wait_connectable(const std::string& host, int port, std::chrono::milliseconds limit);

/// A TCP socket listening at a numeric `address`; `port` 0 lets the system choose. Returns its
/// descriptor and writes the port that was taken. Throws Error (port in use, no such address).
int listen_at(const std::string& address, int& port);

void close_descriptor(int descriptor);

}  // namespace mezzo::platform
