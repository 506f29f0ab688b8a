#include "report/diagnosis_steps.h"

namespace mezzo::report {

std::vector<Skips> skips_of(const Run& run) {
  std::vector<Skips> all;
  StepTaken before{.scale = 0};
  for (const StepTaken& now : run.steps) {
    if (const std::int64_t count = now.skipped_steps - before.skipped_steps; count > 0) {
      all.push_back({before.step + 1, now.step, now.epoch, count, before.scale, now.scale});
    }
    before = now;
  }
  return all;
}

Turns turns_of(const Run& run) {
  Turns turns;
  int direction = 0;
  const StepTaken* before = nullptr;
  std::int64_t skipped_before_first = 0;
  for (const StepTaken& now : run.steps) {
    const int moved = before == nullptr || now.scale == before->scale ? 0
                      : now.scale > before->scale                     ? 1
                                                                      : -1;
    if (moved != 0 && direction != 0 && moved != direction) {
      if (turns.count++ == 0) {
        turns.first_step = now.step;
        skipped_before_first = before->skipped_steps;
      }
      turns.last_step = now.step;
      turns.skipped = now.skipped_steps - skipped_before_first;
    }
    if (moved != 0) direction = moved;
    before = &now;
  }
  return turns;
}

}  // namespace mezzo::report
