// The process group that init_process_group() made.
#pragma once

#include <memory>

#include "mezzo/process_group.h"

namespace mezzo::parallel {

/// Null without one.
std::shared_ptr<detail::Group> current_world();

}  // namespace mezzo::parallel
