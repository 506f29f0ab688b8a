// The parts of this program, in the order of what they teach. A new one is a file and a row here.
#pragma once

#include <array>
#include <string_view>

#include "device_check/device.h"
#include "device_check/results.h"

namespace mezzo::device_check {

void check_facts(const Device&, Results&);
void check_trainings(const Device&, Results&);
void check_features(const Device&, Results&);
void check_waits(const Device&, Results&);
void check_graphs(const Device&, Results&);
void check_streams(const Device&, Results&);
void check_ranks(const Device&, Results&);
void check_whole_steps(const Device&, Results&);

struct Part {
  std::string_view name;
  std::string_view what;
  void (*run)(const Device&, Results&);
};

inline constexpr std::array kParts{
    Part{"facts", "the card, the rate of copies and of matrix products", check_facts},
    Part{"trainings", "trainings at every level against float64 on the CPU", check_trainings},
    Part{"features", "skipped steps, checkpoints, averages of weights, memory", check_features},
    Part{"waits", "host waits in a step", check_waits},
    Part{"graphs", "steps that are captured and replayed", check_graphs},
    Part{"streams", "one model on several streams", check_streams},
    Part{"ranks", "several processes, through NCCL and Gloo", check_ranks},
    Part{"whole", "whole steps of large networks against native autocast", check_whole_steps}};

}  // namespace mezzo::device_check
