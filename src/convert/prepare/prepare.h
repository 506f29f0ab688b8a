// The preparation of a model before anything is decided about it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convert/onnx/document.h"
#include "mezzo/convert.h"

namespace mezzo::convert {

/// The opset to raise a model to.
struct OpsetChoice {
  int opset = 0;            ///< 0: as it is
  bool for_age = false;     ///< raised only since hardly any runtime loads Casts of its own opset
  std::string cannot = {};  ///< why it was not raised, though it should have been
};

/// A model made ready for decisions.
struct Preparation {
  int opset = 0;       ///< raised to; 0: it stays
  bool folds = false;  ///< batch normalizations

  // NOLINTNEXTLINE(google-explicit-constructor): most often an opset is all there is.
  Preparation(int to = 0, bool with_folding = false) : opset(to), folds(with_folding) {}
};

/// The model, raised to that opset (0: as it is). Throws UnsupportedError if it cannot be.
std::unique_ptr<Document> raised(const std::shared_ptr<ModelFile>&, int opset);

/// As above, with batch normalizations folded where that is asked for; `folds` becomes what came of
/// each.
std::unique_ptr<Document> prepared(const std::shared_ptr<ModelFile>&, const Preparation&,
                                   std::vector<BatchNormFold>* folds = nullptr);

}  // namespace mezzo::convert
