// Random numbers of a device: each call takes a number of the sequence when it is queued, so that
// what it draws does not depend on when it runs.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

namespace mezzo::pretend {

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);

/// The seed for one call's numbers; the generator goes on.
std::uint64_t next_draw(const at::Generator&);

}  // namespace mezzo::pretend
