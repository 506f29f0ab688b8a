// The converter as a program: start, reading, deciding, writing. The peer is the time that it may
// take: 50 ms, 30 ms per 1,000 nodes, 1 s per GB of weights.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "convert/onnx/concat.h"
#include "convert/onnx/fields.h"
#include "convert/onnx/wire.h"
#include "core/raise.h"
#include "platform/libraries.h"
#include "suites.h"

namespace mezzo::bench {
namespace {

namespace fs = std::filesystem;
namespace field = convert::field;
using convert::Message;

/// A model in the making; it keeps what its messages look at.
class ModelFile {
 public:
  void matrix_type(Message& parent, std::uint32_t number, std::string_view name) {
    auto shape = std::make_unique<Message>();
    for (int i = 0; i < 2; ++i) shape->add(field::shape::kDimension, std::make_unique<Message>());
    auto tensor = std::make_unique<Message>();
    tensor->add(field::tensor_type::kElement, std::uint64_t{1});
    tensor->add(field::tensor_type::kShape, std::move(shape));
    auto type = std::make_unique<Message>();
    type->add(field::type::kTensor, std::move(tensor));
    auto info = std::make_unique<Message>();
    info->add(field::value_info::kName, name);
    info->add(field::value_info::kType, std::move(type));
    parent.add(number, std::move(info));
  }

  void node(std::string_view op, std::initializer_list<std::string_view> inputs,
            std::string_view output) {
    auto node = std::make_unique<Message>();
    for (const std::string_view in : inputs) node->add(field::node::kInput, in);
    node->add(field::node::kOutput, output);
    node->add(field::node::kName, output);
    node->add(field::node::kOpType, op);
    graph_->add(field::graph::kNode, std::move(node));
  }

  void weight(std::string_view name, std::uint64_t rows, std::uint64_t columns) {
    const std::vector<float> values(rows * columns, 0.125F);
    auto tensor = std::make_unique<Message>();
    tensor->add(field::tensor::kDims, rows);
    tensor->add(field::tensor::kDims, columns);
    tensor->add(field::tensor::kType, std::uint64_t{1});
    tensor->add(field::tensor::kName, name);
    tensor->add(field::tensor::kRawData,
                keep(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4)));
    graph_->add(field::graph::kInitializer, std::move(tensor));
  }

  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }

  void write(const fs::path& path, std::string_view last) {
    matrix_type(*graph_, field::graph::kInput, "x");
    matrix_type(*graph_, field::graph::kOutput, last);
    auto opset = std::make_unique<Message>();
    opset->add(field::opset::kVersion, std::uint64_t{17});
    Message model;
    model.add(field::model::kIrVersion, std::uint64_t{8});
    model.add(field::model::kGraph, std::move(graph_));
    model.add(field::model::kOpsetImport, std::move(opset));
    convert::StringSink sink;
    model.write(sink);
    std::ofstream(path, std::ios::binary) << sink.text;
  }

 private:
  std::unique_ptr<Message> graph_ = std::make_unique<Message>();
  std::deque<std::string> texts_;
};

// Products, sums, and what stays float32 between them, one after the other.
void write_chain(const fs::path& path, int nodes) {
  constexpr std::array<std::string_view, 5> kOps{"MatMul", "Add", "Relu", "Softmax", "Mul"};
  ModelFile file;
  file.weight("w", 2, 2);
  std::string_view last = "x";
  for (int i = 0; i < nodes; ++i) {
    const std::string_view op = kOps[static_cast<std::size_t>(i) % kOps.size()];
    const std::string_view next = file.keep(convert::concat({"v", std::to_string(i)}));
    if (op == "Relu" || op == "Softmax") {
      file.node(op, {last}, next);
    } else {
      file.node(op, {last, "w"}, next);
    }
    last = next;
  }
  file.write(path, last);
}

void write_heavy(const fs::path& path, int megabytes) {
  ModelFile file;
  std::string_view last = "x";
  for (int i = 0; i * 4 < megabytes; ++i) {
    const std::string_view weight = file.keep(convert::concat({"w", std::to_string(i)}));
    const std::string_view next = file.keep(convert::concat({"v", std::to_string(i)}));
    file.weight(weight, 1024, 1024);
    file.node("MatMul", {last, weight}, next);
    last = next;
  }
  file.write(path, last);
}

struct Timing {
  double best = std::numeric_limits<double>::max(), spread = 0;
};

/// Beside this program where it is installed.
std::string converter() {
  const fs::path beside = platform::program_path().parent_path() / "mezzo";
  return fs::exists(beside) ? beside.string() : MEZZO_PROGRAM;
}

Timing time_program(const fs::path& in, const fs::path& out, int repeats) {
  const std::string command =
      converter() + " convert " + in.string() + " -o " + out.string() + " --verify none --quiet";
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    fs::remove(out);
    const auto begin = std::chrono::steady_clock::now();
    if (std::system(command.c_str()) != 0) raise("bench", "'", command, "' failed");
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2] / seconds.front() - 1};
}

}  // namespace

void run_convert(Report& report, const Settings& settings) {
  const fs::path folder = fs::temp_directory_path() / "mezzo_bench_convert";
  fs::create_directories(folder);
  const auto measure = [&](const std::string& name, double nodes, double bytes, int repeats) {
    const Timing timing = time_program(folder / "in.onnx", folder / "out.onnx", repeats);
    report.add({.name = name,
                .ours = timing.best,
                .peer = 0.05 + 0.03 * nodes / 1000 + bytes / 1e9,
                .peer_name = "50 ms + 30 ms per 1,000 nodes + 1 s per GB",
                .spread = timing.spread,
                .target = 1.0,
                .bytes = bytes});
  };
  for (const int nodes : {100, 1000, 10'000, 100'000}) {
    write_chain(folder / "in.onnx", nodes);
    measure("mezzo convert, " + std::to_string(nodes) + " nodes", nodes, 0,
            std::min(settings.repeats, 5));
  }
  for (const int megabytes : {256, 1024}) {
    write_heavy(folder / "in.onnx", megabytes);
    measure("mezzo convert, " + std::to_string(megabytes) + " MB of weights", megabytes / 4.0,
            megabytes * 1048576.0, 3);
  }
  fs::remove_all(folder);
}

}  // namespace mezzo::bench
