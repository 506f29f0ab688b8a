#include "word_language_model/language_model.h"

#include <gmock/gmock.h>
#include <mezzo/error.h>
#include <torch/torch.h>

namespace examples {
namespace {

using testing::HasSubstr;

at::Tensor text(const std::string& characters) {
  return torch::tensor(std::vector<std::int64_t>(characters.begin(), characters.end()))
      .to(at::kByte);
}

/// The loader's message about an archive with these entries.
std::string message_of(const std::vector<std::pair<std::string, at::Tensor>>& entries) {
  torch::serialize::OutputArchive archive;
  for (const auto& [key, value] : entries) archive.write(key, value);
  const std::string file = testing::TempDir() + "language_model_test.pt";
  archive.save_to(file);
  try {
    load_language_model(file);
  } catch (const mezzo::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LanguageModel, IsReadAsItWasWritten) {
  Dictionary dictionary;
  for (const char* word : {"one", "two", "three"}) dictionary.add(word);
  const LanguageModelSizes sizes{
      .kind = "GRU", .words = 3, .embedding = 4, .hidden = 4, .layers = 1, .tied = true};
  const LanguageModel model(sizes);
  const std::string file = testing::TempDir() + "language_model_test.pt";
  save_language_model(file, sizes, dictionary, model->named_parameters());
  const SavedLanguageModel saved = load_language_model(file);
  EXPECT_EQ(saved.dictionary.word(2), "three");
  const auto expected = model->parameters();
  const auto loaded = saved.model->parameters();
  ASSERT_EQ(loaded.size(), expected.size());
  for (std::size_t i = 0; i < loaded.size(); ++i)
    EXPECT_TRUE(torch::equal(loaded[i], expected[i])) << i;
}

TEST(LanguageModel, AForeignArchiveIsAnErrorThatSaysWhatIsMissing) {
  const at::Tensor kind = text("LSTM");
  const at::Tensor words = text("one\ntwo\n");
  EXPECT_THAT(message_of({{"kind", kind}}), HasSubstr("cannot read model"));
  const std::vector<at::Tensor> foreign{torch::tensor({2L}), torch::tensor({2L, 4L, 4L}),
                                        torch::zeros({5}), torch::zeros({}, at::kLong),
                                        torch::ones({5, 1}, at::kLong)};
  for (const at::Tensor& sizes : foreign) {
    EXPECT_THAT(message_of({{"kind", kind}, {"sizes", sizes}, {"words", words}}),
                HasSubstr("expected Long [5]"))
        << sizes;
  }
  const at::Tensor sizes = torch::tensor({2L, 4L, 4L, 1L, 0L});
  EXPECT_THAT(message_of({{"kind", kind}, {"sizes", sizes - 2}, {"words", words}}),
              HasSubstr("its size 0 is 0"));
  EXPECT_THAT(message_of({{"kind", torch::zeros({4})}, {"sizes", sizes}, {"words", words}}),
              HasSubstr("no row of bytes"));
  EXPECT_THAT(message_of({{"kind", kind}, {"sizes", sizes}, {"words", text("one\n")}}),
              HasSubstr("1 words and weights for 2"));
  EXPECT_THAT(
      message_of(
          {{"kind", kind}, {"sizes", sizes}, {"words", words}, {"weight0", torch::zeros({1})}}),
      HasSubstr("weight0 has shape [1]"));
}

}  // namespace
}  // namespace examples
