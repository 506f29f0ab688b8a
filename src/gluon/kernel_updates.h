// The optimizers whose formulas are those of Mezzo's fused kernels, as UpdateByKernels. Rows have
// the scalars of their own place.
#pragma once

#include "gluon/update_rule.h"

namespace mezzo::gluon {

void sgd_by_kernels(const Hyper&, std::span<const ParameterNumbers>, kernels::Lists&,
                    std::span<const kernels::StepRow>);
void adam_by_kernels(const Hyper&, std::span<const ParameterNumbers>, kernels::Lists&,
                     std::span<const kernels::StepRow>);
void adamw_by_kernels(const Hyper&, std::span<const ParameterNumbers>, kernels::Lists&,
                      std::span<const kernels::StepRow>);
void lamb_by_kernels(const Hyper&, std::span<const ParameterNumbers>, kernels::Lists&,
                     std::span<const kernels::StepRow>);

}  // namespace mezzo::gluon
