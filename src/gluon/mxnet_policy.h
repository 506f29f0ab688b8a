// A policy by MXNet's lists.
#pragma once

#include "mezzo/gluon.h"

namespace mezzo::gluon {

/// The policy that init's options mean. Throws ConfigError for anything that is wrong with them.
Policy policy_of(const InitOptions& options);

/// Do both mean the same?
bool same_options(const InitOptions& a, const InitOptions& b);

}  // namespace mezzo::gluon
