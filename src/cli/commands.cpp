#include "cli/command.h"

#include <array>

namespace mezzo::cli {

std::span<const Command> commands() {
  static constexpr std::array kCommands{
      Command{"info", "Show versions, devices, and how 16-bit operators are computed here",
              "mezzo info --json", setup_info},
      Command{"lists", "List the operators and their classes, or the levels",
              "mezzo lists --class float --dtype bfloat16 --system apex", setup_lists},
      Command{"explain", "Say in which type an operator runs, at which level, and why",
              "mezzo explain softmax", setup_explain},
      Command{"report", "Show what training runs logged: a table, JSON, a page, TensorBoard files",
              "mezzo report run.jsonl --html run.html", setup_report},
      Command{"advise", "Print what a dry run found should stay float, or its policy file",
              "mezzo advise run.jsonl --dtype float16 >policy.toml", setup_advise},
      Command{"lint", "Say what mixed precision will spoil in a TorchScript file",
              "mezzo lint net.pt", setup_lint},
      Command{"convert", "Make a mixed-precision model from a float32 one (ONNX, TorchScript)",
              "mezzo convert net.onnx -o net16.onnx --profile ort --report net16.html",
              setup_convert},
      Command{"export", "Make an ONNX model of a TorchScript file, and compare the two",
              "mezzo export net.pt -o net.onnx --input 1x3x224x224 --dynamic 0:0=batch",
              setup_export},
      Command{"inspect", "Show what is in an ONNX model: types, operators, ranges, sizes",
              "mezzo inspect net.onnx", setup_inspect},
      Command{"launch", "Start a program in many processes that train one model together",
              "mezzo launch --nproc-per-node 2 -- ./train --epochs 3", setup_launch},
      Command{"bench", "Measure Mezzo on this machine against LibTorch's own ways, in one run",
              "mezzo bench step layers --json bench.jsonl", setup_bench},
      Command{"completions",
              "Print the script by which a shell completes the words of this program",
              "mezzo completions bash >/etc/bash_completion.d/mezzo", setup_completions},
  };
  return kCommands;
}

}  // namespace mezzo::cli
