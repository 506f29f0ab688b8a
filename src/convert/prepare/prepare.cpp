#include "convert/prepare/prepare.h"

#include <utility>

#include "convert/prepare/fold_batch_norm.h"
#include "convert/prepare/opset.h"
#include "core/raise.h"

namespace mezzo::convert {

std::unique_ptr<Document> raised(const std::shared_ptr<ModelFile>& model, int opset) {
  auto document = std::make_unique<Document>(model);
  if (opset == 0) return document;
  const std::string why = raise_opset(*document, opset);
  if (!why.empty())
    raise<UnsupportedError>("convert", "the model cannot be raised to opset ", opset, ": ", why);
  return document;
}

std::unique_ptr<Document> prepared(const std::shared_ptr<ModelFile>& model,
                                   const Preparation& preparation,
                                   std::vector<BatchNormFold>* folds) {
  auto document = raised(model, preparation.opset);
  if (!preparation.folds) return document;
  std::vector<BatchNormFold> list = fold_batch_norms(*document);
  if (folds != nullptr) *folds = std::move(list);
  return document;
}

}  // namespace mezzo::convert
