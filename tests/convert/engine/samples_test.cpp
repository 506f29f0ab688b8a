// Calibration samples: files of NumPy and ONNX, and what of them does not fit a model.
#include "convert/engine/samples.h"

#include <gmock/gmock.h>

#include "builder.h"
#include "convert/judge/judge.h"
#include "convert/onnx/texts.h"
#include "corpus.h"
#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

template <typename T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& values,
                bool by_columns = false) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + (by_columns ? "True" : "False") +
                       ", 'shape': " + shape + ", }\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  return bytes + header +
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST(NumpyFiles, HoldStrings) {
  const std::u32string wide{U"ab\0né\0😀xy", 9};
  const Array read =
      read_npy(npy("<U3", "(3,)", std::vector<char32_t>(wide.begin(), wide.end())), "x");
  EXPECT_EQ(read.element, Element::kString);
  EXPECT_EQ(texts_of(read), (std::vector<std::string>{"ab", "né", "😀xy"}));
  const std::string narrow{"one\0\0\0two\0\0\0three\0four\0\0", 24};  // by columns
  const std::vector<char> bytes(narrow.begin(), narrow.end());
  EXPECT_EQ(texts_of(read_npy(npy("|S6", "(2, 2)", bytes, true), "x")),
            (std::vector<std::string>{"one", "three", "two", "four"}));
  EXPECT_THROW(read_npy(npy("<U4", "(9,)", bytes), "x"), Error);
  EXPECT_THROW(read_npy(npy("<U0", "(1,)", bytes), "x"), Error);
  EXPECT_THROW(read_npy(npy("<Ux", "(1,)", bytes), "x"), Error);
  EXPECT_THROW(read_npy(npy("<U99999999999999999999", "(1,)", bytes), "x"), Error);
}

TEST(NumpyFiles, CountByRowsHoweverTheyWereWritten) {
  const std::vector<float> by_columns{1, 4, 2, 5, 3, 6};  // of [[1, 2, 3], [4, 5, 6]]
  const Array array = read_npy(npy("<f4", "(2, 3)", by_columns, true), "x");
  EXPECT_EQ(array.dims, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(array.values(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  // [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
  const std::vector<std::int64_t> cube{1, 5, 3, 7, 2, 6, 4, 8};
  EXPECT_EQ(read_npy(npy("<i8", "(2, 2, 2)", cube, true), "x").values(),
            (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(read_npy(npy("<f4", "(3,)", std::vector<float>{1, 2, 3}, true), "x").values(),
            (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read_npy(npy("<f4", "(0, 3)", std::vector<float>{}, true), "x").count(), 0U);
}

class Samples : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("samples");
    GraphBuilder g;
    g.input("x", Element::kFloat, {2, -1}).input("n", Element::kInt64, {1});
    g.node("Relu", {"x"}, {"y"}).output("y", Element::kFloat, {2, -1});
    save(folder_ / "in.onnx", model(g.take()));
    save(folder_ / "n.npy", npy("<i8", "(1,)", std::vector<std::int64_t>{1}));
  }

  // The message about these files, with x.npy among them.
  std::string refusal(const std::string& x, std::vector<fs::path> files = {"x.npy", "n.npy"}) {
    save(folder_ / "x.npy", x);
    for (fs::path& file : files) file = folder_ / file;
    Document document(folder_ / "in.onnx");
    try {
      samples_for(Graph(document), files);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(Samples, FitTheInputsOfTheModel) {
  const std::vector<float> six{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(refusal(npy("<f4", "(2, 3)", six)), "");
  EXPECT_THAT(refusal(npy("<f4", "(3, 2)", six)),
              HasSubstr("input 'x' has the shape [2, ?] and the sample [3, 2]"));
  EXPECT_THAT(refusal(npy("<f4", "(6,)", six)), HasSubstr("[2, ?] and the sample [6]"));
  EXPECT_THAT(refusal(npy("<f8", "(2, 1)", std::vector<double>{1, 2})),
              HasSubstr("input 'x' is tensor(float32) and the sample float64"));
  EXPECT_THAT(refusal(npy("<f4", "(2, 3)", six), {"x.npy"}), HasSubstr("lacks the input 'n'"));
  EXPECT_THAT(refusal(npy("<c8", "(2, 3)", six)), HasSubstr("'c8', which is not supported"));
  fs::copy_file(folder_ / "n.npy", folder_ / "z.npy");
  EXPECT_THAT(refusal(npy("<f4", "(2, 3)", six), {"x.npy", "n.npy", "z.npy"}),
              HasSubstr("named like no input"));
}

}  // namespace
}  // namespace mezzo::convert
