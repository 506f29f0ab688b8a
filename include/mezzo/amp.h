// Automatic mixed precision in three lines: initialize, scale_loss, step.
//
//   auto [model, optimizer] = mezzo::amp::initialize(net, sgd, {.opt_level = "O1"});
//   mezzo::amp::scale_loss(loss, optimizer).backward();
//   optimizer.step();  // skips itself after an overflow
#pragma once

#include "mezzo/checkpoint.h"
#include "mezzo/ema.h"
#include "mezzo/grad_scaler.h"
#include "mezzo/initialize.h"
#include "mezzo/loss_scale.h"
#include "mezzo/model.h"
#include "mezzo/model_values.h"
#include "mezzo/optimizer.h"
#include "mezzo/options.h"
#include "mezzo/scaled_loss.h"
#include "mezzo/schedule.h"
#include "mezzo/state_dict.h"
#include "mezzo/step_result.h"
