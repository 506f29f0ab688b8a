// The optimizers' formulas by LibTorch's operators, as UpdateByOperators.
#pragma once

#include "gluon/update_rule.h"

namespace mezzo::gluon {

#define MEZZO_GLUON_UPDATE(name)                                             \
  void name(const Hyper&, const ParameterNumbers&, const at::Tensor& weight, \
            const at::Tensor& grad, std::vector<at::Tensor>& state)

MEZZO_GLUON_UPDATE(sgd_by_operators);
MEZZO_GLUON_UPDATE(nag_by_operators);
MEZZO_GLUON_UPDATE(adam_by_operators);
MEZZO_GLUON_UPDATE(adamw_by_operators);
MEZZO_GLUON_UPDATE(adagrad_by_operators);
MEZZO_GLUON_UPDATE(rmsprop_by_operators);
MEZZO_GLUON_UPDATE(lamb_by_operators);
MEZZO_GLUON_UPDATE(signum_by_operators);

#undef MEZZO_GLUON_UPDATE

/// The factor of MXNet's LAMB on an update, from the norms of weight and update.
double lamb_ratio(const Hyper&, double weight_norm, double update_norm);

}  // namespace mezzo::gluon
