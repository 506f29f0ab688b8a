#include "imagenet/train/stop_signals.h"

#include <mezzo/process_group.h>
#include <torch/types.h>

#include <csignal>

namespace examples::imagenet {
namespace {

volatile std::sig_atomic_t came = 0;

constexpr int kSignals[] = {SIGTERM, SIGINT};

}  // namespace

StopSignals::StopSignals() {
  came = 0;
  struct sigaction action {};
  action.sa_handler = [](int signal) { came = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

int StopSignals::noted() {
  return came;
}

int StopSignals::noted_anywhere() {
  const int here = came;
  if (!mezzo::parallel::is_initialized() || mezzo::parallel::world_size() == 1) return here;
  const at::Tensor most = torch::full({1}, here, at::kLong);
  mezzo::parallel::world().all_reduce(most, mezzo::parallel::ReduceOp::kMax);
  return most.item<int>();
}

int exit_code_of(int signal) {
  constexpr int kSignalled = 128;
  return kSignalled + signal;
}

}  // namespace examples::imagenet
