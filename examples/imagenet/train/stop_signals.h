// SIGTERM and SIGINT as a wish to stop after the step.
#pragma once

namespace examples::imagenet {

/// While it lives, the first of these signals is noted and ends nothing; a second one ends the
/// program as usual. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came here, 0 without one.
  static int noted();

  /// The signal that came on any rank; every rank calls this at the same place.
  static int noted_anywhere();
};

/// 128 + the signal, as a shell has it.
int exit_code_of(int signal);

}  // namespace examples::imagenet
