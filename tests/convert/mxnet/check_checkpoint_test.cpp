// A graph that MXNet could not bind, or parameters that do not belong to it, are one line that
// names file, node and parameter; nothing is read half.
#include <gmock/gmock.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <functional>

#include "builder.h"
#include "mezzo/convert_mxnet.h"
#include "mezzo/error.h"
#include "mezzo/messages.h"

namespace mezzo::convert::mxnet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A text in which one piece is another; the piece must be there.
std::string with(std::string text, const std::string& piece, const std::string& other) {
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return at == std::string::npos ? text : text.replace(at, piece.size(), other);
}

// Words to the person that a call sends.
std::vector<std::string> messages_of(const std::function<void()>& call) {
  std::vector<std::string> said;
  const MessageSink before =
      set_message_sink([&](const std::string& text) { said.push_back(text); });
  call();
  set_message_sink(before);
  return said;
}

Symbol of_known() {
  return Symbol({{.op = "null", .name = "x"}, {.op = "relu", .name = "r", .inputs = {{0, 0, 0}}}},
                {{1, 0, 0}});
}

class CheckedFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("mezzo_checked_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    graph_ = contents(fs::path(MEZZO_MXNET_DATA) / "small-symbol.json");
    arrays_ = NDArrays::load(fs::path(MEZZO_MXNET_DATA) / "small-0000.params");
  }
  void TearDown() override { fs::remove_all(folder_); }

  NDArrays without(const std::string& name) const {
    NDArrays rest;
    for (const std::string& each : arrays_.names())
      if (each != name) copy(rest, each);
    return rest;
  }
  NDArrays reshaped(const std::string& name, std::vector<std::int64_t> shape,
                    const std::string& dtype = "float32", std::size_t size = 4) const {
    NDArrays changed = arrays_;
    for (const std::int64_t dim : shape) size *= static_cast<std::size_t>(dim);
    changed.set(name, dtype, std::move(shape), std::string(size, '\1'));
    return changed;
  }
  void copy(NDArrays& to, const std::string& name) const {
    to.set(name, arrays_.dtype(name), arrays_.shape(name), std::string(arrays_.bytes(name)));
  }

  // The graph without what Gluon notes of its parameters, as the Module interface writes it.
  std::string bare() const {
    std::string text = graph_;
    for (std::size_t at = text.find("\"__"); at != std::string::npos; at = text.find("\"__", at))
      text.replace(at, 3, "\"_");  // attributes that mean nothing
    return text;
  }

  std::string error(const std::string& graph, const NDArrays& arrays) const {
    save(folder_ / "net-symbol.json", graph);
    arrays.save(folder_ / "net-0000.params");
    try {
      load_checkpoint((folder_ / "net").string(), 0);
    } catch (const ConfigError& error) {
      return std::string("wrong usage: ") + error.what();
    } catch (const Error& error) {
      EXPECT_EQ(std::ranges::count(std::string(error.what()), '\n'), 0);
      return error.what();
    }
    return "no error";
  }
  std::string error_of_graph(const std::string& graph) const { return error(graph, arrays_); }

  auto names(const std::string& file, const std::string& node, const std::string& what) const {
    return AllOf(HasSubstr("'" + (folder_ / file).string() + "'"), HasSubstr("'" + node + "'"),
                 HasSubstr(what));
  }

  fs::path folder_;
  std::string graph_;
  NDArrays arrays_;
};

TEST_F(CheckedFiles, ThatBelongTogetherAreRead) {
  EXPECT_EQ(error(graph_, arrays_), "no error");
  EXPECT_EQ(error(bare(), arrays_), "no error");
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(MEZZO_MXNET_DATA) / "onnx")) {
    const std::string file = entry.path().string();
    if (!file.ends_with("-symbol.json")) continue;
    EXPECT_NO_THROW(load_checkpoint(file.substr(0, file.size() - 12), 0)) << file;
  }
}

TEST_F(CheckedFiles, WithAttributesThatMxnetCannotReadNameNodeAndAttribute) {
  struct Case {
    const char *key, *value, *instead, *node, *said;
  };
  const auto written = [](const std::string& key, const std::string& value) {
    return "\"" + key + "\": \"" + value + "\"";
  };
  for (const auto& [key, value, instead, node, said] : {
           Case{"kernel", "(3, 3)", "(3, x)", "conv_fwd",
                "'kernel' is '(3, x)'; expected whole numbers in parentheses"},
           Case{"kernel", "(3, 3)", "(3, 3", "conv_fwd", "'kernel' is '(3, 3'"},
           Case{"kernel", "(3, 3)", "3x3", "conv_fwd", "'kernel' is '3x3'"},
           Case{"kernel", "(3, 3)", "", "conv_fwd", "'kernel' is ''"},
           Case{"kernel", "(3, 3)", "()", "conv_fwd", "expected a kernel of 1 to 3 sizes above 0"},
           Case{"stride", "(1, 1)", "(1,)", "conv_fwd",
                "as many entries of 'stride' as of 'kernel'"},
           Case{"num_filter", "4", "4.0", "conv_fwd", "expected a whole number from 0"},
           Case{"num_group", "1", "3", "conv_fwd", "num_group among its divisors"},
           Case{"no_bias", "False", "nein", "conv_fwd", "expected True or False"},
           Case{"layout", "NCHW", "NCHHW", "conv_fwd", "expected one of None,"},
           Case{"eps", "1e-05", "small", "norm_fwd", "expected a number"},
           Case{"axis", "1", "7", "norm_fwd", "an axis that the data"},
           Case{"act_type", "relu", "rleu", "relu_fwd", "expected one of relu,"},
           Case{"num_hidden", "2", "two", "dense_fwd", "expected a whole number"},
       }) {
    EXPECT_THAT(error_of_graph(with(graph_, written(key, value), written(key, instead))),
                names("net-symbol.json", node, said))
        << instead;
  }
  EXPECT_THAT(error_of_graph(with(graph_, "\"kernel\"", "\"kernal\"")),
              names("net-symbol.json", "conv_fwd",
                    "'kernel' is missing; expected whole numbers in parentheses, such as (3, 3); "
                    "'kernal' is written"));
  EXPECT_EQ(error_of_graph(with(graph_, written("kernel", "(3, 3)"), written("kernel", "[3L, 3]"))),
            "no error")
      << "as Python 2 wrote it";
}

TEST_F(CheckedFiles, OfWhichAnOperatorLacksAnInputNameIt) {
  const std::string three = "\"inputs\": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]";
  EXPECT_THAT(error_of_graph(with(graph_, three, "\"inputs\": [[0, 0, 0]]")),
              names("net-symbol.json", "conv_fwd", "lacks its input 'weight'"));
  EXPECT_THAT(error_of_graph(with(graph_, three, "\"inputs\": [[0, 0, 0], [1, 0, 0]]")),
              names("net-symbol.json", "conv_fwd", "lacks its input 'bias'"));
  EXPECT_THAT(error_of_graph(with(graph_, R"("no_bias": "False")", R"("no_bias": "True")")),
              names("net-symbol.json", "conv_fwd", "has 3 inputs; expected 2: data, weight"));
  EXPECT_THAT(error_of_graph(with(graph_, "[6, 0, 1], [7, 0, 1]]", "[6, 0, 1]]")),
              names("net-symbol.json", "norm_fwd", "lacks its input 'moving_var'"));
  EXPECT_THAT(error_of_graph(with(graph_, "\"inputs\": [[8, 0, 0]]", "\"inputs\": []")),
              names("net-symbol.json", "relu_fwd", "lacks its input 'data'"));
}

TEST_F(CheckedFiles, OfWhichAParameterIsMissingNameIt) {
  for (const std::string& name : arrays_.names()) {
    const std::string own = name.substr(4);  // without "arg:" or "aux:"
    const std::string node = own.substr(0, own.find('_')) + "_fwd";
    for (const std::string& graph : {graph_, bare()}) {
      EXPECT_THAT(error(graph, without(name)),
                  AllOf(names("net-symbol.json", node, "'" + own + "'"),
                        HasSubstr("'" + (folder_ / "net-0000.params").string() + "'"),
                        HasSubstr("is not among the parameters")));
    }
  }
}

TEST_F(CheckedFiles, WithAShapeThatDoesNotFitNameParameterAndReader) {
  struct Case {
    const char* name;
    std::vector<std::int64_t> shape;
    const char *node, *expected;
  };
  for (const auto& [name, shape, node, expected] :
       {Case{"conv_weight", {8, 3, 3, 3}, "conv_fwd", "expected (4, ?, 3, 3)"},
        Case{"conv_weight", {4, 3, 5, 5}, "conv_fwd", "expected (4, ?, 3, 3)"},
        Case{"conv_weight", {4, 27}, "conv_fwd", "expected (4, ?, 3, 3)"},
        Case{"conv_bias", {5}, "conv_fwd", "expected (4,)"},
        Case{"norm_gamma", {5}, "norm_fwd", "expected (4,)"},
        Case{"norm_running_mean", {4, 1}, "norm_fwd", "expected (4,)"},
        Case{"dense_weight", {3, 144}, "dense_fwd", "expected (2, ?)"},
        Case{"dense_bias", {2, 1}, "dense_fwd", "expected (2,)"}}) {
    const std::string key =
        (std::string(name).find("running") == std::string::npos ? "arg:" : "aux:") +
        std::string(name);
    EXPECT_THAT(
        error(bare(), reshaped(key, shape)),
        AllOf(names("net-0000.params", name, expected), HasSubstr("'" + std::string(node) + "'")));
    EXPECT_THAT(
        error(graph_, reshaped(key, shape)),
        AllOf(names("net-0000.params", name, "says"), HasSubstr("'" + std::string(node) + "'")));
  }
}

TEST_F(CheckedFiles, WithATypeThatTheOperatorDoesNotTakeNameIt) {
  EXPECT_THAT(error(graph_, reshaped("arg:conv_weight", {4, 3, 3, 3}, "int32")),
              names("net-0000.params", "conv_weight", "the type int32"));
  EXPECT_THAT(error(graph_, reshaped("arg:conv_weight", {4, 3, 3, 3}, "float64", 8)),
              names("net-0000.params", "conv_bias", "expected one type"));
  EXPECT_EQ(error(graph_, reshaped("arg:conv_weight", {4, 3, 3, 3}, "float16", 2)), "no error");
}

TEST_F(CheckedFiles, WithTwoValuesForOneNameAreRefused) {
  EXPECT_THAT(error_of_graph(with(graph_, R"("name": "conv_bias")", R"("name": "norm_gamma")")),
              names("net-symbol.json", "norm_gamma", "two variables"));
  NDArrays both = arrays_;
  both.set("arg:norm_running_var", "float32", {4}, std::string(16, '\1'));
  EXPECT_THAT(error(graph_, both), names("net-0000.params", "norm_running_var", "as a statistic"));
  both.set("arg:norm_running_var", "float32", {4},
           std::string(arrays_.bytes("aux:norm_running_var")));
  EXPECT_EQ(error(graph_, both), "no error") << "the same value";
  both = arrays_;
  both.set("conv_bias", "float32", {4}, std::string(16, '\1'));
  EXPECT_THAT(error(graph_, both), HasSubstr("two arrays 'conv_bias'"));
}

TEST_F(CheckedFiles, WithReferencesToNothingAreRefused) {
  EXPECT_THAT(error_of_graph(with(graph_, "\"arg_nodes\": [0, 1,", "\"arg_nodes\": [0, 99,")),
              HasSubstr("arg_nodes names node 99, which is not there"));
  EXPECT_THAT(error_of_graph(with(graph_, "\"arg_nodes\": [0, 1,", "\"arg_nodes\": [0, 3,")),
              HasSubstr("node 3 ('conv_fwd'), which is no variable"));
  EXPECT_THAT(error_of_graph(with(graph_, "\"heads\"", "\"haeds\"")), HasSubstr("no list 'heads'"));
  EXPECT_THAT(error_of_graph(with(graph_, "[[12, 0, 0]]", "[[44, 0, 0]]")), HasSubstr("node 44"));
  EXPECT_THAT(error_of_graph(with(graph_, "[[0, 0, 0], [1,", "[[12, 0, 0], [1,")),
              HasSubstr("node 3 ('conv_fwd') reads output 0 of node 12"));
}

// The channels that one operator gives are what the next one reads.
TEST_F(CheckedFiles, AreHeldAgainstEachOtherBeyondOneOperator) {
  const auto node = [](const char* op, const char* name, std::vector<Entry> inputs,
                       std::map<std::string, std::string> attrs = {}) {
    return Node{.op = op, .name = name, .attrs = std::move(attrs), .inputs = std::move(inputs)};
  };
  const std::map<std::string, std::string> eight{
      {"kernel", "(3, 3)"}, {"num_filter", "8"}, {"no_bias", "True"}};
  const Symbol symbol({node("null", "data", {}), node("null", "w1", {}), node("null", "w2", {}),
                       node("Convolution", "first", {{0, 0, 0}, {1, 0, 0}}, eight),
                       node("Activation", "relu", {{3, 0, 0}}, {{"act_type", "relu"}}),
                       node("Convolution", "second", {{4, 0, 0}, {2, 0, 0}}, eight)},
                      {{5, 0, 0}});
  const auto error_with = [&](std::int64_t channels) -> std::string {
    Checkpoint checkpoint{symbol, {}, {}};
    checkpoint.arg_params.set("w1", "float32", {8, 3, 3, 3}, std::string(864, '\0'));
    checkpoint.arg_params.set("w2", "float32", {8, channels, 3, 3},
                              std::string(static_cast<std::size_t>(288 * channels), '\0'));
    try {
      convert_model(checkpoint);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with(8), "no error");
  EXPECT_THAT(error_with(4),
              HasSubstr("'w2' is (8, 4, 3, 3), which node 'second' (Convolution) of the "
                        "graph cannot read as its weight; expected (8, 8, 3, 3)"));
}

// Lengths of all weights in one list, as MXNet 1.9.1 infers them for data of 6
// features.
TEST_F(CheckedFiles, OfRecurrentLayersHaveAsManyWeightsAsMxnetSays) {
  struct Case {
    const char *mode, *both, *projection;
    std::int64_t layers, length;
  };
  for (const auto& [mode, both, projection, layers, length] :
       {Case{"lstm", "False", "None", 2, 500}, Case{"lstm", "False", "3", 2, 410},
        Case{"gru", "True", "None", 1, 390}, Case{"rnn_relu", "False", "None", 3, 185}}) {
    const bool is_lstm = std::string(mode) == "lstm";
    std::vector<Node> nodes{{.op = "null", .name = "x"},
                            {.op = "null", .name = "weights"},
                            {.op = "null", .name = "state"},
                            {.op = "null", .name = "cell"},
                            {.op = "RNN",
                             .name = "rnn",
                             .attrs = {{"mode", mode},
                                       {"bidirectional", both},
                                       {"projection_size", projection},
                                       {"state_size", "5"},
                                       {"num_layers", std::to_string(layers)}},
                             .inputs = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}}}};
    if (is_lstm) nodes.back().inputs.push_back({3, 0, 0});
    const Symbol symbol(nodes, {{4, 0, 0}});
    for (const std::int64_t wrong : {0, 1}) {
      Checkpoint checkpoint{symbol, {}, {}};
      checkpoint.arg_params.set("weights", "float32", {length + wrong},
                                std::string(static_cast<std::size_t>(4 * (length + wrong)), '\0'));
      if (wrong == 0) {
        EXPECT_NO_THROW(convert_model(checkpoint)) << mode << length;
      } else {
        EXPECT_THROW(convert_model(checkpoint), Error) << mode << length;
      }
    }
  }
}

TEST_F(CheckedFiles, OfOtherLayersAreHeldAgainstTheirOperatorsToo) {
  struct Case {
    const char* op;
    std::map<std::string, std::string> attrs;
    std::vector<std::vector<std::int64_t>> fitting;
    std::vector<std::int64_t> wrong;  // of the first
  };
  for (const auto& [op, attrs, fitting, wrong] :
       {Case{"Deconvolution",
             {{"kernel", "(2, 2)"}, {"num_filter", "6"}, {"num_group", "2"}},
             {{4, 3, 2, 2}},
             {4, 6, 2, 2}},
        Case{"Embedding", {{"input_dim", "9"}, {"output_dim", "5"}}, {{9, 5}}, {5, 9}},
        Case{"LayerNorm", {}, {{7}, {7}}, {1, 7}}, Case{"InstanceNorm", {}, {{7}, {7}}, {7, 1}},
        Case{"GroupNorm", {{"num_groups", "3"}}, {{3}, {3}}, {3, 1}},
        Case{"_npx_fully_connected",
             {{"num_hidden", "4"}, {"flatten", "False"}},
             {{4, 6}, {4}},
             {6, 4}},
        Case{"Convolution",
             {{"kernel", "(3, 2)"}, {"num_filter", "4"}, {"layout", "NHWC"}, {"no_bias", "True"}},
             {{4, 3, 2, 8}},
             {4, 8, 3, 2}}}) {
    const auto error_when = [&](bool is_wrong) -> std::string {
      Checkpoint checkpoint;
      std::vector<Node> nodes{{.op = "null", .name = "x"}};
      Node last{.op = op, .name = "it", .attrs = attrs, .inputs = {{0, 0, 0}}};
      for (std::size_t i = 0; i < fitting.size(); ++i) {
        nodes.push_back({.op = "null", .name = "p" + std::to_string(i)});
        last.inputs.push_back({static_cast<std::uint32_t>(i + 1), 0, 0});
        const auto& shape = is_wrong && i == 0 ? wrong : fitting[i];
        std::size_t size = 4;
        for (const std::int64_t dim : shape) size *= static_cast<std::size_t>(dim);
        checkpoint.arg_params.set(nodes.back().name, "float32", shape, std::string(size, '\0'));
      }
      nodes.push_back(last);
      checkpoint.symbol = Symbol(nodes, {{static_cast<std::uint32_t>(nodes.size() - 1), 0, 0}});
      try {
        convert_model(checkpoint);
      } catch (const Error& error) {
        return error.what();
      }
      return "no error";
    };
    EXPECT_EQ(error_when(false), "no error") << op;
    EXPECT_THAT(error_when(true),
                AllOf(HasSubstr("'p0'"), HasSubstr("node 'it'"), HasSubstr("expected")))
        << op;
  }
}

TEST_F(CheckedFiles, WithAnOperatorThatNobodyKnowsSayItByName) {
  Checkpoint checkpoint;
  checkpoint.symbol = Symbol({{.op = "null", .name = "x"},
                              {.op = "my_company_relu", .name = "mine", .inputs = {{0, 0, 0}}},
                              {.op = "sofmax", .name = "typo", .inputs = {{1, 0, 0}}}},
                             {{2, 0, 0}});
  Checkpoint made;
  const std::vector<std::string> said = messages_of([&] { made = convert_model(checkpoint); });
  EXPECT_THAT(said, testing::ElementsAre(AllOf(HasSubstr("'my_company_relu' (node 'mine')"),
                                               HasSubstr("it is kept")),
                                         AllOf(HasSubstr("'sofmax' (node 'typo')"),
                                               HasSubstr("did you mean"), HasSubstr("'softmax'"))));
  EXPECT_EQ(made.symbol.nodes().at(1).op, "my_company_relu");
  EXPECT_THAT(messages_of([&] { convert_model({of_known(), {}, {}}); }), IsEmpty());
}

TEST_F(CheckedFiles, WithParametersThatTheGraphLacksKeepThemAndSaySo) {
  NDArrays more = arrays_;
  more.set("arg:extra", "float32", {1}, std::string(4, '\0'));
  EXPECT_EQ(error(graph_, more), "no error");
  const Checkpoint read = load_checkpoint((folder_ / "net").string(), 0);
  Checkpoint made;
  EXPECT_THAT(messages_of([&] { made = convert_model(read); }),
              testing::ElementsAre(HasSubstr("none of these parameters, which are kept: 'extra'")));
  EXPECT_TRUE(made.arg_params.contains("extra"));
}

TEST_F(CheckedFiles, WithAMisspelledAttributeSaySo) {
  save(folder_ / "net-symbol.json", with(graph_, "\"stride\"", "\"strid\""));
  arrays_.save(folder_ / "net-0000.params");
  const Checkpoint read = load_checkpoint((folder_ / "net").string(), 0);
  EXPECT_THAT(messages_of([&] { convert_model(read); }),
              testing::ElementsAre(AllOf(HasSubstr("node 'conv_fwd'"),
                                         HasSubstr("'strid'; did you mean 'stride'"))));
}

// A .npz of these arrays, as numpy writes it.
std::string npz_of(const NDArrays& arrays, bool is_deflated) {
  std::string out, directory;
  const auto put = [](std::string& to, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i, value >>= 8) to += static_cast<char>(value);
  };
  for (const std::string& name : arrays.names()) {
    std::string shape;
    for (const std::int64_t dim : arrays.shape(name)) shape += std::to_string(dim) + ", ";
    const std::string header =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }\n";
    std::string array("\x93NUMPY\x01\x00", 8);
    put(array, header.size(), 2);
    (array += header) += arrays.bytes(name);
    std::string packed = array;
    if (is_deflated) {
      uLongf size = compressBound(array.size());
      packed.resize(size);
      compress(reinterpret_cast<Bytef*>(packed.data()), &size,
               reinterpret_cast<const Bytef*>(array.data()), array.size());
      packed = packed.substr(2, size - 6);  // without zlib's own header and checksum
    }
    const std::string file = name + ".npy";
    std::string facts;
    put(facts, is_deflated ? 8 : 0, 2);
    put(facts, 0, 4);
    put(facts, crc32_z(0, reinterpret_cast<const Bytef*>(array.data()), array.size()), 4);
    put(facts, packed.size(), 4);
    put(facts, array.size(), 4);
    put(facts, file.size(), 2);
    put(facts, 0, 2);
    const std::size_t place = out.size();
    put(out, 0x04034B50, 4);
    put(out, 20, 2);
    put(out, 0, 2);
    out += facts + file + packed;
    put(directory, 0x02014B50, 4);
    put(directory, 20, 2);
    put(directory, 20, 2);
    put(directory, 0, 2);
    directory += facts;
    put(directory, 0, 10);  // comment, disk, attributes
    put(directory, place, 4);
    directory += file;
  }
  const std::size_t start = out.size();
  out += directory;
  put(out, 0x06054B50, 4);
  put(out, 0, 4);
  put(out, arrays.size(), 2);
  put(out, arrays.size(), 2);
  put(out, directory.size(), 4);
  put(out, start, 4);
  put(out, 0, 2);
  return out;
}

TEST_F(CheckedFiles, OfNumpyAreNeverReadAsOtherNumbers) {
  for (const bool is_deflated : {false, true}) {
    const std::string bytes = npz_of(arrays_, is_deflated);
    const NDArrays read = NDArrays::from_bytes(bytes, "p.npz");
    ASSERT_EQ(read.names().size(), arrays_.names().size());
    for (const std::string& name : arrays_.names())
      EXPECT_EQ(read.bytes(name), arrays_.bytes(name));
    std::size_t noticed = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      std::string turned = bytes;
      turned[at] = static_cast<char>(turned[at] ^ (1 << at % 8));
      try {
        const NDArrays other = NDArrays::from_bytes(turned, "p.npz");
        for (const std::string& name : arrays_.names())
          if (other.contains(name)) {
            EXPECT_EQ(other.bytes(name), arrays_.bytes(name)) << at;
            EXPECT_EQ(other.shape(name), arrays_.shape(name)) << at;
          }
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("'p.npz")) << at;
        ++noticed;
      }
    }
    EXPECT_GT(noticed, bytes.size() / 2);
  }
  std::string twice = npz_of(arrays_, false);
  for (std::size_t at = twice.find("norm_gamma.npy"); at != std::string::npos;
       at = twice.find("norm_gamma.npy", at))
    twice.replace(at, 14, "dense_bias.npy");
  EXPECT_THROW(NDArrays::from_bytes(twice, "p.npz"), Error);
}

}  // namespace
}  // namespace mezzo::convert::mxnet
