// How ranks find each other.
#pragma once

#include <memory>

#include "mezzo/process_group.h"
#include "parallel/session.h"

namespace mezzo::parallel {

/// Finds the peers and opens the transports. Throws as init_process_group().
std::shared_ptr<Session> meet(const InitOptions& given);

}  // namespace mezzo::parallel
