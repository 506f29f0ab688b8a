// The suites that `./run bench NAMES` can name. A new one is a file and a row here.
#pragma once

#include <array>
#include <string_view>

#include "harness.h"

namespace mezzo::bench {

void run_amp(Report&, const Settings&);
void run_casting(Report&, const Settings&);
void run_convert(Report&, const Settings&);
void run_cuda(Report&, const Settings&);
void run_deploy(Report&, const Settings&);
void run_distributed(Report&, const Settings&);
void run_data(Report&, const Settings&);
void run_parallel(Report&, const Settings&);
void run_step(Report&, const Settings&);
void run_layers(Report&, const Settings&);
void run_memory(Report&, const Settings&);
void run_train(Report&, const Settings&);

struct Suite {
  std::string_view name;
  std::string_view what;
  void (*run)(Report&, const Settings&);
};

inline constexpr std::array kSuites{
    Suite{"amp", "the handles: steps with enabled = false, and what a skipped step gives back",
          run_amp},
    Suite{"casting", "the casting layer: instructions per operator, weight copies, emulation",
          run_casting},
    Suite{"convert", "mezzo convert as a program: nodes and weights per second", run_convert},
#ifdef MEZZO_WITH_CUDA
    Suite{"cuda", "fused steps and layers on a GPU (with --device cuda)", run_cuda},
#endif
#ifdef MEZZO_WITH_IMAGES
    Suite{"data", "the image loader of examples/imagenet against libjpeg-turbo's own decoding",
          run_data},
#endif
    Suite{"deploy", "an export of 1 GiB, and a converted TorchScript module", run_deploy},
#ifdef MEZZO_WITH_PARALLEL
    Suite{"distributed",
          "a training step of the demo in two processes: what deciding together costs",
          run_distributed},
    Suite{"parallel", "several processes: averages, steps, collectives and copies counted",
          run_parallel},
#endif
    Suite{"step", "fused steps against LibTorch's operators and optimizers, and against memory",
          run_step},
    Suite{"layers", "normalisation and recurrent layers against LibTorch's", run_layers},
    Suite{"memory",
          "bytes of a training step at every level, recomputed, deferred and with split masters",
          run_memory},
    Suite{"train", "whole training steps at every level, against float and LibTorch's autocast",
          run_train},
};

}  // namespace mezzo::bench
