// The options of any fused optimizer in an archive, each under its name. A source that defines an
// optimizer instantiates FusedOptions for its options.
#pragma once

#include <torch/serialize/archive.h>

#include "mezzo/optim.h"

namespace mezzo::optim {

template <typename Derived>
void FusedOptions<Derived>::serialize(torch::serialize::OutputArchive& archive) const {
  Derived::each(static_cast<const Derived&>(*this), [&](const char* name, const auto& value) {
    archive.write(name, c10::IValue(value));
  });
}

template <typename Derived>
void FusedOptions<Derived>::serialize(torch::serialize::InputArchive& archive) {
  Derived::each(static_cast<Derived&>(*this), [&](const char* name, auto& value) {
    c10::IValue saved;
    if (archive.try_read(name, saved)) value = saved.to<std::decay_t<decltype(value)>>();
  });
}

}  // namespace mezzo::optim
